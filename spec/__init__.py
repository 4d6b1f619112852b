"""The specification of vLLM's prefix cache, derived from what attention reads.

What holds for every release, in reading order:

- `terms`: how one formula serves Python ints and symbols.
- `attention`: what a resumed request reads.
- `groups`: KV cache groups and their alignment.
- `hits`: required run, valid hit, longest valid hit.
- `mask`: reachable blocks and the mask.
- `retention`: what sparse retention promises.
- `sharing`: why a request may read what another request computed.
- `pool`: what must hold of each block of the pool.
- `connector`: local prefixes, for KV connectors that load Mamba states.
- `claims`: the registry, each claim by name with its clauses.

What releases differ in is in `releases`: `horizons` (lookahead horizons), `sequential` (groups
looked up one after the other, without a margin), `fine` (hits inside blocks) and `policies`
(which release has which policy).
"""

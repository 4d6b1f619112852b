"""What is true of vLLM's prefix cache, derived from what attention needs.

Read in this order: `terms` (how one predicate serves integers and Z3 terms), `attention`
(what a resumed request reads), `groups` (KV cache groups and their alignment), `hits`
(required run, valid hit, longest valid hit), `mask` (reachable blocks and the mask), `retention`
(what sparse retention promises), `sequential` and `fine` (joint hits without a margin, hits inside
blocks), `sharing` (why a request may read what another computed), `pool` (what must hold of each
block of the pool), `policies` (which release has which) and `claims` (the registry: each claim by
name, with its clauses).
"""

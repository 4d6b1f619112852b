"""One theorem for each claim of the spec, for all sizes and positions, without bounds.

Statements call the spec's own functions; they add only the unknowns, the hypotheses and, where
something exists, a witness for it. Names of unknowns: positions and windows are in tokens,
``block``, ``boundary``, ``segment`` and ``tail`` in blocks, ``count`` and ``other`` in segments;
``block_size``, ``window`` and ``chunk`` are in tokens.
"""

from hitproof.proofs import (
    admission,
    attention,
    connector,
    eviction,
    fine,
    joint,
    lookup,
    masks,
    need,
    pool,
    releases,
    retention,
    sharing,
    tiers,
)
from hitproof.proofs.agreement import theorems as agreement
from hitproof.proofs.obligation import Theorem

COVERS: dict[str, str] = {
    "hit_has_every_block_attention_reads": "For one group of any kind: the required run is exactly "
    "the blocks that some later query reads, or the state that it resumes from. Not the served "
    "block table, which is checked on real code.",
    "eagle_needs_tail_plus_one": "For one group of any kind: how many contiguous blocks are "
    "needed, with and without the lookahead block; and which of any number of groups drop one.",
    "lookup_returns_longest_valid_hit": "For one group of any kind: what makes a hit valid, that "
    "the longest is one, and that a scan from above, as the reference has it, ends there.",
    "common_hit_is_valid_for_every_group": "For any number of groups of any kinds and sizes: "
    "their alignment, that a hit is valid exactly when each of them serves it, and that all that "
    "attention then reads before it is cached. What the turns of their lookups end with is valid, "
    "by induction over the turns, if each lookup keeps its contract, which the theorem on lookup "
    "is about. The horizon stays as it is.",
    "common_hit_is_the_longest": "For any number of groups: which hit is the longest, and that the "
    "turns of their lookups end, and with it, by induction over the turns, if each lookup keeps "
    "its contract. Without a margin: what one turn costs, and what full attention and one other "
    "group end with.",
    "local_prefix_lacks_states_only": "For any number of groups: each that keeps no states serves "
    "the local prefix. For one group of any kind: a load completes what is read at "
    "its end, and a local prefix whose state is cached is a hit.",
    "local_prefix_is_the_longest": "For any number of groups: no longer one is valid. For one "
    "group of any kind: a hit is a local prefix. That the longest one is returned follows from the "
    "theorem on lookup, with Mamba left out.",
    "mask_keeps_every_reachable_block": "For one group of any kind: each reachable block is in the "
    "mask, in what a connector stores, and must be registered once its run is final.",
    "mask_keeps_only_reachable_blocks": "For one group of any kind: no other block is in the mask, "
    "in what a connector stores, or must be registered.",
    "retention_keeps_resends_and_extensions": "For one group of any kind: the boundary of a resend "
    "and of an extension is their longest hit, on whole blocks and on hash blocks, and its run is "
    "kept.",
    "retention_keeps_siblings": "For one group of any kind: the boundaries on the interval are "
    "what siblings hit, and their runs are kept.",
    "retention_keeps_junctions": "For one group of any kind: the junction is the longest hit of "
    "the next sibling, and its run is kept. Not how a junction is noticed, which is checked on "
    "real code.",
    "lookup_agrees_under_dense_retention": "For any number of groups of any kinds and sizes, any "
    "later request and any history of chunks and evictions, by induction over its steps: what "
    "lookup returns, by the clauses themselves. Hits end on block edges.",
    "lookup_agrees_under_interval_retention": "The same; dense caching is of what was computed. "
    "What a request promises beside the interval is covered as under latest retention.",
    "lookup_agrees_under_latest_retention": "The same, for each boundary that a request promises, "
    "until another request recomputes evicted blocks of its run without keeping them. Between "
    "promised boundaries dense caching may hit more.",
    "fine_grained_hit_is_vouched_for": "For one group, full attention or Mamba: a hit is served "
    "only with its entry, an entry holds exactly the hash units that it backs, and on block "
    "edges such hits are the aligned ones; with a lookahead of 0 or 1 hash unit. That lookup "
    "returns the longest is the theorem on lookup, which holds for any set of cached blocks, hash "
    "units among them. For any number of groups: which layouts have such hits, and where hits end.",
    "retention_keeps_only_promised_blocks": "For one group of any kind: each kept block is needed "
    "by a promised hit, and is in the dense mask. What follow-up turns excuse is needed by a hit "
    "that their output can complete.",
    "reused_content_is_determined_by_the_hit": "For chained hashes that are taken to be injective: "
    "equal hashes are equal tokens, and what they determine in target and draft layers.",
    "block_in_use_is_never_evicted": "For any block of a pool of any size, after each operation.",
    "free_count_is_free_queue_length": "For any block of a pool of any size, after each operation, "
    "and for the count of free blocks by induction over them.",
    "null_block_is_never_served": "For any block of a pool of any size, after each operation.",
    "least_recently_used_block_goes_first": "For any two blocks of a free queue of any length, by "
    "each way in which one of them joins it, stays or is taken.",
    "admitted_request_gets_its_blocks": "For one group, any sizes and any step: which blocks it "
    "takes, and how many at once at most; and for one request, that it gets them. What blocks of a "
    "hit take is tested only.",
    "cached_key_names_its_content": "For any block of a pool of any size, after each operation.",
    "tier_keeps_every_reachable_block": "For one group of any kind: each reachable block is stored "
    "by the step that fills it, and of a hit whose run ends within the request a lookup "
    "asks for each block.",
    "tier_keeps_only_reachable_blocks": "For one group of any kind: no other block is stored.",
    "tier_hit_is_the_longest": "For any number of groups of any kinds and sizes: what a hit of the "
    "tier requires is stored or local, and no hit of which that holds is longer.",
    "tier_loads_the_served_run": "For one group of any kind: a load completes what the request "
    "reads, all of it is stored, and it has nothing else.",
}
"""By the name of the claim. What is covered is covered for all sizes and positions, and for a
lookahead of any number of blocks, unless the text says otherwise."""


_MODULES = (
    attention,
    need,
    lookup,
    joint,
    connector,
    masks,
    retention,
    releases,
    agreement,
    fine,
    sharing,
    pool,
    eviction,
    admission,
    tiers,
)

THEOREMS: dict[str, Theorem] = {
    name: Theorem(name, obligations, COVERS[name])
    for module in _MODULES
    for name, obligations in module.OBLIGATIONS.items()
}
"""Every theorem, by the name of its claim."""

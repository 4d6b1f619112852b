"""The claim registry: each claim states what must hold, in one sentence, under a stable name.

A claim has a theorem of the same name in ``proofs`` and is checked on real code by the check of the
same name in ``conformance``; a test fails when either is missing. First stand the claims, then the
clauses that state each of them, then the symbols of vLLM that do what it says.

In one module, though long: it is the list of what hitproof claims, read from top to bottom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hitproof.spec import (
    admission,
    attention,
    connector,
    eviction,
    groups,
    hits,
    mask,
    pool,
    retention,
    sharing,
    terms,
    tiers,
)
from hitproof.spec.releases import fine, horizons, sequential
from hitproof.spec.terms import EXECUTABLE, TESTED


class Divergence(StrEnum):
    """The kinds of divergence from the spec, most severe first."""

    UNSOUND = "unsound"
    CRASH = "crash"
    WRONG_DRAFTS = "wrong drafts"
    """Only entries of draft layers are wrong: fewer drafts are accepted, outputs are right."""
    LOST_HIT = "lost hit"
    WASTE = "waste"
    WRONG_METRIC = "wrong metric"
    POLICY_CHANGE = "policy change"


CLAIMED: dict[str, tuple[Divergence, str]] = {
    "hit_has_every_block_attention_reads": (
        Divergence.UNSOUND,
        "A hit is served only when every block that attention reads before it, or "
        "the state that Mamba resumes from, is cached, and the served block table holds "
        "those blocks. What a window outside the prefix cache reads is computed again.",
    ),
    "eagle_needs_tail_plus_one": (
        Divergence.UNSOUND,
        "With EAGLE or MTP a hit is served only when the block just past it is also "
        "cached, and that block is then dropped: a sliding window needs tail + 1 contiguous "
        "blocks. Where MTP modules look further ahead than a block, it is as many blocks as "
        "they do. A Mamba state is never dropped.",
    ),
    "lookup_returns_longest_valid_hit": (
        Divergence.LOST_HIT,
        "The lookup of a group returns its longest valid hit, whatever is cached.",
    ),
    "common_hit_is_valid_for_every_group": (
        Divergence.UNSOUND,
        "With several groups a hit is served only when it is valid for all of them: "
        "each has its whole required run cached, lookahead block included.",
    ),
    "common_hit_is_the_longest": (
        Divergence.LOST_HIT,
        "With several groups lookup returns the longest hit that is valid for all of "
        "them, whatever is cached.",
    ),
    "local_prefix_lacks_states_only": (
        Divergence.UNSOUND,
        "The local prefix reported to a KV connector that loads Mamba states is one "
        "for which every other group has its required run cached; if its Mamba state is not "
        "cached, the prefix is flagged.",
    ),
    "local_prefix_is_the_longest": (
        Divergence.LOST_HIT,
        "The local prefix reported to a KV connector that loads Mamba states is the "
        "longest for which every other group has its required run cached.",
    ),
    "mask_keeps_every_reachable_block": (
        Divergence.LOST_HIT,
        "The producer registers every block that is in the required run of at least one boundary.",
    ),
    "mask_keeps_only_reachable_blocks": (
        Divergence.WASTE,
        "The producer registers only blocks that are in the required run of at least one boundary.",
    ),
    "retention_keeps_resends_and_extensions": (
        Divergence.LOST_HIT,
        "Under sparse retention a resend of a prompt and an extension of it hit as "
        "much as under dense retention, and a follow-up turn hits at least as much as an "
        "extension; where hits may end inside a block, the resend or the extension hits up to "
        "the end of the prompt under either.",
    ),
    "retention_keeps_siblings": (
        Divergence.LOST_HIT,
        "With a retention interval, a sibling hits at least as much as under dense "
        "retention, rounded down to a multiple of the interval.",
    ),
    "retention_keeps_junctions": (
        Divergence.LOST_HIT,
        "Under sparse retention the next request that shares a prefix already shared "
        "by two requests hits that prefix, as under dense retention; where hits may end inside "
        "a block and such states are kept, it hits the prefix under either.",
    ),
    "lookup_agrees_under_dense_retention": (
        Divergence.LOST_HIT,
        "Whatever requests were computed and registered by the mask, in any chunks, "
        "and whatever was evicted since, lookup gives each later request the hit that it would "
        "if every computed block had been registered.",
    ),
    "lookup_agrees_under_interval_retention": (
        Divergence.LOST_HIT,
        "With a retention interval, lookup gives each later request no more than that "
        "hit, and no less than any hit on the interval that was possible with every computed "
        "block registered.",
    ),
    "lookup_agrees_under_latest_retention": (
        Divergence.LOST_HIT,
        "With the latest boundary only, lookup gives a resend and an extension their "
        "promised hit just when it would with every computed block registered, until another "
        "request computes evicted blocks of it anew, and never more.",
    ),
    "fine_grained_hit_is_vouched_for": (
        Divergence.UNSOUND,
        "Where hits may end inside a block, a hit needs a cached entry of that block "
        "at or past the end of the hit or, for Mamba, the state as of exactly its last token; "
        "lookup returns the longest such hit.",
    ),
    "retention_keeps_only_promised_blocks": (
        Divergence.WASTE,
        "Sparse retention registers only blocks that a hit can use: a promised one, "
        "one of a follow-up turn, or the one that is left where a promised hit is lost.",
    ),
    "reused_content_is_determined_by_the_hit": (
        Divergence.UNSOUND,
        "Two block hashes are equal exactly when all tokens from the start of the "
        "request to the end of the block are, so everything that a hit reuses is determined "
        "by tokens that its matched hashes cover.",
    ),
    "block_in_use_is_never_evicted": (
        Divergence.UNSOUND,
        "A block that is in a block table is never allocated again: its reference "
        "count is the number of block-table entries that hold it.",
    ),
    "free_count_is_free_queue_length": (
        Divergence.UNSOUND,
        "The free queue holds every unused block exactly once and no other block, "
        "and the count of free blocks is its length.",
    ),
    "null_block_is_never_served": (
        Divergence.UNSOUND,
        "The null block is never cached, freed, allocated or found by a key.",
    ),
    "cached_key_names_its_content": (
        Divergence.UNSOUND,
        "A key finds a block from its registration until the block is allocated "
        "again or declared invalid, or the cache is reset, and only while the block holds the "
        "content that the key describes.",
    ),
    "least_recently_used_block_goes_first": (
        Divergence.LOST_HIT,
        "Free blocks are handed out from the front of the free queue: those that "
        "lookup cannot find first, then the others, least recently used first, and of one "
        "request the tail before the head. Blocks that stay free keep their order.",
    ),
    "admitted_request_gets_its_blocks": (
        Divergence.WASTE,
        "A request is refused blocks only when too few are free. One that is admitted "
        "because all of it fits gets the blocks that each of its steps reads and writes, "
        "unless other requests take blocks meanwhile.",
    ),
    "tier_keeps_every_reachable_block": (
        Divergence.LOST_HIT,
        "A tier stores, in the step that fills it, every block that is in the required run of at "
        "least one boundary, and its lookup asks for those of each run that ends within the "
        "request.",
    ),
    "tier_keeps_only_reachable_blocks": (
        Divergence.WASTE,
        "A tier stores, and its lookup asks for, only blocks that are in the required run of at "
        "least one boundary.",
    ),
    "tier_hit_is_the_longest": (
        Divergence.UNSOUND,
        "The lookup of a tier returns the longest hit whose required runs, lookahead blocks "
        "included, are stored or local in every group.",
    ),
    "tier_loads_the_served_run": (
        Divergence.UNSOUND,
        "A tier loads the blocks of a hit that the request reads and that are not local, and no "
        "others.",
    ),
}
"""The claims: what real code does to users, at worst, that violates one, and its sentence."""


Clause: TypeAlias = Callable[..., Any]
"""A public function of the spec."""

_CLAUSES: dict[str, tuple[Clause, ...]] = {
    "hit_has_every_block_attention_reads": (
        attention.attends,
        attention.reads_state,
        attention.replay_start,
        attention.tail_blocks,
        hits.run_start,
        hits.in_required_run,
        hits.has_required_run,
    ),
    "eagle_needs_tail_plus_one": (
        attention.lookahead_blocks,
        hits.in_required_run,
        hits.run_end,
        hits.required_run,
        groups.share_eagle,
        groups.is_looked_up_with,
        groups.drops_block,
    ),
    "lookup_returns_longest_valid_hit": (
        hits.within_reach,
        hits.valid_boundary,
        groups.whole_blocks,
    ),
    "common_hit_is_valid_for_every_group": (
        groups.alignment,
        groups.is_common_edge,
        groups.geometry,
        groups.whole_blocks,
        terms.is_multiple,
        hits.valid_boundary,
        hits.valid_hit,
    ),
    "common_hit_is_the_longest": (
        horizons.horizon,
        hits.valid_boundary,
        hits.valid_hit,
        hits.longest_valid_hit,
        sequential.valid_without_margin,
        sequential.lookup_order,
        sequential.longest_joint_hit,
        sequential.one_pass_suffices,
    ),
    "local_prefix_lacks_states_only": (
        connector.is_fully_loaded,
        connector.valid_local_boundary,
        connector.valid_local_prefix,
    ),
    "local_prefix_is_the_longest": (
        connector.may_diverge,
        connector.valid_local_boundary,
        connector.valid_local_prefix,
        connector.longest_local_prefix,
    ),
    "mask_keeps_every_reachable_block": (
        mask.in_mask,
        mask.next_boundary,
        mask.in_stored_mask,
        mask.is_due,
    ),
    "mask_keeps_only_reachable_blocks": (
        mask.in_mask,
        mask.next_boundary,
        mask.in_stored_mask,
        mask.is_due,
    ),
    "retention_keeps_resends_and_extensions": (
        retention.replay_boundary,
        retention.resend_cap,
        horizons.horizon,
        retention.in_retained_mask,
        fine.tail_boundary,
    ),
    "retention_keeps_siblings": (
        retention.falls_on_boundaries,
        retention.sibling_boundary,
        retention.in_retained_mask,
    ),
    "retention_keeps_junctions": (
        retention.junction_boundary,
        retention.in_retained_mask,
    ),
    "lookup_agrees_under_dense_retention": (
        mask.in_mask,
        mask.next_boundary,
        hits.in_required_run,
        hits.valid_boundary,
        hits.within_reach,
    ),
    "lookup_agrees_under_interval_retention": (
        retention.in_retained_mask,
        retention.sibling_boundary,
        hits.in_required_run,
        retention.replay_boundary,
    ),
    "lookup_agrees_under_latest_retention": (
        retention.in_retained_mask,
        hits.in_required_run,
        retention.replay_boundary,
    ),
    "fine_grained_hit_is_vouched_for": (
        fine.is_fine_grained,
        fine.hit_alignment,
        fine.at_hash_units,
        fine.block_of,
        fine.witness_unit,
        fine.witness_end,
        fine.witness_entries,
        fine.is_held,
        fine.peek,
        fine.valid_fine_hit,
        fine.longest_fine_hit,
    ),
    "retention_keeps_only_promised_blocks": (
        retention.in_retained_mask,
        retention.serves_follow_ups,
        retention.hit_instead,
    ),
    "reused_content_is_determined_by_the_hit": (
        sharing.is_determined,
        sharing.covered_tokens,
        sharing.final_tokens,
        sharing.is_chained,
        attention.lookahead_blocks,
    ),
    "block_in_use_is_never_evicted": (
        pool.counts_holders,
        pool.is_sound,
        pool.can_be_taken,
        pool.taken,
        pool.touched,
        pool.freed,
        pool.can_be_freed,
        pool.can_be_reset,
    ),
    "free_count_is_free_queue_length": (
        pool.is_unused,
        pool.is_queued_when_unused,
        pool.vacancy,
        pool.free_count_decrease,
        pool.is_free_queue_length,
    ),
    "null_block_is_never_served": (
        pool.is_kept_apart,
        pool.is_real,
    ),
    "cached_key_names_its_content": (
        pool.is_named_for_its_content,
        pool.keeps_its_keys,
        pool.rewritten,
        pool.can_be_registered,
        pool.registered,
        pool.invalidated,
    ),
    "least_recently_used_block_goes_first": (
        eviction.goes_before,
        eviction.is_least_recently_used_first,
        eviction.is_taken_from_the_front,
        eviction.joins_at_the_end,
        eviction.joins_before_cached,
        eviction.keeps_its_place,
    ),
    "admitted_request_gets_its_blocks": (
        admission.blocks_at_once,
        admission.blocks_between,
        admission.first_token_read,
        admission.fits,
        admission.is_answered_right,
        admission.most_between,
        admission.states_at_once,
        admission.tokens_at_once,
    ),
    "tier_keeps_every_reachable_block": (
        tiers.is_stored,
        mask.in_mask,
        mask.is_due,
    ),
    "tier_keeps_only_reachable_blocks": (
        tiers.is_stored,
        mask.in_mask,
    ),
    "tier_hit_is_the_longest": (
        tiers.is_available,
        tiers.longest_tier_hit,
        hits.valid_boundary,
        hits.valid_hit,
    ),
    "tier_loads_the_served_run": (
        tiers.is_loaded,
        hits.in_required_run,
        hits.has_required_run,
    ),
}

_LOOKUPS = (
    "FullAttentionManager.find_longest_cache_hit",
    "SlidingWindowManager.find_longest_cache_hit",
    "ChunkedLocalAttentionManager.find_longest_cache_hit",
    "MambaManager.find_longest_cache_hit",
)
_COORDINATORS = (
    "UnitaryKVCacheCoordinator.find_longest_cache_hit",
    "HybridKVCacheCoordinator.find_longest_cache_hit",
    "HybridKVCacheCoordinator.verify_and_split_kv_cache_groups",
)
_FOR_CONNECTORS = (
    "KVCacheManager.get_computed_blocks_for_connector",
    "HybridKVCacheCoordinator.find_longest_cache_hit_per_group",
    "HybridKVCacheCoordinator.verify_and_split_kv_cache_groups",
)
_MASKS = (
    "SlidingWindowManager.reachable_block_mask",
    "SlidingWindowManager._cache_block_mask",
    "SingleTypeKVCacheManager.cache_blocks",
    "MambaManager.reachable_block_mask",
    "MambaManager.cache_blocks",
)
_RETENTION = (
    "HybridKVCacheCoordinator.cache_blocks",
    "SlidingWindowManager.reachable_block_mask",
    "MambaManager.reachable_block_mask",
    "replay_boundaries",
)
_POOL = (
    "BlockPool.get_new_blocks",
    "BlockPool.touch",
    "BlockPool.free_blocks",
    "BlockPool.cache_full_blocks",
    "BlockPool.evict_blocks",
    "BlockPool.reset_prefix_cache",
    "BlockPool._maybe_evict_cached_block",
    "FreeKVCacheBlockQueue",
)
_TIER_MASKS = (
    "MooncakeStoreCoordinator.store_mask",
    "MooncakeStoreCoordinator.lookup_mask",
    "OffloadingConnectorScheduler.build_connector_meta",
)

_SYMBOLS: dict[str, tuple[str, ...]] = {
    "hit_has_every_block_attention_reads": _LOOKUPS,
    "eagle_needs_tail_plus_one": (*_LOOKUPS, "SlidingWindowManager._contiguous_blocks_for_hit"),
    "lookup_returns_longest_valid_hit": _LOOKUPS,
    "common_hit_is_valid_for_every_group": _COORDINATORS,
    "common_hit_is_the_longest": _COORDINATORS,
    "local_prefix_lacks_states_only": _FOR_CONNECTORS,
    "local_prefix_is_the_longest": _FOR_CONNECTORS,
    "mask_keeps_every_reachable_block": _MASKS,
    "mask_keeps_only_reachable_blocks": _MASKS,
    "retention_keeps_resends_and_extensions": _RETENTION,
    "retention_keeps_siblings": _RETENTION,
    "retention_keeps_junctions": (
        *_RETENTION,
        "KVCacheManager.get_computed_blocks",
        "Request.shared_prefix_boundary",
    ),
    "lookup_agrees_under_dense_retention": (*_LOOKUPS, *_COORDINATORS, *_MASKS),
    "lookup_agrees_under_interval_retention": (*_LOOKUPS, *_COORDINATORS, *_RETENTION),
    "lookup_agrees_under_latest_retention": (*_LOOKUPS, *_COORDINATORS, *_RETENTION),
    "fine_grained_hit_is_vouched_for": (
        "FullAttentionManager.find_longest_cache_hit",
        "MambaManager.find_longest_cache_hit",
        "partial_hash_hits_enabled",
    ),
    "retention_keeps_only_promised_blocks": _RETENTION,
    "reused_content_is_determined_by_the_hit": (
        "hash_block_tokens",
        "get_request_block_hasher",
        "generate_block_hash_extra_keys",
        "BlockHashListWithBlockSize",
    ),
    "block_in_use_is_never_evicted": _POOL,
    "free_count_is_free_queue_length": (*_POOL, "BlockPool.get_num_free_blocks"),
    "null_block_is_never_served": (*_POOL, "BlockPool.null_block", "BlockPool.get_cached_block"),
    "cached_key_names_its_content": (*_POOL, "BlockPool.get_cached_block", "BlockHashToBlockMap"),
    "least_recently_used_block_goes_first": (
        "BlockPool.get_new_blocks",
        "BlockPool.touch",
        "BlockPool.free_blocks",
        "FreeKVCacheBlockQueue",
        "SingleTypeKVCacheManager.free",
        "SingleTypeKVCacheManager.remove_skipped_blocks",
    ),
    "admitted_request_gets_its_blocks": (
        "KVCacheManager.allocate_slots",
        "KVCacheCoordinator.get_num_blocks_to_allocate",
        "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
        "SlidingWindowSpec.max_admission_blocks_per_request",
        "ChunkedLocalAttentionSpec.max_admission_blocks_per_request",
    ),
    "tier_keeps_every_reachable_block": _TIER_MASKS,
    "tier_keeps_only_reachable_blocks": _TIER_MASKS,
    "tier_hit_is_the_longest": (
        "MooncakeStoreCoordinator.find_longest_cache_hit",
        "OffloadingConnectorScheduler.get_num_new_matched_tokens",
    ),
    "tier_loads_the_served_run": (
        "MooncakeStoreCoordinator.load_mask",
        "OffloadingConnectorScheduler.update_state_after_alloc",
    ),
}


class Status(StrEnum):
    """The result for a claim, as a theorem or on real code."""

    PROVED = "proved"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    """The release predates the feature that the claim is about."""


class Basis(StrEnum):
    """What a clause rests on."""

    PROVED = "proved"
    """It serves ints and symbols: a solver sees it in the theorem of each claim that cites it, and
    with any single-point change that means something else some theorem is not proved."""
    TESTED = "tested"
    """A solver sees it, but there are single-point changes with which every theorem is still
    proved. Tests notice these."""
    EXECUTABLE = "executable"
    """It takes whole configurations or gives Python values, and so runs on ints only. Tests compare
    it with the words that it stands for on all small cases, and each single-point mutant of it
    must be noticed."""


@dataclass(frozen=True)
class Claim:
    """One claim of the spec.

    Attributes:
        name: a stable name that says what is claimed.
        sentence: the claim in one English sentence.
        divergence: what it means for users, at worst, when real code violates it.
        clauses: the spec functions that state it.
        symbols: the vLLM symbols that it covers.
    """

    name: str
    sentence: str
    divergence: Divergence
    clauses: tuple[Clause, ...]
    symbols: tuple[str, ...]


CLAIMS: dict[str, Claim] = {
    name: Claim(name, sentence, divergence, _CLAUSES[name], _SYMBOLS[name])
    for name, (divergence, sentence) in CLAIMED.items()
}
"""Every claim, by name."""


def basis(clause: Clause) -> Basis:
    """Whether a clause is proved, seen by solvers but only tested in full, or only runs."""
    if clause in EXECUTABLE:
        return Basis.EXECUTABLE
    return Basis.TESTED if clause in TESTED else Basis.PROVED


IN_VLLM: dict[Callable[..., Any], str] = {
    groups.GroupKind: "the class of the group's ``KVCacheSpec``",
    groups.Group: "``KVCacheGroupSpec``, with ``is_eagle_group``; of its spec ``sliding_window``, "
    "``attention_chunk_size`` and ``prefix_cacheable``; ``num_prefill_lookahead_tokens`` of "
    "``VllmConfig``",
    groups.alignment: "``scheduler_block_size``, a multiple of this when some groups opt out; "
    "``HybridKVCacheCoordinator`` refuses to start when all do",
    groups.share_eagle: "``eagle_group_ids`` and "
    "``HybridKVCacheCoordinator.verify_and_split_kv_cache_groups``",
    attention.attends: "``SlidingWindowSpec`` and ``ChunkedLocalAttentionSpec``",
    attention.reads_state: '``MambaSpec`` with ``mamba_cache_mode`` "align"',
    attention.replay_start: "``prefix_replay_tokens`` of DeepSeek-V4.1, from 0.31 on: one token "
    "more, and no hit of which it would compute all",
    attention.tail_blocks: "``SlidingWindowManager._contiguous_blocks_for_hit`` without EAGLE",
    attention.lookahead_blocks: "``num_prefill_lookahead`` of ``KVCacheCoordinator``: it drops one "
    "block, and refuses to start only if the alignment has fewer tokens than draft layers look "
    "ahead, which may be more than what is dropped",
    hits.valid_hit: "the hit length that ``find_longest_cache_hit`` may return",
    mask.in_mask: "``reachable_block_mask`` (``_cache_block_mask`` in 0.22) as ``cache_blocks`` "
    "uses it",
    mask.in_stored_mask: "``reachable_block_mask`` with a ``final_segment_end_block``",
    mask.is_due: "``get_num_cacheable_tokens``",
    retention.falls_on_boundaries: "``_validate_prefix_cache_retention_interval`` (PR #43447)",
    retention.replay_boundary: "``replay_boundaries``",
    retention.resend_cap: "``proof_limit`` of ``get_mamba_prefill_checkpoint_position``",
    retention.junction_boundary: "``Request.shared_prefix_boundary``, which also keeps the "
    "boundary one block lower for EAGLE",
    retention.in_retained_mask: "``reachable_block_mask`` with a ``retention_interval``",
    tiers.is_stored: "``store_mask`` of ``MooncakeStoreCoordinator``",
    tiers.longest_tier_hit: "``find_longest_cache_hit`` of ``MooncakeStoreCoordinator``, which is "
    "told of no local blocks",
    tiers.is_loaded: "``load_mask`` of ``MooncakeStoreCoordinator``; its worker leaves out what is "
    "local",
}
"""What does it in vLLM, of what the core names without a word of it."""

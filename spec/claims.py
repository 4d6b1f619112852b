"""The claim registry: each claim states what must hold, in one sentence, under a stable name.

A claim has a theorem of the same name in ``proofs`` and is checked on real code by the check of the
same name in ``conformance``; a test fails when either is missing. `basis` says which of its clauses
a solver sees in the theorem and which only run; a test compares that with what solvers are asked.

In one module, though long: it is the list of what hitproof claims, read from top to bottom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hitproof.spec.admission import (
    blocks_at_once,
    blocks_between,
    first_token_read,
    fits,
    is_answered_right,
    most_between,
    states_at_once,
    tokens_at_once,
)
from hitproof.spec.attention import (
    attends,
    lookahead_blocks,
    reads_state,
    replay_start,
    tail_blocks,
)
from hitproof.spec.connector import (
    is_fully_loaded,
    longest_local_prefix,
    may_diverge,
    valid_local_boundary,
)
from hitproof.spec.eviction import (
    goes_before,
    is_least_recently_used_first,
    is_taken_from_the_front,
    joins_at_the_end,
    joins_before_cached,
    keeps_its_place,
)
from hitproof.spec.groups import alignment, drops_block, geometry, share_eagle, whole_blocks
from hitproof.spec.hits import (
    has_required_run,
    in_required_run,
    longest_valid_hit,
    required_run,
    run_end,
    run_start,
    valid_boundary,
    valid_hit,
    within_reach,
)
from hitproof.spec.mask import in_mask, in_stored_mask, is_due, next_boundary
from hitproof.spec.pool import (
    can_be_freed,
    can_be_registered,
    can_be_reset,
    can_be_taken,
    counts_holders,
    free_count_decrease,
    freed,
    invalidated,
    is_free_queue_length,
    is_kept_apart,
    is_named_for_its_content,
    is_queued_when_unused,
    is_real,
    is_sound,
    is_unused,
    keeps_its_keys,
    registered,
    rewritten,
    taken,
    touched,
    vacancy,
)
from hitproof.spec.releases.fine import (
    at_hash_units,
    block_of,
    hit_alignment,
    is_fine_grained,
    is_held,
    longest_fine_hit,
    peek,
    tail_boundary,
    valid_fine_hit,
    witness_end,
    witness_entries,
    witness_unit,
)
from hitproof.spec.releases.horizons import horizon
from hitproof.spec.releases.sequential import (
    longest_joint_hit,
    lookup_order,
    one_pass_suffices,
    valid_without_margin,
)
from hitproof.spec.retention import (
    check_interval,
    falls_on_boundaries,
    hit_instead,
    in_retained_mask,
    junction_boundary,
    replay_boundary,
    resend_cap,
    serves_follow_ups,
    sibling_boundary,
)
from hitproof.spec.sharing import covered_tokens, final_tokens, is_chained, is_determined
from hitproof.spec.terms import is_multiple


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


class Status(StrEnum):
    """The result for a claim, as a theorem or on real code."""

    PROVED = "proved"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    """The release predates the feature that the claim is about."""


Clause: TypeAlias = Callable[..., Any]
"""A public function of the spec."""


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

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            name="hit_has_every_block_attention_reads",
            sentence="A hit is served only when every block that attention reads before it, or "
            "the state that Mamba resumes from, is cached, and the served block table holds "
            "those blocks. What a window outside the prefix cache reads is computed again.",
            divergence=Divergence.UNSOUND,
            clauses=(
                attends,
                reads_state,
                replay_start,
                tail_blocks,
                run_start,
                in_required_run,
                has_required_run,
            ),
            symbols=_LOOKUPS,
        ),
        Claim(
            name="eagle_needs_tail_plus_one",
            sentence="With EAGLE or MTP a hit is served only when the block just past it is also "
            "cached, and that block is then dropped: a sliding window needs tail + 1 contiguous "
            "blocks. Where MTP modules look further ahead than a block, it is as many blocks as "
            "they do. A Mamba state is never dropped.",
            divergence=Divergence.UNSOUND,
            clauses=(
                lookahead_blocks,
                in_required_run,
                run_end,
                required_run,
                share_eagle,
                drops_block,
            ),
            symbols=(*_LOOKUPS, "SlidingWindowManager._contiguous_blocks_for_hit"),
        ),
        Claim(
            name="lookup_returns_longest_valid_hit",
            sentence="The lookup of a group returns its longest valid hit, whatever is cached.",
            divergence=Divergence.LOST_HIT,
            clauses=(
                within_reach,
                valid_boundary,
                valid_hit,
                longest_valid_hit,
                alignment,
                geometry,
                whole_blocks,
                is_multiple,
            ),
            symbols=_LOOKUPS,
        ),
        Claim(
            name="common_hit_is_valid_for_every_group",
            sentence="With several groups a hit is served only when it is valid for all of them: "
            "each has its whole required run cached, lookahead block included.",
            divergence=Divergence.UNSOUND,
            clauses=(alignment, share_eagle, valid_boundary, valid_hit),
            symbols=_COORDINATORS,
        ),
        Claim(
            name="common_hit_is_the_longest",
            sentence="With several groups lookup returns the longest hit that is valid for all of "
            "them, whatever is cached.",
            divergence=Divergence.LOST_HIT,
            clauses=(
                alignment,
                share_eagle,
                horizon,
                valid_boundary,
                valid_hit,
                longest_valid_hit,
                valid_without_margin,
                lookup_order,
                longest_joint_hit,
                one_pass_suffices,
            ),
            symbols=_COORDINATORS,
        ),
        Claim(
            name="local_prefix_lacks_states_only",
            sentence="The local prefix reported to a KV connector that loads Mamba states is one "
            "for which every other group has its required run cached; if its Mamba state is not "
            "cached, the prefix is flagged.",
            divergence=Divergence.UNSOUND,
            clauses=(is_fully_loaded, valid_local_boundary, valid_hit),
            symbols=_FOR_CONNECTORS,
        ),
        Claim(
            name="local_prefix_is_the_longest",
            sentence="The local prefix reported to a KV connector that loads Mamba states is the "
            "longest for which every other group has its required run cached.",
            divergence=Divergence.LOST_HIT,
            clauses=(may_diverge, valid_local_boundary, longest_local_prefix),
            symbols=_FOR_CONNECTORS,
        ),
        Claim(
            name="mask_keeps_every_reachable_block",
            sentence="The producer registers every block that is in the required run of at least "
            "one boundary.",
            divergence=Divergence.LOST_HIT,
            clauses=(in_mask, next_boundary, in_stored_mask, is_due),
            symbols=_MASKS,
        ),
        Claim(
            name="mask_keeps_only_reachable_blocks",
            sentence="The producer registers only blocks that are in the required run of at least "
            "one boundary.",
            divergence=Divergence.WASTE,
            clauses=(in_mask, next_boundary, in_stored_mask, is_due),
            symbols=_MASKS,
        ),
        Claim(
            name="retention_keeps_resends_and_extensions",
            sentence="Under sparse retention a resend of a prompt and an extension of it hit as "
            "much as under dense retention, and a follow-up turn hits at least as much as an "
            "extension; where hits may end inside a block, the resend or the extension hits up to "
            "the end of the prompt under either.",
            divergence=Divergence.LOST_HIT,
            clauses=(replay_boundary, resend_cap, horizon, in_retained_mask, tail_boundary),
            symbols=_RETENTION,
        ),
        Claim(
            name="retention_keeps_siblings",
            sentence="With a retention interval, a sibling hits at least as much as under dense "
            "retention, rounded down to a multiple of the interval.",
            divergence=Divergence.LOST_HIT,
            clauses=(check_interval, falls_on_boundaries, sibling_boundary, in_retained_mask),
            symbols=_RETENTION,
        ),
        Claim(
            name="retention_keeps_junctions",
            sentence="Under sparse retention the next request that shares a prefix already shared "
            "by two requests hits that prefix, as under dense retention; where hits may end inside "
            "a block and such states are kept, it hits the prefix under either.",
            divergence=Divergence.LOST_HIT,
            clauses=(junction_boundary, in_retained_mask),
            symbols=(
                *_RETENTION,
                "KVCacheManager.get_computed_blocks",
                "Request.shared_prefix_boundary",
            ),
        ),
        Claim(
            name="lookup_agrees_under_dense_retention",
            sentence="Whatever requests were computed and registered by the mask, in any chunks, "
            "and whatever was evicted since, lookup gives each later request the hit that it would "
            "if every computed block had been registered.",
            divergence=Divergence.LOST_HIT,
            clauses=(in_mask, next_boundary, in_required_run, valid_boundary, within_reach),
            symbols=(*_LOOKUPS, *_COORDINATORS, *_MASKS),
        ),
        Claim(
            name="lookup_agrees_under_interval_retention",
            sentence="With a retention interval, lookup gives each later request no more than that "
            "hit, and no less than any hit on the interval that was possible with every computed "
            "block registered.",
            divergence=Divergence.LOST_HIT,
            clauses=(in_retained_mask, sibling_boundary, in_required_run, replay_boundary),
            symbols=(*_LOOKUPS, *_COORDINATORS, *_RETENTION),
        ),
        Claim(
            name="lookup_agrees_under_latest_retention",
            sentence="With the latest boundary only, lookup gives a resend and an extension their "
            "promised hit just when it would with every computed block registered, until another "
            "request computes evicted blocks of it anew, and never more.",
            divergence=Divergence.LOST_HIT,
            clauses=(in_retained_mask, in_required_run, replay_boundary),
            symbols=(*_LOOKUPS, *_COORDINATORS, *_RETENTION),
        ),
        Claim(
            name="fine_grained_hit_is_vouched_for",
            sentence="Where hits may end inside a block, a hit needs a cached entry of that block "
            "at or past the end of the hit or, for Mamba, the state as of exactly its last token; "
            "lookup returns the longest such hit.",
            divergence=Divergence.UNSOUND,
            clauses=(
                is_fine_grained,
                hit_alignment,
                at_hash_units,
                block_of,
                witness_unit,
                witness_end,
                witness_entries,
                is_held,
                peek,
                valid_fine_hit,
                longest_fine_hit,
            ),
            symbols=(
                "FullAttentionManager.find_longest_cache_hit",
                "MambaManager.find_longest_cache_hit",
                "partial_hash_hits_enabled",
            ),
        ),
        Claim(
            name="retention_keeps_only_promised_blocks",
            sentence="Sparse retention registers only blocks that a hit can use: a promised one, "
            "one of a follow-up turn, or the one that is left where a promised hit is lost.",
            divergence=Divergence.WASTE,
            clauses=(in_retained_mask, serves_follow_ups, hit_instead),
            symbols=_RETENTION,
        ),
        Claim(
            name="reused_content_is_determined_by_the_hit",
            sentence="Two block hashes are equal exactly when all tokens from the start of the "
            "request to the end of the block are, so everything that a hit reuses is determined "
            "by tokens that its matched hashes cover.",
            divergence=Divergence.UNSOUND,
            clauses=(is_determined, covered_tokens, final_tokens, is_chained, lookahead_blocks),
            symbols=(
                "hash_block_tokens",
                "get_request_block_hasher",
                "generate_block_hash_extra_keys",
                "BlockHashListWithBlockSize",
            ),
        ),
        Claim(
            name="block_in_use_is_never_evicted",
            sentence="A block that is in a block table is never allocated again: its reference "
            "count is the number of block-table entries that hold it.",
            divergence=Divergence.UNSOUND,
            clauses=(
                counts_holders,
                is_sound,
                can_be_taken,
                taken,
                touched,
                freed,
                can_be_freed,
                can_be_reset,
            ),
            symbols=_POOL,
        ),
        Claim(
            name="free_count_is_free_queue_length",
            sentence="The free queue holds every unused block exactly once and no other block, "
            "and the count of free blocks is its length.",
            divergence=Divergence.UNSOUND,
            clauses=(
                is_unused,
                is_queued_when_unused,
                vacancy,
                free_count_decrease,
                is_free_queue_length,
            ),
            symbols=(*_POOL, "BlockPool.get_num_free_blocks"),
        ),
        Claim(
            name="null_block_is_never_served",
            sentence="The null block is never cached, freed, allocated or found by a key.",
            divergence=Divergence.UNSOUND,
            clauses=(is_kept_apart, is_real),
            symbols=(*_POOL, "BlockPool.null_block", "BlockPool.get_cached_block"),
        ),
        Claim(
            name="cached_key_names_its_content",
            sentence="A key finds a block from its registration until the block is allocated "
            "again or declared invalid, or the cache is reset, and only while the block holds the "
            "content that the key describes.",
            divergence=Divergence.UNSOUND,
            clauses=(
                is_named_for_its_content,
                keeps_its_keys,
                rewritten,
                can_be_registered,
                registered,
                invalidated,
            ),
            symbols=(*_POOL, "BlockPool.get_cached_block", "BlockHashToBlockMap"),
        ),
        Claim(
            name="least_recently_used_block_goes_first",
            sentence="Free blocks are handed out from the front of the free queue: those that "
            "lookup cannot find first, then the others, least recently used first, and of one "
            "request the tail before the head. Blocks that stay free keep their order.",
            divergence=Divergence.LOST_HIT,
            clauses=(
                goes_before,
                is_least_recently_used_first,
                is_taken_from_the_front,
                joins_at_the_end,
                joins_before_cached,
                keeps_its_place,
            ),
            symbols=(
                "BlockPool.get_new_blocks",
                "BlockPool.touch",
                "BlockPool.free_blocks",
                "FreeKVCacheBlockQueue",
                "SingleTypeKVCacheManager.free",
                "SingleTypeKVCacheManager.remove_skipped_blocks",
            ),
        ),
        Claim(
            name="admitted_request_gets_its_blocks",
            sentence="A request is refused blocks only when too few are free. One that is admitted "
            "because all of it fits gets the blocks that each of its steps reads and writes, "
            "unless other requests take blocks meanwhile.",
            divergence=Divergence.WASTE,
            clauses=(
                blocks_at_once,
                blocks_between,
                first_token_read,
                fits,
                is_answered_right,
                most_between,
                states_at_once,
                tokens_at_once,
            ),
            symbols=(
                "KVCacheManager.allocate_slots",
                "KVCacheCoordinator.get_num_blocks_to_allocate",
                "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
                "SlidingWindowSpec.max_admission_blocks_per_request",
                "ChunkedLocalAttentionSpec.max_admission_blocks_per_request",
            ),
        ),
    )
}
"""Every claim, by name."""

EXECUTABLE: frozenset[Clause] = frozenset(
    (
        alignment,
        at_hash_units,
        blocks_at_once,
        check_interval,
        geometry,
        hit_alignment,
        hit_instead,
        is_fine_grained,
        is_fully_loaded,
        longest_fine_hit,
        longest_joint_hit,
        longest_local_prefix,
        longest_valid_hit,
        lookup_order,
        may_diverge,
        one_pass_suffices,
        required_run,
        share_eagle,
        states_at_once,
        valid_fine_hit,
        valid_hit,
        witness_entries,
    )
)
"""The clauses that no solver sees. A test compares them with what the theorems ask of solvers."""


TESTED: frozenset[Clause] = frozenset(
    (
        horizon,
        peek,
        resend_cap,
    )
)
"""The clauses that solvers see, but not every change of them: `conformance.spec_mutants`. A test
compares this with what the theorems notice."""


def basis(clause: Clause) -> Basis:
    """Whether a clause is proved, seen by solvers but only tested in full, or only runs."""
    if clause in EXECUTABLE:
        return Basis.EXECUTABLE
    return Basis.TESTED if clause in TESTED else Basis.PROVED

"""The claim registry: each claim states what must hold, in one sentence, under a stable name.

A claim is proved as a theorem of the same name in ``proofs`` and judged on real code by the
check of the same name in ``conformance``; a test fails when either is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spec.attention import attends, reads_state, tail_blocks
from spec.groups import alignment, drops_block, geometry, share_eagle, whole_blocks
from spec.hits import (
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
from spec.mask import in_mask, next_boundary
from spec.retention import (
    check_interval,
    falls_on_boundaries,
    horizon,
    in_retained_mask,
    replay_boundary,
    sibling_boundary,
)
from spec.terms import is_multiple


class Divergence(StrEnum):
    """The ways to be wrong, the most severe first."""

    UNSOUND = "unsound"
    CRASH = "crash"
    LOST_HIT = "lost hit"
    WASTE = "waste"
    POLICY_CHANGE = "policy change"


class Status(StrEnum):
    """How a claim ended, as a theorem or on real code."""

    PROVED = "proved"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    """The code is older than what the claim is about."""


@dataclass(frozen=True)
class Claim:
    """One claim of the spec.

    Attributes:
        name: stable, and says what is claimed.
        sentence: the claim in one English sentence.
        divergence: what it means for users when real code breaks it.
        clauses: the spec functions that state it.
        symbols: the vLLM symbols it judges.
    """

    name: str
    sentence: str
    divergence: Divergence
    clauses: tuple[Callable[..., Any], ...]
    symbols: tuple[str, ...]


_LOOKUPS = (
    "FullAttentionManager.find_longest_cache_hit",
    "SlidingWindowManager.find_longest_cache_hit",
    "ChunkedLocalAttentionManager.find_longest_cache_hit",
    "MambaManager.find_longest_cache_hit",
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

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Claim(
            name="hit_has_every_block_attention_reads",
            sentence="A hit is served only when every block that attention reads before it, or "
            "the state that Mamba resumes from, is cached, and the served block table holds "
            "those blocks.",
            divergence=Divergence.UNSOUND,
            clauses=(
                attends,
                reads_state,
                tail_blocks,
                run_start,
                in_required_run,
                has_required_run,
            ),
            symbols=_LOOKUPS,
        ),
        Claim(
            name="eagle_needs_tail_plus_one",
            sentence="With EAGLE or MTP a hit is served only when the block just past it is "
            "cached, too, and then dropped: a sliding window needs tail + 1 contiguous blocks. "
            "A Mamba state is never dropped.",
            divergence=Divergence.UNSOUND,
            clauses=(in_required_run, run_end, required_run, share_eagle, drops_block),
            symbols=(*_LOOKUPS, "SlidingWindowManager._contiguous_blocks_for_hit"),
        ),
        Claim(
            name="lookup_returns_longest_valid_hit",
            sentence="Lookup returns the longest valid hit, whatever is cached; over several "
            "groups the longest that is valid for every one of them.",
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
            name="mask_keeps_every_reachable_block",
            sentence="The producer registers every block that is in the required run of some "
            "boundary.",
            divergence=Divergence.LOST_HIT,
            clauses=(in_mask, next_boundary),
            symbols=_MASKS,
        ),
        Claim(
            name="mask_keeps_only_reachable_blocks",
            sentence="The producer registers no block that is in no boundary's required run.",
            divergence=Divergence.WASTE,
            clauses=(in_mask, next_boundary),
            symbols=_MASKS,
        ),
        Claim(
            name="retention_keeps_resends_and_extensions",
            sentence="Under sparse retention, too, a resend of a prompt and an extension of it "
            "hit what dense retention would give them.",
            divergence=Divergence.LOST_HIT,
            clauses=(replay_boundary, horizon, in_retained_mask),
            symbols=_RETENTION,
        ),
        Claim(
            name="retention_keeps_siblings",
            sentence="With a retention interval, a sibling hits at least what dense retention "
            "would give it, rounded down to the interval.",
            divergence=Divergence.LOST_HIT,
            clauses=(check_interval, falls_on_boundaries, sibling_boundary, in_retained_mask),
            symbols=_RETENTION,
        ),
        Claim(
            name="retention_keeps_only_promised_blocks",
            sentence="Sparse retention registers no block that no promised hit needs.",
            divergence=Divergence.WASTE,
            clauses=(in_retained_mask,),
            symbols=_RETENTION,
        ),
    )
}
"""Every claim, by name."""

"""Reuse: what requests of users hit on an engine at best, and which part costs the rest."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.picking import picked
from hitproof.spec.groups import Group, GroupKind, geometry, share_eagle
from hitproof.spec.hits import required_run
from hitproof.spec.releases.fine import (
    FINE_KINDS,
    HitGranularity,
    at_hash_units,
    hit_alignment,
    is_fine_grained,
    witness_entries,
)
from hitproof.spec.retention import SPARSE_KINDS, replay_boundary


class Reuse(StrEnum):
    """Whose prompt shares tokens with what was served before."""

    RESEND = "resend"
    """The same prompt again."""
    TURN = "second turn"
    """The prompt, its answer, and a question more."""
    SIBLING = "sibling"
    """The same system prompt, and another question."""
    NEXT_SIBLING = "next sibling"
    """The same system prompt, which two requests had before, and another question."""


class Part(StrEnum):
    """What a hit was lost by."""

    CONFIGURATION = "configuration"
    """An argument, or its default."""
    CHUNKS = "chunk split"
    """The scheduler: no step ended at the boundary, so that a state of it was never computed."""
    POOL = "pool"
    """The pool had too few blocks to keep what was registered."""
    RETENTION = "retention"
    """Sparse retention dropped it."""
    MASK = "mask"
    """The producer did not register it."""
    LOOKUP = "lookup"
    """The lookup did not find what was cached."""
    TIER_UNIT = "tier's unit"
    """What the tier serves ends on multiples of larger chunks."""
    TIER_ROOM = "tier's room"
    """The tier had too little room to keep what it was given."""
    TIER_STORE = "tier's store"
    """The tier did not store it."""
    TIER_LOOKUP = "tier's lookup"
    """The tier did not serve what it has."""


@dataclass(frozen=True)
class CacheSetup:
    """An engine, as far as hits depend on it. Sizes are in tokens.

    Attributes:
        groups: its KV cache groups.
        scheduler_block_size: what the scheduler aligns hits with, unless they are fine-grained.
        hash_block_size: tokens that one hash covers.
        use_eagle: whether lookups match and drop a block for draft layers.
        hash_lookahead: tokens past its block that a hash covers, so that no block is dropped.
        retention: the retention interval; None for dense retention.
        num_blocks: blocks of the pool.
        caching: whether prefix caching is on.
        states_at_steps: whether a Mamba state is kept only where a step ends (*align* mode).
    """

    groups: tuple[Group, ...]
    scheduler_block_size: int
    hash_block_size: int
    use_eagle: bool = False
    hash_lookahead: int = 0
    retention: int | None = None
    num_blocks: int = 1 << 30
    caching: bool = True
    states_at_steps: bool = True

    @cached_property
    def fine(self) -> bool:
        """Whether hits may end inside blocks."""
        return self.caching and is_fine_grained(self.groups, self.hash_block_size)

    @cached_property
    def alignment(self) -> int:
        """What hits are multiples of."""
        if not self.fine:
            return self.scheduler_block_size
        return hit_alignment(self.groups, self.hash_block_size, HitGranularity.FINE)

    @cached_property
    def coarse(self) -> bool:
        """Whether hits could end inside blocks, but for groups of a kind that does not allow it."""
        fitting = [
            group
            for group in self.groups
            if group.kind in FINE_KINDS or group.block_size == self.hash_block_size
        ]
        return not self.fine and is_fine_grained(fitting, self.hash_block_size)

    @property
    def drops_blocks(self) -> bool:
        """Whether lookups match a block past the hit, for draft layers, and drop it."""
        return self.use_eagle and not self.hash_lookahead

    @cached_property
    def looked_up(self) -> tuple[Group, ...]:
        """The groups as a lookup treats them, in hash units where hits are fine-grained."""
        shared = share_eagle(self.groups, self.drops_blocks)
        if not self.fine:
            return shared
        return tuple(at_hash_units(group, self.hash_block_size) for group in shared)

    @cached_property
    def lookahead(self) -> int:
        """Tokens past a hit that must be shared, too, for draft layers."""
        if not self.caching:
            return 0  # block sizes need not fit together
        return self.hash_lookahead or max(
            (
                geometry(group, self.alignment).lookahead * group.block_size
                for group in self.looked_up
                if group.prefix_cacheable
            ),
            default=0,
        )

    def best_hit(self, cap: int, shared: int) -> int:
        """The longest hit, in tokens, that could be kept possible.

        ``cap`` is the most that a lookup may serve, ``shared`` how many tokens of the request
        were computed before.
        """
        found: int = replay_boundary(cap, shared, self.lookahead, self.alignment)
        return found

    def shortest_prompt(self) -> int:
        """The fewest tokens of a prompt whose resend can hit anything."""
        boundary = self.alignment
        return max(boundary + 1, boundary + self.lookahead)


@dataclass(frozen=True)
class Kept:
    """What is cached of a request's tokens in one group.

    Attributes:
        blocks: indices of the blocks that the hash of their end finds.
        entries: indices of the hash units whose hash finds a block.
    """

    blocks: frozenset[int]
    entries: frozenset[int]


@dataclass(frozen=True)
class Before:
    """What happened before a request.

    Attributes:
        kept: what each group has cached of the tokens that it shares.
        ends: how many tokens were computed before and after each step.
        handed_out: blocks that the scheduler handed out.
    """

    kept: tuple[Kept, ...]
    ends: frozenset[int]
    handed_out: int


@dataclass(frozen=True)
class Shortfall:
    """Why a hit is shorter than it could be.

    Attributes:
        part: what it was lost by.
        code: the code of such a divergence; None where it is none.
        group: the index of the group that lacks a block; None where none does.
        sentence: the cause, for people.
    """

    part: Part
    code: Code | None
    group: int | None
    sentence: str

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return picked(self, "part", "code", "group", "sentence")


_MOST_BOUNDARIES = 64
UNREGISTERED = {
    GroupKind.FULL_ATTENTION: Code.PREFIX_BLOCK_UNREGISTERED,
    GroupKind.SLIDING_WINDOW: Code.TAIL_BLOCK_UNREGISTERED,
    GroupKind.CHUNKED_LOCAL: Code.CHUNK_BLOCK_UNREGISTERED,
    GroupKind.MAMBA: Code.STATE_BLOCK_UNREGISTERED,
}


def shortfall(
    setup: CacheSetup, reuse: Reuse, cap: int, hit: int, best: int, before: Before
) -> Shortfall | None:
    """Why a request hits ``hit`` tokens and not ``best``; None where it does.

    ``cap`` is the most that a lookup may serve. Boundaries between the two can be lost by
    different parts: the one that loses most of them is named, and the sentence has each.
    """
    if hit >= best:
        return None
    if not setup.caching:
        return Shortfall(Part.CONFIGURATION, None, None, "prefix caching is off")
    lost = range(best, hit, -setup.alignment)[:_MOST_BOUNDARIES]
    causes = [_cause(setup, reuse, cap, boundary, before) for boundary in lost]
    parts = Counter(each.part for each in causes)
    first = {part: next(each for each in causes if each.part is part) for part in parts}
    main = first[max(parts, key=lambda part: parts[part])]
    return replace(main, sentence="; ".join(each.sentence for each in first.values()))


def _cause(setup: CacheSetup, reuse: Reuse, cap: int, boundary: int, before: Before) -> Shortfall:
    """Why a request does not hit a boundary.

    Where states are kept at a few boundaries, a hit that only a second turn or a first sibling has
    is not promised: there is no code then.
    """
    promised = reuse in (Reuse.RESEND, Reuse.NEXT_SIBLING)
    lacks = next(_missing(setup, boundary, before.kept), None)
    if lacks is None:
        return _not_found(setup, cap, boundary)
    index, block = lacks
    group, unit = setup.groups[index], setup.looked_up[index].block_size
    what = f"group {index} ({group.kind.replace('_', ' ')})"
    if group.kind is GroupKind.MAMBA and setup.states_at_steps and boundary not in before.ends:
        below = max((end for end in before.ends if end < boundary), default=0)
        return Shortfall(
            Part.CHUNKS,
            Code.PROMISED_HIT_MISSED if promised else None,
            index,
            f"{what} has no state as of token {boundary}: the scheduler let no step end there, the "
            f"last one before ended at {below}",
        )
    where = f"tokens {block * unit} to {(block + 1) * unit - 1}"
    if before.handed_out >= setup.num_blocks:
        return Shortfall(
            Part.POOL,
            None,
            index,
            f"{what} lacks {where}: the pool has {setup.num_blocks} blocks, and "
            f"{before.handed_out} were handed out",
        )
    if setup.retention is not None and group.kind in SPARSE_KINDS:
        interval = setup.retention
        kept = f"every {interval} tokens and " if interval else ""
        return Shortfall(
            Part.RETENTION,
            Code.PROMISED_HIT_LOST if promised else None,
            index,
            f"{what} lacks {where}: a retention interval of {interval} keeps what hits need "
            f"{kept}where prompts end",
        )
    ahead = block * unit >= boundary
    code = Code.LOOKAHEAD_BLOCK_UNREGISTERED if ahead else UNREGISTERED[group.kind]
    return Shortfall(
        Part.MASK, code, index, f"{what} lacks {where}: they were computed and not registered"
    )


def _not_found(setup: CacheSetup, cap: int, best: int) -> Shortfall:
    if setup.use_eagle and best + setup.lookahead > cap:
        return Shortfall(
            Part.LOOKUP,
            None,
            None,
            f"the lookahead block of a hit of {best} tokens is cached, but the lookup looks no "
            f"further than token {cap} (policy lookahead_horizon)",
        )
    several = len(setup.groups) > 1
    code = Code.AGREED_HIT_TOO_SHORT if several else Code.HIT_TOO_SHORT
    if best % setup.scheduler_block_size:
        code = Code.FINE_HIT_TOO_SHORT
    return Shortfall(
        Part.LOOKUP,
        code,
        None,
        f"every group has all that a hit of {best} tokens needs, but the lookup does not find it",
    )


def _missing(setup: CacheSetup, length: int, kept: Sequence[Kept]) -> Iterator[tuple[int, int]]:
    """The groups that lack a block of a hit, each with the first one, in blocks or hash units."""
    for index, group in enumerate(setup.looked_up):
        if group.prefix_cacheable:
            shape = geometry(group, setup.alignment)
            for block in required_run(shape, length // group.block_size):
                if not _is_held(setup, index, block, kept[index]):
                    yield index, block
                    break


def _is_held(setup: CacheSetup, index: int, block: int, kept: Kept) -> bool:
    if not setup.fine:
        return block in kept.blocks
    size = setup.hash_block_size
    entries = witness_entries(setup.groups[index], size, block, 1 << 40)
    return not kept.entries.isdisjoint(entries)

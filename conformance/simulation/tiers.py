"""What a tier does not serve of what was computed, and by which part of it."""

from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass

from hitproof.conformance.checks.tier_plays import left_out
from hitproof.conformance.checks.tiers import longest_hit
from hitproof.conformance.explain.reuse import Part, Reuse, Shortfall
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.simulation.causes import Cause
from hitproof.conformance.words import in_blocks, in_tokens
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import required_run
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS


@dataclass(frozen=True)
class TierSetup:
    """A tier, as far as what it serves depends on it.

    Attributes:
        name: its connector.
        layout: the groups, in chunks where it keeps these.
        horizon: how far past the cap its lookups may peek.
        room: chunks or blocks that it has room for; None where another process has it.
        retention: the retention interval of the engine; None for dense retention.
        settled: whether its settings say all that it stores: each block that a hit can need.
    """

    name: str
    layout: Layout
    horizon: LookaheadHorizon
    room: int | None
    retention: int | None
    settled: bool = True

    @property
    def shortest_prompt(self) -> int:
        """The fewest tokens of a prompt of which the tier can serve anything."""
        layout = self.layout
        return layout.alignment + max(1, layout.lookahead_tokens)

    def serves(self, cap: int, shared: int, local: int = 0) -> int:
        """What is served of ``shared`` tokens that are all stored, and ``cap`` at most.

        The pool has the first ``local`` tokens.
        """
        return self.hit(cap, _Until(self.layout, shared), local)

    def hit(self, cap: int, stored: Container[tuple[int, int]], local: int = 0) -> int:
        """What is served of chunks that are stored."""
        return longest_hit(self.layout, cap, local, stored, self.horizon)

    def chunks(self, tokens: int) -> int:
        """The number of whole chunks of ``tokens`` tokens, over all groups."""
        return sum(
            tokens // each.group.block_size
            for each in self.layout.looked_up
            for _ in each.group_ids
        )

    def of_both(self, chunks: Sequence[Set[int]], shared: int) -> set[tuple[int, int]]:
        """The chunks of each group that hold the first ``shared`` tokens in all alike groups."""
        both = _Until(self.layout, shared)
        return {
            (number, chunk)
            for number, looked_up in enumerate(self.layout.looked_up)
            for chunk in set.intersection(*(set(chunks[g]) for g in looked_up.group_ids))
            if (number, chunk) in both
        }


@dataclass(frozen=True)
class _Until:
    """The chunks of the first tokens of a request."""

    layout: Layout
    tokens: int

    def __contains__(self, question: object) -> bool:
        assert isinstance(question, tuple)
        number, chunk = question
        size = self.layout.looked_up[number].group.block_size
        return bool((chunk + 1) * size <= self.tokens)


@dataclass(frozen=True)
class Stored:
    """What happened before a request whose tokens the tier alone has.

    Attributes:
        chunks: what it has of the first request's tokens, group by group.
        ends: how many tokens were computed before and after each step.
        prompt: tokens of the prompt that was computed first.
        computed: tokens of all requests that were.
        sampled: whether the tier was seen to store any sampled token.
    """

    chunks: tuple[frozenset[int], ...]
    ends: frozenset[int]
    prompt: int
    computed: int
    sampled: bool


def tier_shortfall(
    tier: TierSetup, reuse: Reuse, cap: int, shared: int, hit: int, best: int, before: Stored
) -> Shortfall | None:
    """Why a request of which nothing is local is served ``hit`` tokens and not ``best``.

    ``cap`` is the most that a lookup may serve, ``shared`` how many of its tokens were computed
    before. The part that costs most is named, and the sentence has each.
    """
    there = tier.of_both(before.chunks, shared)
    could = max(hit, min(best, tier.serves(cap, shared)))
    has = max(hit, min(could, tier.hit(cap, there)))
    causes = []
    if could < best:
        causes.append((best - could, _unit(tier)))
    if has < could:
        causes.append((could - has, _not_stored(tier, reuse, could, there, before)))
    if hit < has:
        found = f"the tier has all that a hit of {has} tokens needs, but does not serve it"
        causes.append(
            (has - hit, Shortfall(Part.TIER_LOOKUP, Code.TIER_HIT_TOO_SHORT, None, found))
        )
    if not causes:
        return None
    _, main = max(causes, key=lambda each: each[0])
    sentence = "; ".join(each.sentence for _, each in causes)
    return Shortfall(main.part, main.code, main.group, sentence)


def _unit(tier: TierSetup) -> Shortfall:
    layout = tier.layout
    chunk, ahead = layout.blocks_per_chunk, layout.lookahead_tokens
    sentence = (
        f"what the tier serves ends on multiples of {in_tokens(layout.alignment)}"
        + (f", for it keeps chunks of {in_blocks(chunk)}" if chunk > 1 else "")
        + (f", and takes {in_tokens(ahead)} more that are stored" if ahead else "")
    )
    return Shortfall(Part.TIER_UNIT, None, None, sentence)


def _not_stored(
    tier: TierSetup, reuse: Reuse, boundary: int, there: Container[tuple[int, int]], before: Stored
) -> Shortfall:
    layout = tier.layout
    number, chunk = next(_missing(layout, boundary, there))
    looked_up = layout.looked_up[number]
    group, index, size = looked_up.group, looked_up.group_ids[0], looked_up.group.block_size
    what = f"group {index} ({group.kind.replace('_', ' ')})"
    where = f"the tier lacks tokens {chunk * size} to {(chunk + 1) * size - 1} of {what}"
    if tier.room is not None and tier.room < tier.chunks(before.computed):
        room = f"{where}: it has room for {max(0, tier.room)} of {tier.chunks(before.computed)}"
        return Shortfall(Part.TIER_ROOM, None, index, room)
    if group.kind is GroupKind.MAMBA and (chunk + 1) * size not in before.ends:
        return Shortfall(Part.CHUNKS, None, index, f"{where}: no step ended there")
    if (chunk + 1) * size > before.prompt and not before.sampled:
        return Shortfall(Part.TIER_STORE, None, index, f"{where}: it stores prompts alone")
    if tier.retention is not None and group.kind in SPARSE_KINDS:
        kept = f"{where}: a retention interval of {tier.retention} does not promise them"
        return Shortfall(Part.RETENTION, None, index, kept)
    code = left_out(looked_up, chunk, boundary // size).code
    promised = tier.settled and reuse in (Reuse.RESEND, Reuse.NEXT_SIBLING)
    said = "" if tier.settled else ", which its settings may say"
    return Shortfall(
        Part.TIER_STORE, code if promised else None, index, f"{where}: it did not store them{said}"
    )


def tier_levels(
    tier: TierSetup,
    cap: int,
    shared: int,
    local: int,
    stored: Sequence[Set[int]],
    ever: Sequence[Set[int]],
    prompt: int,
    computed: int,
) -> tuple[list[tuple[Cause, int]], Code | None]:
    """What could be served of a request, from the pool's ``local`` tokens and the tier's chunks.

    Each cause comes with what is left without what is lost by it; with the code of a fault, which
    is what remains. ``ever`` are chunks that the tier had when some request had ended. The request
    that shares the tokens had a prompt of ``prompt`` and ``computed`` tokens in all.
    """
    could = tier.serves(cap, shared, local)
    had = tier.of_both(ever, shared)
    kept = tier.hit(cap, had, local)
    has = tier.hit(cap, tier.of_both(stored, shared), local)
    why, code = Cause.TIER_STORE, None
    missing = next(_missing(tier.layout, could, had), None) if kept < could else None
    if missing is not None:
        number, chunk = missing
        looked_up = tier.layout.looked_up[number]
        sampled = (chunk + 1) * looked_up.group.block_size > prompt
        if tier.room is not None and tier.room < tier.chunks(computed):
            why = Cause.TIER_ROOM
        elif not sampled and looked_up.group.kind in SPARSE_KINDS and tier.retention is not None:
            why = Cause.RETENTION
        elif not sampled and tier.settled:
            why, code = Cause.FAULT, left_out(looked_up, chunk).code
    return [(Cause.TIER_UNIT, could), (why, kept), (Cause.TIER_ROOM, has)], code


def _missing(
    layout: Layout, length: int, there: Container[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    for number, looked_up in enumerate(layout.looked_up):
        for chunk in required_run(looked_up.shape, length // looked_up.group.block_size):
            if (number, chunk) not in there:
                yield number, chunk

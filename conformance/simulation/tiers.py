"""What a tier does not serve of what was computed, and by which part of it."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from hitproof.conformance.checks.tier_plays import left_out
from hitproof.conformance.checks.tiers import longest_hit
from hitproof.conformance.explain.reuse import Part, Reuse, Shortfall
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.layouts import Layout
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

    def serves(self, cap: int, shared: int) -> int:
        """What it serves of ``shared`` tokens that are all stored, and ``cap`` at most."""
        return self._hit(cap, _Until(self.layout, shared))

    def _hit(self, cap: int, stored: Container[tuple[int, int]]) -> int:
        return longest_hit(self.layout, cap, 0, stored, self.horizon)


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
    layout, of_both = tier.layout, _Until(tier.layout, shared)
    there = {
        (number, chunk)
        for number, looked_up in enumerate(layout.looked_up)
        for chunk in frozenset.intersection(*(before.chunks[g] for g in looked_up.group_ids))
        if (number, chunk) in of_both
    }
    could = max(hit, min(best, tier.serves(cap, shared)))
    has = max(hit, min(could, tier._hit(cap, there)))
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
    chunks = sum(
        before.computed // each.group.block_size
        for each in layout.looked_up
        for _ in each.group_ids
    )
    if tier.room is not None and tier.room < chunks:
        room = f"{where}: it has room for {max(0, tier.room)} of {chunks}"
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


def _missing(
    layout: Layout, length: int, there: Container[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    for number, looked_up in enumerate(layout.looked_up):
        for chunk in required_run(looked_up.shape, length // looked_up.group.block_size):
            if (number, chunk) not in there:
                yield number, chunk

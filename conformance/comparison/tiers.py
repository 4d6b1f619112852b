"""What a tier stores, asks for and loads, as facts by which two subjects can be compared.

An answer is a text for each group of the layout: "x" for each block that is marked, "." for each
that is not, and "-" for a group whose blocks the tier takes over in another way.
"""

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from typing import Any

from hitproof.conformance.comparison.effects import Effect, of_hits
from hitproof.conformance.comparison.facts import Answer, Fact
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.tiers import Load, TierMasks, TierPlays
from hitproof.conformance.words import count, in_tokens
from hitproof.spec.hits import required_run

STORES, ASKS, LOADS = "tier stores", "tier asks", "tier loads"
TIER_RUNS = (STORES, ASKS, LOADS)
"""The facts about masks of tiers."""

Keep = Callable[[str, tuple[Any, ...], Callable[[], Any], Callable[[Any], Sequence[Answer]]], Any]
"""Runs something, and keeps what it gave as a fact: what it is about, what it was given, what runs,
and how its result is told. Returns the result."""
_ELSEWHERE = "-"


class RecordedMasks:
    """Masks of a tier, which are kept as facts; see `TierMasks`."""

    def __init__(self, masks: TierMasks, keep: Keep) -> None:
        self._masks, self._keep = masks, keep

    def stored(self, start: int, end: int) -> Sequence[Sequence[bool] | None]:
        """See `TierMasks`."""
        given = (start, end)
        found: Sequence[Sequence[bool] | None] = self._keep(
            STORES, given, lambda: self._masks.stored(*given), _masks
        )
        return found

    def asked_for(self, length: int) -> Sequence[Sequence[bool] | None]:
        """See `TierMasks`."""
        found: Sequence[Sequence[bool] | None] = self._keep(
            ASKS, (0, length), lambda: self._masks.asked_for(length), _masks
        )
        return found

    def loaded(self, hit: int) -> Sequence[Sequence[bool] | None]:
        """See `TierMasks`."""
        found: Sequence[Sequence[bool] | None] = self._keep(
            LOADS, (0, hit), lambda: self._masks.loaded(hit), _masks
        )
        return found


class RecordedPlays:
    """Requests beside a tier of chunks, which are kept as facts; see `TierPlays`."""

    def __init__(self, plays: TierPlays, keep: Keep) -> None:
        self._plays, self._keep = plays, keep

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        """See `TierPlays`."""
        found: Sequence[Set[int] | None] = self._keep(
            STORES, (0, *ends), lambda: self._plays.stored(ends), _sets
        )
        return found

    def loaded(self, local: int, length: int) -> Load | None:
        """See `TierPlays`."""
        found: Load | None = self._keep(
            LOADS, (local, length), lambda: self._plays.loaded(local, length), _load
        )
        return found


def _masks(masks: Sequence[Sequence[bool] | None]) -> list[Answer]:
    return [
        _ELSEWHERE if mask is None else "".join("x" if each else "." for each in mask)
        for mask in masks
    ]


def _sets(kept: Sequence[Collection[int] | None]) -> list[Answer]:
    ends = [0 if each is None else max(each, default=-1) + 1 for each in kept]
    pairs = zip(kept, ends, strict=True)
    return _masks([None if own is None else [n in own for n in range(end)] for own, end in pairs])


def _load(load: Load | None) -> list[Answer]:
    return [] if load is None else [load.hit, *_sets(load.blocks)]


def told(fact: Fact) -> str:
    """What was asked of the tier."""
    first, *_, last = fact.given
    if fact.what == ASKS:
        return f"what the tier looks up for a request of {in_tokens(last)}"
    if fact.what == LOADS:
        local = f", of which {first} are local" if first else ""
        return f"what the tier loads of {in_tokens(last)}{local}"
    ends = " to ".join(map(str, fact.given))
    return f"what the tier stores of {count(len(fact.given) - 1, 'step')}, from token {ends}"


def compared(
    layout: Layout, fact: Fact, before: Sequence[Answer]
) -> Iterator[tuple[Effect, str, str]]:
    """What changes between two answers that were returned: the effect, and what each one does."""
    base, head = [*before], [*fact.outcome]
    if fact.what == ASKS and not (base and head):
        return  # one of the two asks for all
    was, now = (next((n for n in side if isinstance(n, int)), 0) for side in (base, head))
    if was != now:
        yield of_hits(was, now, "", ""), f"loads {in_tokens(was)}", f"loads {in_tokens(now)}"
        return
    old, new = (_marked(layout, fact, side) for side in (base, head))
    words = ["; ".join(map(str, each)) or "nothing" for each in (base, head)]
    more, fewer = new - old, old - new
    if fact.what == LOADS:
        # Both serve the hit: what only one loads is needed, or in vain, which `check` judges.
        if more or fewer:
            yield Effect.OTHERS, words[0], words[1]
        return
    one, other = (_possible(layout, fact, each) for each in (old, new))
    for effect, lengths, possible in (
        (Effect.LOST, one - other, ("", "not ")),
        (Effect.GAINED, other - one, ("not ", "")),
    ):
        if lengths:
            least = in_tokens(min(lengths))
            said = [f"a hit of {least} is {word}possible in the tier" for word in possible]
            yield effect, said[0], said[1]
    if more or fewer:
        one_way = Effect.MORE if more else Effect.FEWER
        yield Effect.OTHERS if more and fewer else one_way, words[0], words[1]


def _marked(layout: Layout, fact: Fact, answer: Sequence[Answer]) -> set[tuple[int, int]]:
    """The blocks that are marked, by group; of a group that is served elsewhere, none."""
    start, *_ = fact.given
    masks = [each for each in answer if isinstance(each, str)]
    return {
        (group, (start // layout.shared[group].block_size if fact.what == STORES else 0) + place)
        for group, mask in enumerate(masks)
        for place, mark in enumerate(mask)
        if mark == "x"
    }


def _possible(layout: Layout, fact: Fact, marked: Set[tuple[int, int]]) -> set[int]:
    """The hits whose runs are marked, of a step from the start; what is served elsewhere counts."""
    start, *_, end = fact.given
    elsewhere = {group for group, mask in enumerate(fact.outcome) if mask == _ELSEWHERE}
    return {
        length
        for length in range(layout.alignment, end + 1, layout.alignment)
        if not start
        and all(
            (group, block) in marked
            for each in layout.looked_up
            for group in each.group_ids
            if group not in elsewhere
            for block in required_run(each.shape, length // each.group.block_size)
        )
    }

"""What a tier stores, asks for and loads, as facts by which two subjects can be compared.

An answer is a text for each group of the layout: "x" for each block that is marked, "." for each
that is not, and "-" for a group whose blocks the tier takes over in another way.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from hitproof.conformance.comparison.effects import Effect, of_hits
from hitproof.conformance.comparison.facts import Answer, Call, Fact
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.tiers import Load
from hitproof.conformance.words import count, in_tokens
from hitproof.spec.hits import required_run

STORES, ASKS, LOADS = "tier stores", "tier asks", "tier loads"
TIER_RUNS = (STORES, ASKS, LOADS)
"""The facts about masks of tiers."""

_ELSEWHERE = "-"


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


MASK_CALLS: Mapping[str, Call] = {
    "stored": (STORES, lambda start, end: (start, end), _masks),
    "asked_for": (ASKS, lambda length: (0, length), _masks),
    "loaded": (LOADS, lambda hit: (0, hit), _masks),
}
"""The methods of `TierMasks` whose calls are facts."""
PLAY_CALLS: Mapping[str, Call] = {
    "stored": (STORES, lambda ends: (0, *ends), _sets),
    "loaded": (LOADS, lambda local, length: (local, length), _load),
}
"""Those of `TierPlays`."""


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

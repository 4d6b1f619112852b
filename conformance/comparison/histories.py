"""Whole histories on two managers: where all that can be observed of them begins to differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.comparison.effects import Effect, of_hits
from hitproof.conformance.comparison.records import Decision, Observable, Record
from hitproof.spec.claims import Divergence


@dataclass(frozen=True)
class ManagerRun:
    """One history on one manager.

    Attributes:
        record: what was observed.
        hits: for each lookup its step, the hit that was served, and how that is wrong, if it is.
        waste: how often a block was found registered that no promised hit can use.
        lost: how often a hit was found to be lost, or a block of a promised one not registered.
    """

    record: Record
    hits: tuple[tuple[int, int, str], ...]
    waste: int
    lost: int

    @property
    def history(self) -> str:
        """The history as it was played, as JSON."""
        return self.record.history

    @staticmethod
    def from_answer(answer: Mapping[str, Any]) -> "ManagerRun":
        """From what the worker answers to a replay."""
        return ManagerRun(
            Record.from_json(answer["record"]),
            tuple((each["step"], each["served"], each["divergence"]) for each in answer["lookups"]),
            _times(answer, Divergence.WASTE),
            _times(answer, Divergence.LOST_HIT),
        )


def _times(answer: Mapping[str, Any], divergence: Divergence) -> int:
    found = (f for f in answer["findings"] if f["signature"]["divergence"] == divergence)
    return sum(each["times"] for each in found)


@dataclass(frozen=True)
class Parting:
    """The first step at which one observable differs in two runs of one history.

    Of a scheduler it is what one decides otherwise in the whole history.

    Attributes:
        effect: what it means.
        observable: what differs.
        step: the step, an index.
        cause: the observable that differs first. What differs later, or at the same step though
            further from the cause, may be a consequence.
        tokens: for a hit, by how much it is longer in the head.
        words: what each scheduler does, the base first.
    """

    effect: Effect
    observable: Observable | Decision
    step: int
    cause: Observable | Decision
    tokens: int = 0
    words: tuple[str, ...] = ()

    @property
    def first(self) -> bool:
        """Whether nothing differs before it."""
        return self.observable is self.cause


@dataclass(frozen=True)
class Comparison:
    """Two runs of one history, compared.

    Attributes:
        partings: where they part, for each observable; none if they are the same.
        steps: how many steps were compared.
        stopped: whether later steps could not be compared although nothing differs up to there:
            the scheduler of one release asks for something else.
    """

    partings: tuple[Parting, ...]
    steps: int
    stopped: bool


_LEADS_ELSEWHERE = frozenset(
    {
        Observable.CRASHES,
        Observable.HITS,
        Observable.SHARED,
        Observable.ADMISSION,
        Observable.RESETS,
    }
)
"""Answers by which a scheduler decides what to ask for next."""


def compare(base: ManagerRun, head: ManagerRun) -> Comparison:
    """Where two runs of one history part.

    They are compared up to the first step at which the scheduler asks for something else, since
    then they have different pasts.
    """
    assert base.record.history == head.record.history
    found: dict[Observable, Parting] = {}
    lacking = unreported(base, head)
    pairs = list(zip(base.record.steps, head.record.steps, strict=False))
    for step, (one, other) in enumerate(pairs):
        differing = [o for o in Observable if one.get(o) != other.get(o) and o not in lacking]
        parts = Observable.CALLS in differing
        if parts:
            differing = [] if found.keys() & _LEADS_ELSEWHERE else _leading(differing)
        for observable in differing:
            if observable in found:
                continue
            effect, tokens = _effect(observable, step, base, head)
            if effect is not None:
                cause = next(iter(found), observable)
                found[observable] = Parting(effect, observable, step, cause, tokens)
        if parts:
            return Comparison(tuple(found.values()), step, not found)
    return Comparison(tuple(found.values()), len(pairs), False)


_NOT_IN_ALL = (Observable.COMMON_PREFIX, Observable.CAPPED_HITS, Observable.LOCAL_PREFIXES)
"""What not all releases can be asked for."""


def unreported(base: ManagerRun, head: ManagerRun) -> frozenset[Observable]:
    """What only one of the two releases has, so that it cannot be compared."""
    return frozenset(
        observable
        for observable in _NOT_IN_ALL
        if (_reports(base, observable)) != (_reports(head, observable))
    )


def _reports(run: ManagerRun, observable: Observable) -> bool:
    return any(observable in step for step in run.record.steps)


def _leading(differing: Sequence[Observable]) -> list[Observable]:
    """The answer that made the scheduler ask for something else in the same step."""
    return [observable for observable in differing if observable in _LEADS_ELSEWHERE][:1]


_NEUTRAL = {
    Observable.HIT_TABLES: Effect.TABLES,
    Observable.TABLES: Effect.TABLES,
    Observable.SHARED: Effect.SHARED,
    Observable.CAPPED_HITS: Effect.CAPPED,
    Observable.LOCAL_PREFIXES: Effect.LOCAL_PREFIXES,
    Observable.COPIES: Effect.COPIES,
    Observable.POOL_ORDER: Effect.ORDER,
    Observable.REF_COUNTS: Effect.COUNTS,
    Observable.USAGE: Effect.COUNTS,
    Observable.COMMON_PREFIX: Effect.COUNTS,
    Observable.EVENTS: Effect.EVENTS,
    Observable.STATISTICS: Effect.STATISTICS,
}


def _effect(
    observable: Observable, step: int, base: ManagerRun, head: ManagerRun
) -> tuple[Effect | None, int]:
    """What a difference means, and for hits how many tokens it is."""
    before, after = base.record.amounts[step], head.record.amounts[step]
    match observable:
        case Observable.CRASHES:
            crashed = [observable in run.record.steps[step] for run in (base, head)]
            one = Effect.FIXED if crashed[0] else Effect.CRASH
            return Effect.CRASHES if all(crashed) else one, 0
        case Observable.HITS:
            return _of_hits(step, base, head)
        case Observable.ADMISSION | Observable.RESETS:
            return Effect.REFUSED if after.refused > before.refused else Effect.ADMITTED, 0
        case Observable.FREE_BLOCKS:
            return _by_number(before.free - after.free, _OF_FREE), 0
        case Observable.CACHED:
            if head.lost > base.lost:
                return Effect.LOST, 0
            if base.waste != head.waste:
                return Effect.WASTE if head.waste > base.waste else Effect.WASTE_GONE, 0
            return _by_number(after.registered - before.registered, _OF_CACHED), 0
        case _:
            return _NEUTRAL[observable], 0


_OF_FREE = (Effect.HELD_MORE, Effect.COUNTS, Effect.HELD_FEWER)
_OF_CACHED = (Effect.MORE, Effect.OTHERS, Effect.FEWER)


def _by_number(more: int, effects: Sequence[Effect]) -> Effect:
    return effects[0] if more > 0 else effects[2] if more < 0 else effects[1]


def _of_hits(step: int, base: ManagerRun, head: ManagerRun) -> tuple[Effect | None, int]:
    """The effect of the step's first differing hit; none if one of them looks up more often."""
    one, other = ([each[1:] for each in run.hits if each[0] == step] for run in (base, head))
    for (before, was), (after, now) in zip(one, other, strict=False):
        if before != after:
            return of_hits(before, after, was, now), after - before
    return None, 0

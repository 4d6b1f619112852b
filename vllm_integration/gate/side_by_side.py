"""Histories side by side: the runs of two targets compared, and differences shrunk."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hitproof.conformance.comparison.effects import HARMFUL, Effect
from hitproof.conformance.comparison.histories import ManagerRun, Parting, compare, unreported
from hitproof.conformance.comparison.records import Decision, Observable
from hitproof.conformance.comparison.schedules import ScheduleRun, differences
from hitproof.conformance.comparison.words import shown
from hitproof.conformance.findings.replayed import of_workload, up_to
from hitproof.conformance.histories.plays import Abilities, Origin, Play
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.scheduling.shrinking import shrink as shrink_workload
from hitproof.conformance.words import kinds_of
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.sandbox.driver import WorkerGone

ON_ONE_ONLY = "histories that only one of the two was asked to play"
"""Hits inside blocks are played where they may end there, a policy."""
_HISTORIES_TO_SHRINK = 120
"""Histories that both targets play to shrink one example."""
_SCHEDULES_TO_SHRINK = 60
"""The same of schedulers, which take longer."""


@dataclass(frozen=True)
class Example:
    """The smallest history that was found to show a change.

    Attributes:
        play: the history, written out.
        kinds: the kinds of its groups.
        drops_block: whether lookups drop a block for EAGLE.
        given: the history up to the step that shows it, one fact a line.
        base: what the base does there.
        head: what the head does there.
    """

    play: Play
    kinds: str
    drops_block: bool
    given: tuple[str, ...]
    base: str
    head: str


@dataclass(frozen=True)
class HistoryChange:
    """Histories that show the same effect.

    Attributes:
        effect: what it means.
        observable: what differs.
        histories: how many there are.
        first: in how many of them nothing differs before it.
        by_order: in how many of them another eviction order came first. What follows from that is
            no harm by itself (`conformance.comparison.effects.HARMFUL`).
        tokens: for hits, by how much they are longer in the head, over all of these histories.
        example: the smallest; None where the targets cannot be asked any more.
        of_scheduler: whether they are scheduler histories, compared by what becomes of requests.
    """

    effect: Effect
    observable: Observable | Decision
    histories: int
    first: int
    by_order: int
    tokens: int
    example: Example | None
    of_scheduler: bool = False

    @property
    def harmful(self) -> bool:
        """Whether it counts against the head."""
        return self.effect in HARMFUL and self.histories > self.by_order

    @property
    def counts(self) -> bool:
        """Whether it is a change of its own: harm, or no mere consequence of something else."""
        return bool(self.first) or self.harmful


@dataclass
class HistoriesCompared:
    """What comparing the histories has shown.

    Attributes:
        changes: the effects, the worst first.
        histories: histories of managers that were compared.
        schedulers: scheduler histories that were compared.
        scheduler_steps: steps of them that both planned.
        steps: steps of them that were compared.
        lookups: lookups among them.
        stopped: histories of which the end was not compared: the schedulers of the two releases
            ask for different things, though nothing differs up to there.
        adapted: histories that were compared as both releases can play them; each release also
            played its own form.
        unreported: what only one of the two reports, in some history.
        uncompared: why histories were not compared, and how many.
    """

    changes: list[HistoryChange] = field(default_factory=list)
    histories: int = 0
    schedulers: int = 0
    scheduler_steps: int = 0
    steps: int = 0
    lookups: int = 0
    stopped: int = 0
    adapted: int = 0
    unreported: set[Observable] = field(default_factory=set)
    uncompared: Counter[str] = field(default_factory=Counter)


class Both:
    """The sessions of base and head, to ask both the same."""

    def __init__(self, base: Sessions, head: Sessions) -> None:
        self._sides = base, head
        self._abilities: Abilities | None = None

    @property
    def abilities(self) -> Abilities:
        """What histories can ask of both. Raises `WorkerGone` if one does not say."""
        if self._abilities is None:
            one, other = (
                Abilities.from_json(_answered(side.ask(op="abilities"))["abilities"])
                for side in self._sides
            )
            self._abilities = one.common(other)
        return self._abilities

    def runs(self, play: Play) -> tuple[ManagerRun, ManagerRun]:
        """One history, as both can play it. Raises `WorkerGone` if one does not."""
        base, head = self._replayed(play, None)
        return ManagerRun.from_answer(base), ManagerRun.from_answer(head)

    def schedules(self, play: Play) -> tuple[ScheduleRun, ScheduleRun]:
        """One scheduler history. Raises `WorkerGone` if one does not play it."""
        asked = {"op": "replay", "play": play.as_json(), "record": True}
        base, head = (_answered(side.ask(**asked)) for side in self._sides)
        return ScheduleRun.from_answer(base), ScheduleRun.from_answer(head)

    def partings(self, play: Play) -> Sequence[Parting]:
        """Where both part in a history. Raises `WorkerGone` if one does not play it."""
        if play.of_scheduler:
            return differences(*self.schedules(play))
        return compare(*self.runs(play)).partings

    def values(self, play: Play, step: int, observable: Observable) -> tuple[list[Any], list[Any]]:
        """What both show of one observable at one step. Raises `WorkerGone` if one does not."""
        base, head = (each["values"] for each in self._replayed(play, step))
        return base.get(observable, []), head.get(observable, [])

    def _replayed(self, play: Play, values: int | None) -> list[dict[str, Any]]:
        asked = {"op": "replay", "play": play.as_json(), "abilities": self.abilities.as_json()}
        return [_answered(side.ask(**asked, record=True, values=values)) for side in self._sides]


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    if "cannot" in answer:
        raise WorkerGone(answer["cannot"])
    return answer


_Run = TypeVar("_Run", ManagerRun, ScheduleRun)


def _both_play(both: Both, play: Play, _: ManagerRun) -> tuple[ManagerRun, ManagerRun]:
    return both.runs(play)


def _both_schedule(both: Both, play: Play, other: ScheduleRun) -> tuple[ScheduleRun, ScheduleRun]:
    """Play a history as the head does, but for what the base does not have."""
    adapted = Play(play.origin, play.name, other.history)
    common = both.schedules(adapted)[0].history
    return both.schedules(Play(Origin.WRITTEN, play.name, common))


@dataclass
class _Shown:
    """The histories that show one effect, and the one that shows it first, or is the smallest."""

    parting: Parting
    play: Play
    size: tuple[int, ...]
    histories: int = 0
    first: int = 0
    by_order: int = 0
    tokens: int = 0

    def add(self, parting: Parting, play: Play, size: tuple[int, ...]) -> None:
        """Another of them."""
        self.histories += 1
        self.first += parting.first
        self.by_order += _is_by_order(parting)
        self.tokens += parting.tokens
        if size < self.size:
            self.parting, self.play, self.size = parting, play, size


def _is_by_order(parting: Parting) -> bool:
    """Whether it may follow from another eviction order; it does not where reads are wrong."""
    by_order = parting.cause is Observable.POOL_ORDER and not parting.first
    return by_order and parting.effect not in (Effect.UNSOUND, Effect.CRASH)


_Found = dict[tuple[Effect, bool], _Shown]
"""The histories that show an effect; those of schedulers apart."""


def compared(
    base: Sequence[Played], head: Sequence[Played], both: Both | None
) -> HistoriesCompared:
    """Compare what the targets did in each history. ``both`` plays again what has to be."""
    result, found, by_order = HistoriesCompared(), _Found(), _Found()
    of_base, of_head = ({each.play: each for each in side} for side in (base, head))
    for play in dict.fromkeys((*of_base, *of_head)):
        sides = of_base.get(play), of_head.get(play)
        if play.of_scheduler:
            schedules = _runs(*sides, both, result, lambda each: each.schedule, _both_schedule)
            if schedules is not None:
                _compare_schedules(play, schedules, found, result)
        else:
            runs = _runs(*sides, both, result, lambda each: each.run, _both_play)
            if runs is not None:
                _compare_runs(play, runs, found, by_order, result)
    _balance(by_order, found)
    order = list(Effect)
    for effect, of_scheduler in sorted(found, key=lambda key: (order.index(key[0]), key[1])):
        shows = found[effect, of_scheduler]
        change = HistoryChange(
            effect,
            shows.parting.observable,
            shows.histories,
            shows.first,
            shows.by_order,
            shows.tokens,
            None,
            of_scheduler,
        )
        if both is not None and change.counts:
            change = replace(change, example=_example(shows.parting, shows.play, both))
        result.changes.append(change)
    return result


def _compare_schedules(
    play: Play, runs: tuple[ScheduleRun, ScheduleRun], found: _Found, result: HistoriesCompared
) -> None:
    result.schedulers += 1
    result.scheduler_steps += min(len(run.plans) for run in runs)
    written = Play(Origin.WRITTEN, play.name, runs[0].history)
    size = (len(written.text),)
    for parting in differences(*runs):
        shown = found.setdefault((parting.effect, True), _Shown(parting, written, size))
        shown.add(parting, written, size)


def _compare_runs(
    play: Play,
    runs: tuple[ManagerRun, ManagerRun],
    found: _Found,
    by_order: _Found,
    result: HistoriesCompared,
) -> None:
    comparison = compare(*runs)
    result.unreported |= unreported(*runs)
    result.histories += 1
    result.steps += comparison.steps
    result.lookups += sum(step < comparison.steps for step, _, _ in runs[0].hits)
    result.stopped += comparison.stopped
    for parting in {each.effect: each for each in reversed(comparison.partings)}.values():
        is_by_order = _is_by_order(parting)
        size = int(not parting.first), int(is_by_order), parting.step
        other_hit = parting.observable is Observable.HITS and is_by_order
        shown_by = by_order if other_hit else found
        shown = shown_by.setdefault((parting.effect, False), _Shown(parting, play, size))
        shown.add(parting, play, size)


def _balance(by_order: _Found, found: _Found) -> None:
    """Another eviction order costs some request a hit and another one not; their sum counts."""
    if not by_order:
        return
    tokens = sum(each.tokens for each in by_order.values())
    costs = tokens < 0
    wanted = Effect.LOST if costs else Effect.GAINED
    shows = by_order.get((wanted, False)) or next(iter(by_order.values()))
    found[Effect.ORDER_COSTS if costs else Effect.ORDER_PAYS, False] = _Shown(
        shows.parting,
        shows.play,
        shows.size,
        histories=sum(each.histories for each in by_order.values()),
        tokens=tokens,
    )


def _runs(
    base: Played | None,
    head: Played | None,
    both: Both | None,
    result: HistoriesCompared,
    of: Callable[[Played], _Run | None],
    again: Callable[[Both, Play, _Run], tuple[_Run, _Run]],
) -> tuple[_Run, _Run] | None:
    """The runs of one history, if they can be compared; else ``result`` says why not.

    ``of`` has the run of what was played. ``again`` plays a history of which the targets have
    different forms as both can play it.
    """
    if base is None or head is None:
        result.uncompared[ON_ONE_ONLY] += 1
        return None
    one, other = of(base), of(head)
    if one is None or other is None:
        result.uncompared["histories that could not be judged on both"] += 1
        return None
    if one.history == other.history:
        return one, other
    if both is None:
        result.uncompared["histories that the two releases play in different forms"] += 1
        return None
    try:
        runs = again(both, base.play, other)
    except WorkerGone as gone:
        result.uncompared[f"histories in a form that both can play: {gone}"] += 1
        return None
    result.adapted += 1
    return runs


def _example(parting: Parting, play: Play, both: Both) -> Example | None:
    """The smallest history that shows it; None if it does not show again."""

    def again(shown: Play) -> Parting | None:
        try:
            partings = both.partings(shown)
        except WorkerGone:
            return None
        wanted = parting.effect, parting.observable, parting.cause
        return next((p for p in partings if (p.effect, p.observable, p.cause) == wanted), None)

    try:
        if play.of_scheduler:
            return _example_of_scheduler(play, again)
        history = play.history(both.abilities)
        first = replace(history, steps=history.steps[: parting.step + 1])
        shows = lambda h: again(Play.written(h, play.name)) is not None  # noqa: E731
        small = shrink(first, shows, _HISTORIES_TO_SHRINK)
        written = Play.written(small, play.name)
        shown_at = again(written)
        if shown_at is None:
            return None
        observable = Observable(parting.observable)
        base, head = both.values(written, shown_at.step, observable)
    except WorkerGone:
        return None
    return Example(
        written,
        kinds_of(small.engine.groups),
        small.engine.use_eagle_block_drop,
        tuple(up_to(small, shown_at.step)),
        shown(observable, base, head),
        shown(observable, head, base),
    )


def _example_of_scheduler(play: Play, again: Callable[[Play], Parting | None]) -> Example | None:
    shows = lambda h: again(Play.written_workload(h, "")) is not None  # noqa: E731
    small = shrink_workload(play.workload(), shows, _SCHEDULES_TO_SHRINK)
    written = Play.written_workload(small, "")
    shown_at = again(written)
    if shown_at is None:
        return None
    deployment = small.deployment
    kinds, given = kinds_of(deployment.groups), tuple(of_workload(small))
    return Example(written, kinds, deployment.has_draft_head, given, *shown_at.words)

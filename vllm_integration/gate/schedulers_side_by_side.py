"""Scheduler histories side by side: what two targets do with the same requests, shrunk."""

from collections.abc import Sequence
from dataclasses import dataclass

from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.comparison.schedules import Difference, ScheduleRun, differences
from hitproof.conformance.findings.replayed import of_workload
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.shrinking import shrink
from hitproof.conformance.words import kinds_of
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.gate.side_by_side import (
    ON_ONE_ONLY,
    Both,
    Example,
    HistoriesCompared,
    HistoryChange,
)
from hitproof.vllm_integration.sandbox.driver import WorkerGone

_HISTORIES_TO_SHRINK = 60
"""Histories that both targets play to shrink one example."""


@dataclass
class _Shown:
    """The histories that show one effect, and the smallest of them."""

    difference: Difference
    run: ScheduleRun
    histories: int = 0
    tokens: int = 0


def compare_schedulers(
    base: Sequence[Played], head: Sequence[Played], both: Both | None, result: HistoriesCompared
) -> None:
    """Add to ``result`` what the schedulers of both did otherwise."""
    found: dict[Effect, _Shown] = {}
    of_base, of_head = (
        {each.play: each for each in side if each.play.of_scheduler} for side in (base, head)
    )
    for play in dict.fromkeys((*of_base, *of_head)):
        runs = _runs(of_base.get(play), of_head.get(play), both, result)
        if runs is None:
            continue
        result.schedulers += 1
        result.scheduler_steps += min(len(run.plans) for run in runs)
        for each in differences(*runs):
            shown = found.setdefault(each.effect, _Shown(each, runs[0]))
            shown.histories += 1
            shown.tokens += each.tokens
            if len(runs[0].history) < len(shown.run.history):
                shown.difference, shown.run = each, runs[0]
    result.changes += [_change(shown, both) for shown in found.values()]
    order = list(Effect)
    result.changes.sort(key=lambda change: order.index(change.effect))


def _runs(
    base: Played | None, head: Played | None, both: Both | None, result: HistoriesCompared
) -> tuple[ScheduleRun, ScheduleRun] | None:
    """The runs of one history, if they can be compared; else ``result`` says why not."""
    if base is None or head is None:
        result.uncompared[ON_ONE_ONLY] += 1
        return None
    one, other = base.schedule, head.schedule
    if one is None or other is None:
        result.uncompared["histories that could not be judged on both"] += 1
        return None
    if one.history == other.history:
        return one, other
    if both is None:
        result.uncompared["histories that the two releases play in different forms"] += 1
        return None
    try:
        # As the head plays it, but for what the base does not have.
        adapted = Play(base.play.origin, base.play.name, other.history)
        common = both.schedules(adapted)[0].history
        runs = both.schedules(Play(Origin.WRITTEN, base.play.name, common))
    except WorkerGone as gone:
        result.uncompared[f"histories in a form that both can play: {gone}"] += 1
        return None
    result.adapted += 1
    return runs


def _change(shown: _Shown, both: Both | None) -> HistoryChange:
    difference = shown.difference
    example = None if both is None else _example(difference, shown.run, both)
    return HistoryChange(
        difference.effect,
        difference.decision,
        shown.histories,
        shown.histories,
        0,
        shown.tokens,
        example,
        of_scheduler=True,
    )


def _example(difference: Difference, run: ScheduleRun, both: Both) -> Example | None:
    """The smallest history that shows it; None if it does not show again."""

    def again(history: SchedulerHistory) -> Difference | None:
        try:
            found = differences(*both.schedules(Play.written_workload(history, "")))
        except WorkerGone:
            return None
        return next((each for each in found if each.effect is difference.effect), None)

    first = read_workload(run.history)
    small = shrink(first, lambda history: again(history) is not None, _HISTORIES_TO_SHRINK)
    shows = again(small)
    if shows is None:
        return None
    return Example(
        Play.written_workload(small, ""),
        kinds_of(small.deployment.groups),
        small.deployment.has_draft_head,
        tuple(of_workload(small)),
        *shows.words,
    )

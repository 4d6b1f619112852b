"""Whose turn it is beside a KV connector, and who runs when what it waited for is loaded."""

from dataclasses import replace
from typing import Literal, TypeAlias

import pytest

from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Pause,
    SchedulerHistory,
)
from hitproof.conformance.scheduling.steps import Situation, StepRules
from hitproof.conformance.subject.schedulers import Loading, Plan, Scheduled, Transfers
from hitproof.spec.groups import Group, GroupKind

Policy: TypeAlias = Literal["fcfs", "priority"]
FULL = Group(GroupKind.FULL_ATTENTION, 4)
DEPLOYMENT = Deployment((FULL,), 400, 64, 40, max_num_seqs=4, connector=Connector())
NEW, ALL = Pause(0, 9, finishes_running=True), Pause(0, 9)
ARRIVALS = {
    name: Arrival(tuple(range(start, start + 8)), (1,), priority=priority)
    for name, start, priority in (("a", 10, 1), ("b", 20, 0), ("c", 30, 1))
}
LATE = "admitted-out-of-turn"
LEFT = "step-leaves-work(what=loaded)"
PAUSED = "step-exceeds-limit(limit=pause)"


def wrong(
    admitted: str,
    loaded: str = "",
    begun: str = "",
    known: str = "abc",
    policy: Policy = "fcfs",
    pause: Pause | None = None,
    free: int = 4,
) -> set[str]:
    """What is wrong with a step that admits some, beside some that hold what was loaded."""
    deployment = replace(DEPLOYMENT, policy=policy)
    engine = EngineConfiguration((FULL,), 400, 4, 64, 40)
    rules = StepRules(deployment, engine, ARRIVALS, 1, 0)
    scheduled = tuple(Scheduled(n, 0, 8, 0, ((7, 8),), True, True) for n in admitted)
    loads = {name: Loading(0, 8, ((1, 2),)) for name in begun}
    now = Situation(
        (),
        tuple(admitted),
        {name: 8 for name in ARRIVALS if name in known},
        free,
        free,
        loading=len(begun),
        loaded=frozenset(loaded),
        arrived=tuple(ARRIVALS),
        pause=pause,
    )
    found = rules.judge(Plan(scheduled, transfers=Transfers(loads, {})), now)
    return {str(one.signature.defect) for one in found}


@pytest.mark.parametrize(
    ("admitted", "loaded", "begun", "known", "policy", "found"),
    [
        ("ab", "", "", "abc", "fcfs", set()),
        ("b", "", "", "abc", "fcfs", {LATE}),
        ("b", "", "", "abc", "priority", set()),
        ("a", "", "", "abc", "priority", {LATE}),
        # Who holds blocks may come first, but in the same order.
        ("c", "c", "", "abc", "fcfs", set()),
        ("c", "bc", "", "abc", "fcfs", {LATE}),
        ("a", "ab", "", "abc", "priority", {LATE}),
        # To begin to load is to be taken, too.
        ("", "", "b", "ac", "fcfs", {LATE}),
        ("a", "", "b", "ac", "fcfs", set()),
    ],
)
def test_nobody_is_taken_before_who_comes_first(
    admitted: str, loaded: str, begun: str, known: str, policy: Policy, found: set[str]
) -> None:
    assert wrong(admitted, loaded, begun, known, policy) == found


@pytest.mark.parametrize(
    ("loaded", "pause", "free", "found"),
    [
        ("", None, 4, set()),
        ("a", None, 4, set()),  # there may be no room
        ("a", None, 100, {LEFT}),
        ("a", NEW, 100, {LEFT}),
        ("a", ALL, 100, set()),
        ("", NEW, 100, set()),
    ],
)
def test_who_holds_what_was_loaded_runs(
    loaded: str, pause: Pause | None, free: int, found: set[str]
) -> None:
    # With that many blocks it is only a request that was never loaded that may wait.
    assert wrong("", loaded, known="a", pause=pause, free=free) >= found
    assert LEFT in found or LEFT not in wrong("", loaded, known="a", pause=pause, free=free)


def test_while_the_engine_is_paused_who_had_begun_goes_on() -> None:
    assert not wrong("a", "a", known="a", pause=NEW)
    assert wrong("a", "a", known="a", pause=ALL) == {PAUSED}
    assert wrong("a", known="a", pause=NEW) == {PAUSED}
    assert wrong("", begun="a", known="", pause=NEW) <= {PAUSED}
    assert wrong("", begun="b", known="a", pause=NEW) >= {PAUSED}


def test_failed_blocks_are_reported_before_the_load_is_over() -> None:
    arrival = Arrival((1, 2, 3, 4, 5), (6,), loads=4, load_steps=2, invalid_blocks=(0,))
    early = replace(arrival, invalid_steps=1)
    history = SchedulerHistory(DEPLOYMENT, {"a": early}, (NEW,))
    assert read_workload(write_workload(history)) == history
    for each in (replace(early, invalid_steps=3), replace(early, invalid_blocks=())):
        with pytest.raises(HistoryError, match="invalid_steps of request a"):
            SchedulerHistory(DEPLOYMENT, {"a": each})

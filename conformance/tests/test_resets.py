"""Resets of the prefix cache: right answers, and each that is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    HostPool,
    Reset,
    SchedulerHistory,
)
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.scheduling.resets import judge_reset
from hitproof.conformance.scheduling.shrinking import shrink
from hitproof.conformance.subject.schedulers import PoolState, WasReset
from hitproof.conformance.tests.test_scheduling import DEPLOYMENT, REQUESTS, Subject

EMPTY = PoolState({}, 9, frozenset())
CACHED = PoolState({(0, "a"): (1,)}, 9, frozenset())
OFFLOADED = replace(EMPTY, offloaded={(0, "a"): (1,)})
PLAIN, WHOLE = Reset(1), Reset(1, reset_connector=True)
DONE = WasReset(True, (True,))


@pytest.mark.parametrize(
    ("wanted", "was", "held", "after", "found"),
    [
        (PLAIN, WasReset(True), False, EMPTY, []),
        (PLAIN, WasReset(False), True, CACHED, []),
        (PLAIN, WasReset(True), False, OFFLOADED, []),
        (WHOLE, DONE, False, EMPTY, []),
        (WHOLE, WasReset(True, (None,)), False, EMPTY, []),
        (WHOLE, WasReset(False, (True,)), True, CACHED, []),
        (WHOLE, WasReset(False, (False,)), False, OFFLOADED, []),
        (PLAIN, WasReset(True), True, CACHED, ["unsound: reset-answered-wrong(how=done)"]),
        (PLAIN, WasReset(False), False, EMPTY, ["waste: reset-answered-wrong(how=refused)"]),
        (PLAIN, WasReset(True), False, CACHED, ["unsound: cached-after-reset"]),
        (PLAIN, DONE, False, EMPTY, ["lost hit: connector-reset-wrong(how=unwanted)"]),
        (WHOLE, WasReset(False), True, CACHED, ["unsound: connector-reset-wrong(how=not-asked)"]),
        (WHOLE, DONE, False, OFFLOADED, ["unsound: connector-reset-wrong(how=kept)"]),
        (
            WHOLE,
            WasReset(True, (False,)),
            False,
            EMPTY,
            ["unsound: reset-answered-wrong(how=done)"],
        ),
    ],
)
def test_each_wrong_reset_is_found(
    wanted: Reset, was: WasReset, held: bool, after: PoolState, found: list[str]
) -> None:
    wrong = (each.signature for each in judge_reset(wanted, was, held, after))
    assert [f"{each.divergence}: {each.defect}" for each in wrong] == found


def test_without_a_connector_there_is_nothing_to_reset() -> None:
    assert not list(judge_reset(WHOLE, WasReset(True), False, EMPTY, connected=False))
    (wrong,) = judge_reset(WHOLE, WasReset(False), False, EMPTY, connected=False)
    assert str(wrong.signature.defect) == "reset-answered-wrong(how=refused)"


@pytest.mark.parametrize(
    ("fault", "defects"),
    [
        ("", set()),
        ("kept", {"cached-after-reset"}),
        ("says done", {"reset-answered-wrong(how=done)"}),
        ("says refused", {"reset-answered-wrong(how=refused)"}),
    ],
)
def test_a_reset_is_done_where_nothing_is_held(fault: str, defects: set[str]) -> None:
    resets = (Reset(1), Reset(2, reset_running_requests=True), Reset(90))
    outcome = play(SchedulerHistory(DEPLOYMENT, REQUESTS, resets=resets), Subject(fault))
    assert {str(found.signature.defect) for found in outcome.causes} == defects
    assert {life.ended for life in outcome.lives.values()} == {"finished"}


def test_resets_are_removed_where_they_show_nothing() -> None:
    deployment = replace(DEPLOYMENT, connector=Connector())
    resets = (Reset(1), Reset(2, reset_running_requests=True, reset_connector=True), Reset(9))
    history = SchedulerHistory(deployment, REQUESTS, resets=resets)
    small = shrink(history, lambda each: any(one.reset_connector for one in each.resets))
    assert [replace(each, at=0) for each in small.resets] == [Reset(0, reset_connector=True)]


@pytest.mark.parametrize(
    ("changes", "request_", "reset", "reason"),
    [
        ({}, Arrival((1,), (2,), session="s"), PLAIN, "with sessions"),
        ({"host": HostPool(9)}, Arrival((1,), (2,)), PLAIN, "and host pools"),
        ({}, Arrival((1,), (2,)), Reset(1, connector_refuses=True), "omit connector_refuses"),
        (
            {"connector": Connector(offloads=9)},
            Arrival((1,), (2,)),
            replace(WHOLE, connector_refuses=True),
            "omit connector_refuses",
        ),
    ],
)
def test_resets_that_are_not_judged_are_refused(
    changes: dict[str, Any], request_: Arrival, reset: Reset, reason: str
) -> None:
    deployment: Deployment = replace(DEPLOYMENT, **changes)
    with pytest.raises(HistoryError, match=reason):
        SchedulerHistory(deployment, {"a": request_}, resets=(reset,))

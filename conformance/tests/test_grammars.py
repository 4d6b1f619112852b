"""Requests with grammars: they wait for these, and each token and draft is one that they allow."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workloads import Arrival, Connector, SchedulerHistory
from hitproof.conformance.scheduling.grammars import Grammars
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.scheduling.runner import Constrained
from hitproof.conformance.scheduling.shrinking import shrink
from hitproof.conformance.subject.schedulers import Masks
from hitproof.conformance.tests.editing import cases
from hitproof.conformance.tests.test_scheduling import DEPLOYMENT, Subject

REQUESTS = {
    "a": Arrival(tuple(range(10)), (100, 101, 102), grammar_steps=3),
    "b": Arrival(tuple(range(20, 26)), (103, 104)),
    "c": Arrival(tuple(range(10)), (105, 106), after="a", grammar_steps=0),
}
HISTORY = SchedulerHistory(DEPLOYMENT, REQUESTS)


@pytest.mark.parametrize(
    ("fault", "defects"),
    [
        ("", set()),
        ("starts at once", {"grammar-ignored(how=early)"}),
        ("masks nothing", {"grammar-ignored(how=mask)"}),
        ("masks late", {"grammar-ignored(how=state)"}),
        ("never sees it", {"request-never-finishes(way=stuck)"}),
    ],
)
def test_a_request_is_served_as_its_grammar_allows(fault: str, defects: set[str]) -> None:
    outcome = play(HISTORY, Subject(fault))
    assert {str(found.signature.defect) for found in outcome.causes} >= defects
    assert bool(outcome.causes) == bool(defects), outcome.causes
    if not fault:
        ran = [name for plan in outcome.plans for name, _, _ in plan]
        assert list(dict.fromkeys(ran)) == ["b", "a", "c"]
        assert outcome.lives["c"].hit == 8


@pytest.mark.parametrize(
    ("drafts", "valid", "wrong"), [(2, 2, []), (0, 0, []), (2, 1, ["grammar-ignored(how=drafts)"])]
)
def test_drafts_that_are_rejected_are_not_verified(
    drafts: int, valid: int, wrong: list[str]
) -> None:
    found = Grammars(HISTORY).verified({"a": Constrained(1, drafts, valid)})
    assert [str(each.signature.defect) for each in found] == wrong


@cases("left, wrong")
def test_drafts_are_checked_late(left: dict[str, int], wrong: list[str]) -> None:
    found = Grammars(HISTORY).checked(left, {"a": Constrained(1, 3, 2)})
    assert [str(each.signature.defect) for each in found] == wrong


@pytest.mark.parametrize(
    ("masks", "wrong"),
    [
        (Masks((4, 5, 6), 2), []),
        (Masks((4, 5, None), 1), []),  # what follows a draft that is no token is not delivered
        (Masks((4, 5, 6, None), 3), []),  # nor after one that the grammar rejects
        (Masks((4, None, None), 2), ["grammar-ignored(how=mask)"]),
        (Masks((4, 5), 2), ["grammar-ignored(how=mask)"]),
        (Masks((4, 4, 4), 2), ["grammar-ignored(how=state)"]),
        (None, ["grammar-ignored(how=mask)"]),
    ],
)
def test_each_token_is_masked(masks: Masks | None, wrong: list[str]) -> None:
    given = {} if masks is None else {"a": masks}
    found = Grammars(HISTORY).masked(given, {"a": Constrained(4, 3, 2)})
    assert [str(each.signature.defect) for each in found] == wrong


def test_a_history_loses_grammars_that_show_nothing() -> None:
    requests = {"a": replace(REQUESTS["a"], valid_drafts=(1,))}
    small = shrink(SchedulerHistory(DEPLOYMENT, requests), lambda _: True)
    assert small.requests["a"].grammar_steps is None
    needed = shrink(
        SchedulerHistory(DEPLOYMENT, requests),
        lambda history: history.requests["a"].grammar_steps is not None,
    )
    assert needed.requests["a"].grammar_steps == 0
    assert not needed.requests["a"].valid_drafts


@pytest.mark.parametrize(
    ("deployment", "request_"),
    [
        ({}, {"session": "s"}),
        ({"connector": Connector()}, {}),
        ({"ranks": 2, "async_scheduling": True, "v2_model_runner": True}, {}),
    ],
)
def test_grammars_are_not_judged_beside_some(
    deployment: dict[str, Any], request_: dict[str, Any]
) -> None:
    request = replace(REQUESTS["a"], **request_)
    with pytest.raises(HistoryError, match="not judged with"):
        SchedulerHistory(replace(DEPLOYMENT, **deployment), {"a": request})
    with pytest.raises(HistoryError, match="set grammar_steps"):
        Arrival((1,), (2,), valid_drafts=(1,))

"""What `hitproof diff` makes of two reports, without any target."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.comparison.facts import Fact
from hitproof.conformance.comparison.histories import Run
from hitproof.conformance.comparison.records import Amounts, Observable, Record
from hitproof.conformance.findings.footprints import Footprint
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.records import Reach
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.gate.diff import Diff, difference
from hitproof.vllm_integration.gate.obligations import Played, Task
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci.github import diff_annotations
from hitproof.vllm_integration.reports.diff import diff_json, markdown, print_diff, summary
from hitproof.vllm_integration.reports.html.pages import diff_page
from hitproof.vllm_integration.tests import reports
from hitproof.vllm_integration.verdict import Verdict

_HIT = Observable.HITS


def run(
    *steps: dict[Observable, str], hits: tuple[tuple[int, int, str], ...] = (), history: str = "h"
) -> Run:
    """A run of that many steps, with what was observed at each."""
    return Run(Record(history, list(steps), [Amounts()] * len(steps)), hits, 0, 0)


def report(*runs: Run, of: Report | None = None) -> Report:
    """A report on histories that were observed, one for each of the runs."""
    plays = [Play(Origin.GENERATED, f"1:{number}") for number in range(len(runs))]
    played = [Played(play, 1, 1, run=each) for play, each in zip(plays, runs, strict=True)]
    return replace(of or reports.conforming(), played=played)


SAME = run({_HIT: "x"}, hits=((0, 4, ""),))


def rendered(diff: Diff) -> list[str]:
    """The comparison in every format."""
    file = StringIO()
    print_diff(diff, Console(file=file, width=1000), False)
    page, data = diff_page(diff, "hitproof diff"), json.dumps(diff_json(diff))
    return [file.getvalue(), page, data, markdown(diff), diff_annotations(diff)]


def test_what_was_compared_is_counted() -> None:
    diff = difference(report(SAME, SAME), report(SAME, SAME))
    assert diff.verdict is Verdict.CONFORMS
    assert not diff.changed
    assert "no behavioural change" in summary(diff)
    assert f"{len(CLAIMS)} obligations proved on both" in summary(diff)
    assert "2 histories of 2 steps with 2 lookups" in summary(diff)
    assert diff_json(diff)["coverage"]["histories"] == 2
    assert Observable.POOL_ORDER in diff_json(diff)["coverage"]["observables"]


@pytest.mark.parametrize(
    ("observable", "effect", "verdict"),
    [
        (Observable.POOL_ORDER, Effect.ORDER, Verdict.CONFORMS),
        (Observable.EVENTS, Effect.EVENTS, Verdict.CONFORMS),
        (Observable.CRASHES, Effect.CRASH, Verdict.DIVERGES),
    ],
)
def test_what_differs_in_a_history_is_a_change(
    observable: Observable, effect: Effect, verdict: Verdict
) -> None:
    diff = difference(report(SAME), report(run({_HIT: "x", observable: "y"}, hits=SAME.hits)))
    assert diff.changed
    assert diff.verdict is verdict
    for text in rendered(diff):
        assert effect in text
        assert "no behavioural change" not in text.lower()


@pytest.mark.parametrize(
    ("head", "effect"),
    [((0, 0, ""), Effect.LOST), ((0, 8, ""), Effect.GAINED), ((0, 8, "unsound"), Effect.UNSOUND)],
)
def test_hits_of_histories(head: tuple[int, int, str], effect: Effect) -> None:
    diff = difference(report(SAME), report(run({_HIT: "y"}, hits=(head,))))
    (change,) = diff.histories.changes
    assert (change.effect, change.tokens) == (effect, head[1] - 4)
    assert (diff.verdict is Verdict.DIVERGES) is (effect is not Effect.GAINED)


@pytest.mark.parametrize(
    ("tokens", "effect"), [((-4, 8), Effect.ORDER_PAYS), ((-8, 4), Effect.ORDER_COSTS)]
)
def test_hits_that_another_eviction_order_costs_and_gains_are_summed_up(
    tokens: tuple[int, int], effect: Effect
) -> None:
    order = Observable.POOL_ORDER
    base = run({order: "a"}, {_HIT: "x"}, hits=((1, 8, ""),))
    heads = [run({order: "b"}, {_HIT: "y"}, hits=((1, 8 + more, ""),)) for more in tokens]
    diff = difference(report(base, base), report(*heads))
    changed = {change.effect: change for change in diff.histories.changes if change.counts}
    assert changed.keys() == {Effect.ORDER} | ({effect} - {Effect.ORDER_PAYS})
    (hits,) = (change for change in diff.histories.changes if change.effect is effect)
    assert hits.tokens == sum(tokens)
    assert (diff.verdict is Verdict.DIVERGES) is (effect is Effect.ORDER_COSTS)
    assert Effect.LOST not in changed


def test_histories_that_cannot_be_compared_leave_a_question() -> None:
    for base, head in (
        (report(SAME), report(SAME, SAME)),
        (report(SAME), reports.unplayed()),
        (report(SAME), report(replace(SAME, record=replace(SAME.record, history="other")))),
        (report(SAME), reports.not_replayed()),
    ):
        for diff in (difference(base, head), difference(head, base)):
            assert diff.verdict is Verdict.INCONCLUSIVE
            assert all("no behavioural change" not in text.lower() for text in rendered(diff))


def test_schedulers_that_ask_for_something_else_are_no_change_and_are_counted() -> None:
    first = {Observable.CALLS: "a"}
    head = run(first, {Observable.CALLS: "c", _HIT: "y"}, hits=((1, 8, ""),))
    diff = difference(report(run(first, {Observable.CALLS: "b"})), report(head))
    assert not diff.changed
    assert (diff.histories.stopped, diff.histories.steps) == (1, 1)
    assert "ask for different things" in summary(diff)


def test_what_only_one_of_the_two_has_is_a_change() -> None:
    first, *others = reports.conforming().obligations
    absent = replace(first, status=Status.NOT_APPLICABLE, detail="the code is older")
    older = report(SAME, of=replace(reports.conforming(), obligations=[absent, *others]))
    for diff in (difference(older, report(SAME)), difference(report(SAME), older)):
        assert diff.changed
        assert diff.verdict is Verdict.CONFORMS
        assert all("the code is older" in text for text in rendered(diff))


def test_what_only_one_of_the_two_reports_is_a_change_and_no_cause() -> None:
    common, order = Observable.COMMON_PREFIX, Observable.POOL_ORDER
    diff = difference(report(run({common: "a", order: "b"})), report(run({order: "c"})))
    assert [(c.effect, c.first) for c in diff.histories.changes] == [(Effect.ORDER, 1)]
    same = difference(report(run({common: "a", order: "b"})), report(run({order: "b"})))
    assert same.changed
    assert all("only one of the two reports common prefixes" in t for t in rendered(same))


def test_what_only_one_of_the_two_was_asked_is_a_question() -> None:
    first, *others = reports.conforming().obligations
    fewer = report(SAME, of=replace(reports.conforming(), obligations=others))
    task = Task(first.claim, first.configuration)
    fact = Fact("registered", ((4,),), [1])
    more = replace(report(SAME), facts={task: [fact]})
    for other in (fewer, more):
        for diff in (difference(other, report(SAME)), difference(report(SAME), other)):
            assert diff.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("size", "digest", "harm"),
    [(3, "b", True), (1, "b", False), (2, "b", False), (None, "", False)],
)
def test_faults_of_both_that_reach_further(size: int | None, digest: str, harm: bool) -> None:
    base, head = (report(SAME, of=reports.diverging()) for _ in range(2))
    (finding, *_) = base.judgement.new

    def reaching(size: int, digest: str) -> Reach:
        return Reach(finding.signature, reports.CONFIGURATION, Footprint(size, digest))

    base.reached = [reaching(2, "a")]
    head.reached = base.reached if size is None else [reaching(size, digest)]
    diff = difference(base, head)
    assert diff.changed is (size is not None)
    assert (diff.verdict is Verdict.DIVERGES) is harm
    texts = rendered(diff)
    told = "less diverges" if size == 1 else "more diverges" if size == 3 else "answers differ"
    assert all((told in text) is (size is not None) for text in (*texts[:2], *texts[3:]))
    assert [each["harmful"] for each in diff_json(diff)["footprints"]] == [harm] * diff.changed

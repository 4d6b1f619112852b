"""What `hitproof diff` makes of two reports, without any target."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from hitproof.conformance.comparison.changes import Change
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.comparison.facts import Fact
from hitproof.conformance.comparison.histories import ManagerRun
from hitproof.conformance.comparison.records import Amounts, Observable, Record
from hitproof.conformance.findings.footprints import Footprint, Judged
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.records import Reach
from hitproof.conformance.scope.configurations import Configuration
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff, difference
from hitproof.vllm_integration.gate.obligations import Played, Task
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.side_by_side import ON_ONE_ONLY
from hitproof.vllm_integration.reports.ci.github import diff_annotations
from hitproof.vllm_integration.reports.diff import diff_json, markdown, print_diff, style, summary
from hitproof.vllm_integration.reports.html.pages import diff_page
from hitproof.vllm_integration.tests import in_process, reports
from hitproof.vllm_integration.verdict import Verdict

_HIT = Observable.HITS


def run(
    *steps: dict[Observable, str], hits: tuple[tuple[int, int, str], ...] = (), history: str = "h"
) -> ManagerRun:
    """A run of that many steps, with what was observed at each."""
    return ManagerRun(Record(history, list(steps), [Amounts()] * len(steps)), hits, 0, 0)


def report(*runs: ManagerRun, of: Report | None = None) -> Report:
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
    ("size", "digest", "harm"), [(3, "b", True), (1, "b", False), (2, "b", True), (None, "", False)]
)
@pytest.mark.parametrize("judged", [reports.CONFIGURATION, Play(Origin.GENERATED, "1:0")])
def test_faults_of_both_that_reach_further(
    size: int | None, digest: str, harm: bool, judged: Judged
) -> None:
    base, head = (report(SAME, of=reports.diverging()) for _ in range(2))
    (finding, *_) = base.judgement.new

    def reaching(size: int, digest: str) -> Reach:
        return Reach(finding.signature, judged, Footprint(size, digest))

    base.reached = [reaching(2, "a")]
    head.reached = base.reached if size is None else [reaching(size, digest)]
    diff = difference(base, head)
    assert diff.changed is (size is not None)
    assert (diff.verdict is Verdict.DIVERGES) is harm
    texts = rendered(diff)
    told = "less diverges" if size == 1 else "more diverges" if size == 3 else "answers differ"
    assert all((told in text) is (size is not None) for text in (*texts[:2], *texts[3:]))
    assert [each["harmful"] for each in diff_json(diff)["footprints"]] == [harm] * diff.changed


def test_a_fault_reaches_further_only_where_both_played_the_same() -> None:
    (finding, *_) = reports.diverging().judgement.new
    play = Play(Origin.GENERATED, "1:0")
    other = replace(SAME, record=replace(SAME.record, history="other"))
    for run_of_head, changed in ((SAME, True), (other, False)):
        base = report(SAME, of=reports.diverging())
        head = report(run_of_head, of=reports.diverging())
        base.reached = [Reach(finding.signature, reports.CONFIGURATION, Footprint(1, "a"))]
        head.reached = [*base.reached, Reach(finding.signature, play, Footprint(1, "a"))]
        assert bool(difference(base, head).reaches) is changed


def test_both_are_judged_in_the_cases_of_the_ledger() -> None:
    shown = in_process.judged(in_process.KEEPS)
    entry = in_process.known(shown)
    assert isinstance(entry.configuration, Configuration)
    smaller = replace(entry.configuration, num_blocks=entry.configuration.num_blocks - 1)
    case = replace(entry, configuration=smaller)
    assert smaller not in {each.configuration for each in shown.obligations}
    judged = in_process.judged(in_process.KEEPS, cases=(case,))
    assert smaller in {each.configuration for each in judged.obligations}
    assert entry.signature in {each.signature for each in judged.judgement.new}


def faulty() -> Report:
    """A base with one fault, of a mask."""
    return reports.diverging()


def with_status(of: Report, status: Status, detail: str = "") -> Report:
    """A head without findings, of which what shows the base's fault ends in another way."""
    shows = {(o.claim, o.configuration) for o in faulty().obligations if o.signatures}
    return replace(
        of,
        obligations=[
            replace(o, status=status, detail=detail, signatures=())
            if (o.claim, o.configuration) in shows
            else o
            for o in of.obligations
        ],
    )


def test_a_fault_is_gone_only_where_the_head_was_judged() -> None:
    same = difference(faulty(), faulty())
    assert (same.gone, same.unjudged, len(same.shared)) == ([], [], 1)
    fixed = difference(faulty(), reports.conforming())
    assert (len(fixed.gone), fixed.unjudged) == (1, [])

    head = with_status(reports.conforming(), Status.INCONCLUSIVE, "it takes too long")
    hung = difference(faulty(), head)
    assert (hung.gone, [reason for _, reason in hung.unjudged]) == ([], ["it takes too long"])
    assert hung.verdict is Verdict.INCONCLUSIVE
    for shown in rendered(hung):
        assert "it takes too long" in shown
    for shown in (rendered(hung)[0], markdown(hung), diff_annotations(hung)):
        assert "became inconclusive (1): it takes too long: mask_keeps_every_reachable_" in shown
        assert "not gone, since the head is not judged there: lost hit: sliding window" in shown
        assert "that are fixed" not in shown

    older = with_status(reports.conforming(), Status.NOT_APPLICABLE, "it predates masks")
    assert [reason for _, reason in difference(faulty(), older).unjudged] == ["it predates masks"]


def test_where_only_the_head_raises_a_fault_is_not_gone() -> None:
    (crash,) = reports.replayed_history().judgement.new
    head = with_status(reports.conforming(), Status.REFUTED)
    raises = replace(
        head,
        obligations=[
            replace(o, signatures=(crash.signature,)) if o.status is Status.REFUTED else o
            for o in head.obligations
        ],
    )
    ((_, reason),) = difference(faulty(), raises).unjudged
    assert reason == "the head raises an exception there"
    assert difference(raises, raises).unjudged == []

    base, head = reports.replayed_history(), reports.conforming()
    assert difference(base, head).gone == list(base.judgement.new)
    ((_, reason),) = difference(base, replace(head, played=[])).unjudged
    assert reason == ON_ONE_ONLY


def lines_of(number: int) -> Report:
    """A head of which that many obligations are inconclusive, each for a reason of its own."""
    head = reports.conforming()
    unsettled = [
        replace(o, status=Status.INCONCLUSIVE, detail=f"reason {n}") if n < number else o
        for n, o in enumerate(head.obligations)
    ]
    return replace(head, obligations=unsettled)


def test_what_became_inconclusive_is_shown_whole() -> None:
    diff = difference(reports.conforming(), lines_of(9))
    assert len(diff.became_unsettled) == 9
    for shown in rendered(diff):
        assert all(f"reason {number}" in shown for number in range(9))
    both = difference(lines_of(9), lines_of(9))
    assert not both.became_unsettled
    assert "became" not in rendered(both)[0]
    assert "reason 8" not in rendered(both)[0]


def test_the_verdict_is_the_first_line() -> None:
    for base, head, verdict in (
        (report(SAME), report(SAME), "conforms, no behavioural change"),
        (faulty(), with_status(faulty(), Status.PROVED), "inconclusive, "),
        (reports.conforming(), faulty(), "diverges, the head is worse: 1 fault introduced"),
    ):
        diff = difference(base, head)
        text, _, data, table, log = rendered(diff)
        for first in (text.splitlines()[0], log.splitlines()[0]):
            assert first.startswith(f"vLLM fork -> fork: {verdict}")
        assert table.splitlines()[0].startswith(f"### Prefix cache: `fork` → `fork`: {verdict}")
        assert next(iter(json.loads(data))) == "verdict"


def test_blocks_cached_fewer_are_not_green_where_hits_are_lost() -> None:
    def group(effect: Effect) -> ChangeGroup:
        return ChangeGroup(Change(effect, reports.CONFIGURATION, ("given",), "a", "b"), 1, ())

    fewer, lost, gained = map(group, (Effect.FEWER, Effect.LOST, Effect.GAINED))
    alone = Diff(reports.conforming(), reports.conforming(), [fewer])
    both = Diff(reports.conforming(), reports.conforming(), [lost, fewer])
    assert style(gained, alone) == "bold green"
    assert style(fewer, alone) == "bold"
    assert style(fewer, both) == style(lost, both) == "bold red"
    assert "blocks cached fewer; hits are lost by it" in rendered(both)[0]
    assert [each["harmful"] for each in diff_json(both)["changes"]] == [True, True]

"""Restricted runs judge what is asked for, and never read as if all was judged."""

import json
from contextlib import closing

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate.obligations import histories, tasks
from hitproof.vllm_integration.gate.selection import NothingSelected, Selection
from hitproof.vllm_integration.gate.sessions import Session, Sessions
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.ci.summary import markdown
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.reports.printing import drawn
from hitproof.vllm_integration.tests.in_process import (
    BROKEN,
    KEEPS,
    ONLY,
    WINDOWS,
    InProcess,
    judged,
    known,
)
from hitproof.vllm_integration.verdict import Verdict
from hitproof.vllm_integration.worker import main


def test_a_claim_is_checked_alone() -> None:
    report = judged(ONLY)
    assert {each.claim for each in report.obligations} == {ONLY}
    assert not report.judgement.new
    assert report.restricted is not None
    assert report.restricted.others > 0
    assert (report.verdict, report.verdict_label) == (Verdict.CONFORMS, "restricted")


@pytest.mark.parametrize(
    "only",
    [
        *(KEEPS, "mask_keeps_*", "lookahead-block-unregistered", "lookahead-*"),
        "lookahead-block-unregistered(block=lookahead, group=any)",
    ],
)
def test_what_is_asked_for_is_found(only: str) -> None:
    report = judged(only)
    codes = {finding.signature.code for finding in report.judgement.new}
    assert codes == {Code.LOOKAHEAD_BLOCK_UNREGISTERED}
    assert report.restricted is not None
    assert report.restricted.others == 0
    assert report.verdict is Verdict.DIVERGES


def test_findings_of_other_codes_are_counted() -> None:
    report = judged("prefix-block-unregistered")
    assert not report.judgement.new
    assert {each.claim for each in report.obligations} == {KEEPS}
    assert any(each.status is Status.REFUTED for each in report.obligations)
    assert report.restricted is not None
    assert "of other claims or codes not shown" in report.restricted.describe()


def test_a_configuration_need_not_be_of_the_profile() -> None:
    mine = single_group(GroupKind.SLIDING_WINDOW, 1, 2, 2, True, 5)
    assert mine not in {each.configuration for each in tasks(Profile.QUICK, ())}
    report = judged(KEEPS, configurations=(json.dumps(mine.as_json()),))
    assert [each.configuration for each in report.obligations] == [mine]
    assert report.judgement.new


def test_histories_are_named_like_configurations() -> None:
    report = judged(configurations=("generated history 1:1",))
    names = {each.play.describe() for each in report.played}
    assert not report.obligations
    assert "generated history 1:1" in names
    assert all("generated history 1:1" in each for each in names)
    assert report.verdict_label == "restricted"


def test_any_claim_may_break_in_a_history() -> None:
    selection = Selection(("usage-wrong",))
    plays = histories(Profile.QUICK, (), "fine")
    assert not selection.claims
    assert not selection.tasks(tasks(Profile.QUICK, ()))
    assert selection.histories(plays) == plays


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(("hit-to-long",)), "'hit-to-long'; did you mean hit-too-long"),
        (
            Selection(("zzz*",)),
            "no claim, sanity rule or code is called 'zzz*'; see `hitproof explain`",
        ),
        (Selection((), ("nowhere",)), "nothing is judged with --configuration 'nowhere'"),
        (Selection((), ("{}",)), "--configuration {} is not a configuration"),
        (Selection((), ("{nothing",)), "is not a configuration"),
        (
            Selection(("retention_keeps_junctions",), ("full attention, block size 4, align*",)),
            "nothing is judged with --only retention_keeps_junctions --configuration",
        ),
    ],
)
def test_nothing_selected_is_an_error(selection: Selection, said: str) -> None:
    with pytest.raises(NothingSelected) as error:
        selection.check_any(tasks(Profile.QUICK, ()), histories(Profile.QUICK, (), "fine"))
    assert said in str(error.value)


def test_a_run_that_checks_nothing_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        main,
        "_check",
        lambda _, message: {
            "statuses": dict.fromkeys((message["claim"],), "not applicable"),
            "evidence": [],
            "footprints": [],
            "paths": 0,
            "states": 0,
            "runs": 0,
            "detail": "older",
        },
    )
    report = judged(KEEPS)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.open_questions == ["nothing was judged: the release predates what was asked for"]
    assert "inconclusive, nothing was judged" in drawn(lambda c: print_report(report, c, False))


def test_a_restricted_run_calls_no_entry_stale() -> None:
    found = judged(KEEPS)
    entry, record = known(found), Record.of("0.33.0", Profile.QUICK, found.reached)
    again = judged(KEEPS, entries=(entry,), record=record)
    assert (len(again.judgement.known), again.verdict_label) == (1, "restricted")
    for only, subject in ((KEEPS, BrokenSubject()), (ONLY, BROKEN)):
        report = judged(only, subject=subject, entries=(entry,), record=record)
        assert (report.judgement.stale, report.shrunk, report.judgement.known) == ((), (), ())
        assert report.verdict_label == "restricted"


def test_a_known_divergence_that_has_grown_is_found() -> None:
    found = judged(KEEPS)
    record = Record.of("0.33.0", Profile.QUICK, found.reached[:1])
    for only in (KEEPS, "known-divergence-grown", "lookahead-block-unregistered"):
        report = judged(only, entries=(known(found),), record=record)
        assert {each.signature.code for each in report.judgement.new} == {
            Code.KNOWN_DIVERGENCE_GROWN
        }


def test_the_first_new_finding_ends_the_run() -> None:
    whole, first = judged(KEEPS), judged(KEEPS, exit_first=True)
    assert whole.restricted is not None
    assert first.restricted is not None
    assert first.restricted.stopped
    assert 0 < first.restricted.checks[0] < whole.restricted.checks[0]
    assert first.verdict is Verdict.DIVERGES
    entries = tuple(
        Entry(each.signature, known(whole).configuration, SpecifierSet(""), "so", "", "so")
        for each in whole.judgement.new
    )
    to_the_end = judged(KEEPS, exit_first=True, entries=entries)
    assert to_the_end.restricted is not None
    assert not to_the_end.restricted.stopped
    assert to_the_end.restricted.checks == whole.restricted.checks


def test_what_failed_is_tried_first() -> None:
    worker = InProcess(BrokenSubject())
    todo = Selection((KEEPS, "eagle_needs*"), (WINDOWS,)).tasks(tasks(Profile.QUICK, ()))
    play = Play(Origin.GENERATED, "1:1")
    last = place_of(todo[-1].configuration)
    with closing(Sessions(1, lambda: Session(lambda: worker, 60.0))) as sessions:
        first = {last, place_of(play)}
        outcomes, played = sessions.settle(todo, [play], lambda *_: None, first=first)
    early = [each for each in todo if place_of(each.configuration) in first]
    asked = [each.get("configuration", "play") for each in worker.asked]
    assert sorted(map(str, asked[: len(early) + 1])) == sorted(
        [*(str(each.configuration.as_json()) for each in early), "play"]
    )
    assert (len(outcomes), len(played)) == (len(todo), 1)


def test_every_format_says_what_was_left_out() -> None:
    report = judged(ONLY)
    assert report.restricted is not None
    said = report.restricted.describe()
    assert said.startswith(f"restricted run, --only {ONLY} --configuration {WINDOWS!r}: ")
    every, plays = tasks(Profile.QUICK, ()), histories(Profile.QUICK, (), "fine")
    judged_of, claims = (
        f"of {len(every)} checks and 0 of {len(plays)} histories judged",
        len(CLAIMS),
    )
    assert f"{judged_of}; {claims - 1} of {claims} claims" in said
    assert drawn(lambda console: print_report(report, console, False)).splitlines()[0] == said
    assert github.annotations(report, False).splitlines()[0] == said
    assert markdown(report).splitlines()[0] == said
    printed = report_json(report)
    assert (printed["verdict"], printed["exit_code"]) == ("restricted", 0)
    assert printed["restricted"]["note"] == said
    assert set(printed["restricted"]["claims_left_out"]) == CLAIMS.keys() - {ONLY}
    (run,) = sarif.sarif(report)["runs"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert (note["level"], note["message"]["text"]) == ("note", said)
    assert run["automationDetails"]["id"] == "hitproof-restricted/"
    page = check_page(report, "hitproof check")
    assert "<strong>restricted</strong>" in page
    assert "conforms" not in page.partition("<body")[2].partition("<nav")[0]
    suites = junit.junit(report)
    assert 'failures="0" errors="0"' in suites
    assert f"{claims - 1} of {claims} claims left out" in suites
    for text in (*map(str, printed.values()), markdown(report), github.annotations(report, False)):
        assert "conforms" not in text


def test_the_rest_of_a_shared_obligation_is_no_failure() -> None:
    report = judged("prefix-block-unregistered")
    assert "refuted by what is not shown" not in junit.junit(judged(KEEPS))
    assert 'failures="0" errors="0"' in junit.junit(report)

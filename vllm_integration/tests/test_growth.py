"""What the gate says of a known divergence that grows, moves, shrinks or has no footprint."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.specifiers import SpecifierSet
from rich.console import Console

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import Entry, judge
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.commands import footprints
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.growth import held_start_ups
from hitproof.vllm_integration.gate.obligations import Played, histories, of_entries
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.check_json import report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.reports.text import print_report
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import Copy, limits, release
from hitproof.vllm_integration.tests.reports import (
    CONFIGURATION,
    grown,
    grown_elsewhere,
    held,
    known,
    shrunk,
    unrecorded,
)
from hitproof.vllm_integration.verdict import Verdict

HISTORY = """{"engine": {"groups": [{"kind": "full_attention", "block_size": 1}],
 "num_gpu_blocks": %d, "hash_block_size": 1, "max_model_len": 2}, "requests": {}, "steps": []}"""

UNEVEN = Play(Origin.SCENARIOS, "1:302")
"""Blocks of two sizes, of which none is a multiple of the other."""


def text(report: Report) -> str:
    file = StringIO()
    print_report(report, Console(file=file, width=300), verbose=False)
    return file.getvalue()


def test_a_known_divergence_within_its_footprint_conforms() -> None:
    report = held(lambda now: now)
    assert report.verdict is Verdict.CONFORMS
    assert report.record is not None
    assert not report.judgement.new
    assert not report.shrunk


@pytest.mark.parametrize("make", [grown, grown_elsewhere])
def test_what_has_grown_is_a_new_finding_in_every_format(make: object) -> None:
    assert callable(make)
    report: Report = make()
    extent = "elsewhere" if make is grown_elsewhere else "more"
    assert report.verdict is Verdict.DIVERGES
    assert {f.signature.code for f in report.judgement.new} == {Code.KNOWN_DIVERGENCE_GROWN}
    first = report.judgement.new[0]
    assert dict(first.signature.defect.parameters)["extent"] == extent
    assert first.grown is not None
    assert first.grown.places == (place_of(CONFIGURATION),)
    told = first.signature.pattern
    for shown in (text(report), check_page(report, ""), github.annotations(report, False)):
        assert "a known divergence regressed" in shown
    assert f"known-divergence-grown(extent={extent}" in text(report)
    assert "on record, now" in text(report)
    (result, *_) = [r for r in sarif.sarif(report)["runs"][0]["results"] if "level" in r]
    assert told in result["message"]["text"]
    assert "suppressions" not in result
    suites = ElementTree.fromstring(junit.junit(report))
    failed = [case for case in suites.iter("testcase") if case.find("failure") is not None]
    assert [case.get("name", "").startswith(CONFIGURATION.describe()) for case in failed]
    assert json.dumps(report_json(report)["findings"]).count("known-divergence-grown")


def test_what_a_policy_has_judged_as_another_configuration_has_the_place_of_its_task() -> None:
    flagged = replace(CONFIGURATION, num_blocks=CONFIGURATION.num_blocks + 1)
    report = held(lambda _: None, place=flagged)
    (found,) = report.judgement.new
    assert found.grown is not None
    assert found.grown.places == (place_of(flagged),)


def test_other_answers_in_as_many_cases_are_a_finding() -> None:
    report = held(lambda now: Footprint(now.size, "other"))
    assert report.verdict is Verdict.DIVERGES
    assert "now gives other answers" in text(report)


def test_less_asks_to_record_anew_and_says_what_is_fixed() -> None:
    report = shrunk()
    assert report.verdict is Verdict.DIVERGES
    assert not report.judgement.new
    assert "footprint too large" in text(report)
    assert "update the footprints with hitproof footprints" in text(report)
    assert place_of(CONFIGURATION) in text(report)
    assert report_json(report)["shrunk_divergences"]
    assert "footprint too large" in check_page(report, "")
    assert "footprint_too_large" in junit.junit(report)
    assert any(
        result["ruleId"] == "footprint_too_large"
        for result in sarif.sarif(report)["runs"][0]["results"]
    )


def test_a_known_divergence_without_a_record_is_inconclusive() -> None:
    report = unrecorded()
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "no footprints of fork are recorded" in text(report)
    assert "record it" in text(report)
    assert report_json(report)["footprints_detail"] in report.open_questions
    assert known().verdict is Verdict.CONFORMS  # nothing was held against anything


def test_a_profile_that_was_not_recorded_is_inconclusive_where_it_shows_more() -> None:
    report = held(lambda _: None, profile="default")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "are not of the profile quick" in text(report)
    more = held(lambda now: Footprint(now.size - 1, ""), profile="default")
    assert more.verdict is Verdict.DIVERGES  # its configuration is on record all the same


def test_a_baseline_is_named_and_findings_are_held_against_it() -> None:
    report = grown()
    assert report.baseline == "0.33.0"
    assert "baseline 0.33.0: known divergences may not exceed its footprints" in text(report)
    assert "of 2 new findings are not in the baseline" in text(report) or "new finding" in text(
        report
    )
    told = report_json(report)
    assert told["footprints"] == {"of": "0.33.0", "profiles": ["quick"]}
    assert all(each["new_against_baseline"] for each in told["findings"])
    report.target = Target("0.33.0", Path("/x"), "0.33.0")
    assert not report.baseline


def test_the_remedy_names_the_command_and_the_ledger(tmp_path: Path) -> None:
    target = Target("0.33.0", None, "0.33.0")
    said = footprints.remedy_for(target, tmp_path / "own.toml")
    assert f"hitproof footprints 0.33.0 --ledger {tmp_path / 'own.toml'}" in said
    assert "--baseline" in said


def test_what_stands_for_an_entry_that_could_not_be_judged_leaves_it_unsettled() -> None:
    """On record an entry's divergence shows in another history than its own."""
    signature = known().judgement.known[0][0].signature
    own, other = (Play(Origin.WRITTEN, name, HISTORY % size) for name, size in (("a", 2), ("b", 3)))
    entries = [
        Entry(each, play, SpecifierSet(""), "it was so", "", "it was so")
        for each, play in ((signature, own), (replace(signature, eagle=not signature.eagle), other))
    ]
    shown = {name_of(signature): {place_of(other): Footprint(1, "a")}}
    record = Record("0.9.0", frozenset({"quick"}), shown)
    assert [play for _, play in of_entries(entries)] == [own, other]
    stands = of_entries(entries, record)
    assert stands == [(signature, other), (entries[1].signature, other)]
    assert own not in histories(Profile.QUICK, entries, "fine", record)
    assert judge([], entries).stale == tuple(entries)
    assert judge([], entries, {each for each, play in stands if play == other}).stale == ()


def test_start_up_that_refuses_more_than_on_record_is_inconclusive() -> None:
    refused = Played(UNEVEN, refused="AssertionError: no multiple")
    found = Played(UNEVEN, refused="ValueError", signatures=(shrunk().reached[0].signature,))
    record = Record("0.33.0", frozenset({"quick"}), {})
    (held_to_it,) = held_start_ups([refused], record)
    assert held_to_it.unsettled == (
        "start-up refuses a deployment that 0.33.0 accepts: AssertionError: no multiple"
    )
    assert held_start_ups([found, Played(UNEVEN)], record) == [found, Played(UNEVEN)]
    for same in (None, replace(record, refused=frozenset({place_of(UNEVEN)}))):
        assert held_start_ups([refused], same) == [refused]


@pytest.mark.long
@pytest.mark.release
def test_start_up_that_no_longer_takes_the_multiple_of_block_sizes_is_seen(
    broken_copy: Copy,
) -> None:
    lcm = "scheduler_block_size = math.lcm(*group_block_sizes)"
    broken = broken_copy("0.33.0", {lcm: "scheduler_block_size = max(group_block_sizes)"})
    for root, refuses in ((release("0.33.0"), False), (broken, True)):
        target = Target("it", root, "0.33.0")
        with opened(Run(target, Profile.QUICK, limits=limits())) as sessions:
            played = sessions.settle([], [UNEVEN], lambda *_: None)[1]
        report = Report(target, Profile.DEFAULT, played=played)
        assert bool(report.refused) is refuses
        record = Record.of("0.33.0", "default", [], report.refused)
        assert held_start_ups(played, record) == list(played)

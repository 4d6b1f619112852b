"""The survey: BUGS.md is what it prints, and a real release confirms it."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger import records
from hitproof.conformance.ledger.ledger import CauseStatus, LedgerError
from hitproof.conformance.ledger.ledger import load as load_ledger
from hitproof.conformance.ledger.records import Reach
from hitproof.conformance.tests.editing import cases
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.bundled import FAULTS, LEDGER, SURVEY
from hitproof.vllm_integration.reports.survey import checks, document, grouped, table
from hitproof.vllm_integration.survey.faults import Evidence, Fault, load
from hitproof.vllm_integration.survey.survey import (
    Checked,
    Release,
    Sighting,
    of_report,
    read,
    seen_in,
    span,
    this_state,
    to_json,
    verdict,
)
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import hitproof, release
from hitproof.vllm_integration.tests.reports import replayed_history
from hitproof.vllm_integration.verdict import Verdict

HOUSE = Path(__file__).resolve().parents[2]
survey, causes = cache(read), cache(load)
on_record = cache(lambda: records.read(LEDGER))


def test_bugs_is_what_is_printed() -> None:
    assert (HOUSE / "BUGS.md").read_text() == document(survey(), causes())


def test_every_finding_is_documented_and_every_fault_was_found() -> None:
    releases, faults = survey(), causes()
    assert verdict(releases, faults) is Verdict.CONFORMS
    for fault in faults:
        for signature in fault.signatures:
            assert any(
                fault.explains(sighting.signature, release.version)
                for release in releases
                for sighting in release.sightings
                if sighting.signature == signature
            ), (fault.title, signature)


def test_numbers_are_unique_and_every_text_says_something() -> None:
    faults = causes()
    numbers = sorted(n for fault in faults for n in (fault.number, *fault.formerly))
    assert numbers == sorted({*numbers})
    assert len({fault.title for fault in faults}) == len(faults)
    for fault in faults:
        for text in (fault.title, fault.impact, fault.trigger, fault.reason):
            assert text.strip() == text, fault.title
            assert text, fault.title
        assert fault.found_by, fault.title
        assert re.fullmatch(
            r"(https://github\.com/vllm-project/vllm/(issues|pull)/\d+)?", fault.upstream
        )


@pytest.mark.parametrize("field", ["number", "title", "impact", "trigger", "reason", "found_by"])
def test_a_fault_that_lacks_a_field_is_refused(field: str, tmp_path: Path) -> None:
    text = FAULTS.read_text()
    first = text[text.index("[[fault]]") : text.index("[[fault]]", text.index("[[fault]]") + 1)]
    path = tmp_path / "faults.toml"
    path.write_text(first)
    assert len(load(path)) == 1
    path.write_text(first.replace(f"\n{field} = ", "\nother = "))
    with pytest.raises(LedgerError, match=f"has no '{field}'"):
        load(path)


def test_an_unknown_way_of_finding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(FAULTS.read_text().replace('"lockstep"', '"a hunch"'))
    with pytest.raises(LedgerError, match="a hunch"):
        load(path)


def test_open_and_fixed_come_from_the_survey() -> None:
    releases, faults = survey(), causes()
    groups = grouped(releases, faults).values()
    assert sorted(itertools.chain(*groups), key=lambda fault: fault.number) == list(faults)
    none = replace(releases[-1], sightings=())
    *still, fixed = grouped([*releases[:-1], none], faults).values()
    assert not any(still)
    assert fixed
    newest = seen_in(releases[-1:], faults)
    for group in groups:
        worst = [
            min(SEVERITY.index(each.signature.divergence) for each in found)
            for fault in group
            for found in newest.get(fault.number, {}).values()
        ]
        assert worst == sorted(worst)


def test_a_fault_of_one_release_says_only() -> None:
    releases, faults = survey(), causes()
    (alone,) = (each for each in releases if each.version == "0.19.1")
    assert "seen in 0.19.1 only" in document([alone], faults)
    assert "seen in 0.14.0 to 0.33.0" in document(releases, faults)


def test_the_releases_of_a_class_and_gaps_between_releases_are_said() -> None:
    releases, faults = survey(), causes()
    versions = [release.version for release in releases]
    assert span(versions, releases) == f"{versions[0]} to {versions[-1]}"
    assert span([*versions[:3], versions[4]], releases) == (
        f"{versions[0]} to {versions[2]} and {versions[4]}"
    )
    text, found_in = document(releases, faults), seen_in(releases, faults)
    for fault in faults:
        seen = found_in[fault.number]
        found = re.search(rf'name="{fault.number}"></a>.*\n\n\*(.*)\.\*', text)
        assert found is not None
        for divergence in Divergence:
            shown = [
                v
                for v, each in seen.items()
                if divergence in {s.signature.divergence for s in each}
            ]
            assert (divergence in found[1]) is bool(shown)
            assert not shown or span(shown, releases) in found[1]


@pytest.mark.parametrize(
    ("status", "reach", "section"),
    [
        (CauseStatus.FAULT, "any model", "Open in 0.33.0"),
        (CauseStatus.FAULT, "None known: no model does", "Open, but reached by no known"),
        (CauseStatus.CHOICE, "any model", "Upstream's choices in 0.33.0"),
        (CauseStatus.LIMIT, "any model", "Limits of the design in 0.33.0"),
    ],
)
def test_only_faults_are_listed_as_faults(status: CauseStatus, reach: str, section: str) -> None:
    releases, faults = survey(), causes()
    fault = grouped(releases, faults)["Open in 0.33.0"][0]
    evidence = Evidence("0.33.0", "vllm/v1/core/x.py", 7, "on\npurpose")
    told = replace(fault, status=status, evidence=(evidence,), reach=reach)
    releases = releases[-1:]
    others = [told if each is fault else each for each in faults]
    groups = grouped(releases, others)
    (title,) = [title for title, group in groups.items() if told in group]
    assert title.startswith(section)
    text = document(releases, others)
    assert "`vllm/v1/core/x.py:7` of 0.33.0: \u201con purpose\u201d\n" in text
    assert f"**Reached by.** {reach}" in text
    marked = f"{fault.title}](BUGS.md#{fault.number}) ({status})" in table(releases, others)
    assert marked is (status is not CauseStatus.FAULT)


_IMPLIED = {
    Divergence.UNSOUND: r"wrong (output|content)",
    Divergence.CRASH: r"crash|\bdies\b|engine (ends|hangs)|does not start",
    Divergence.WRONG_DRAFTS: r"wrong drafts|fewer drafts are accepted",
    Divergence.LOST_HIT: r"lost hit",
    Divergence.WASTE: r"\bwast",
    Divergence.WRONG_METRIC: r"wrong (metric|statistic)",
}
"""Words that say of what class a fault is."""


def contradictions(fault: Fault, classes: Set[str]) -> Iterator[str]:
    """What the texts of a fault say that the record should, or that it does not."""
    for text in (fault.title, fault.impact, fault.trigger, fault.reason):
        yield from re.findall(r"\b0\.\d\d\S*", text)
    yield from re.findall(rf"^(?:{'|'.join(Divergence)}|wrong output|hang)s?:", fault.impact, re.I)
    for divergence, words in _IMPLIED.items():
        if divergence not in classes:
            said = re.finditer(words, f"{fault.title} {fault.impact}", re.I)
            yield from (each[0] for each in said)


def test_texts_name_no_release_and_no_class_that_the_record_has_not() -> None:
    faults = causes()
    found = seen_in(survey(), faults)
    for fault in faults:
        classes = {s.signature.divergence for each in found[fault.number].values() for s in each}
        assert not [*contradictions(fault, classes)], fault.number
    for entry in load_ledger(LEDGER):
        assert not re.search(r"\b0\.\d\d", entry.reason), entry.reason


@cases("changes, told")
def test_a_text_that_contradicts_the_record_is_noticed(
    changes: dict[str, Any], told: list[str]
) -> None:
    fault = replace(causes()[0], **dict.fromkeys(("title", "impact", "reason"), "x") | changes)
    assert [*contradictions(fault, {Divergence.WASTE})] == told


def disagreements(faults: Sequence[Fault]) -> Iterator[str]:
    """Where faults, the ledger and the cases on record contradict each other."""
    by_title, by_number = ({getattr(f, name): f for f in faults} for name in ("title", "number"))
    versions = [release.version for release in survey()]
    same_cases: dict[int, set[int]] = {fault.number: set() for fault in faults}
    for entry in load_ledger(LEDGER):
        fault, place = by_title[entry.cause], place_of(entry.configuration)
        for version in versions:
            if fault.explains(entry.signature, version):
                continue
            what = f"{name_of(entry.signature)} in {version}"
            if entry.applies_to(version):
                yield f"the ledger says {fault.number} of {what}"
            if on_record()[version].at(entry.signature, place):
                others = {
                    n for n in fault.same_cases if by_number[n].explains(entry.signature, version)
                }
                same_cases[fault.number] |= others
                if not others:
                    yield f"a case of {fault.number} shows {what}"
    for fault in faults:
        if {*fault.same_cases} != same_cases[fault.number]:
            yield f"{fault.number} names {fault.same_cases} in vain"


def loose(fault: Fault, seen: Mapping[str, Sequence[Sighting]]) -> Iterator[str]:
    """Bounds of the releases of a fault at which the record does not have it."""
    versions = [release.version for release in survey()]
    for defect, releases in fault.releases.items():
        signatures = {
            s
            for s in fault.signatures
            if str(s.defect) == defect or (not defect and str(s.defect) not in fault.releases)
        }
        shown = {v for v, found in seen.items() if signatures & {s.signature for s in found}}
        within = [version for version in versions if version in releases]
        for bound, end in ((">", within[0]), ("<", within[-1])):
            if bound in str(releases) and end not in shown:
                yield f"{fault.number} {defect} {releases}: not in {end}"


def test_faults_ledger_and_record_agree_on_releases() -> None:
    assert not [*disagreements(causes())]
    found = seen_in(survey(), causes())
    for fault in causes():
        assert not [*loose(fault, found[fault.number])]
        if any(map(str, fault.releases.values())):
            assert any(
                fault.signatures & other.signatures for other in causes() if other is not fault
            ), f"the record alone says in which releases {fault.number} is"


@pytest.mark.parametrize(
    ("number", "releases", "told"),
    [
        (58, "<0.26", "the ledger says 58 of cached_key_names_its_content"),
        (72, ">=0.26,<0.32", "a case of 72 shows chunk_ends_where_a_state_is_kept"),
        (14, "", "14 names (15,) in vain"),
    ],
)
def test_a_range_that_the_record_contradicts_is_noticed(
    number: int, releases: str, told: str
) -> None:
    others = [
        replace(each, releases={"": SpecifierSet(releases)}) if each.number == number else each
        for each in causes()
    ]
    assert any(each.startswith(told) for each in disagreements(others))


@pytest.mark.parametrize("releases", [">=0.20,<0.26", ">=0.24,<0.27", ">=0.20,<0.24"])
def test_a_bound_at_which_nothing_was_found_is_noticed(releases: str) -> None:
    fault = next(each for each in causes() if each.number == 54)
    bounded = replace(fault, releases={"": SpecifierSet(releases)})
    assert [*loose(bounded, seen_in(survey(), causes())[54])]


def unfounded(faults: Iterable[Fault]) -> Iterator[str]:
    """Upstream's choices and limits of the design that no place in vLLM says."""
    for fault in faults:
        if (fault.status is CauseStatus.FAULT) is bool(fault.evidence):
            yield f"{fault.number}: {fault.status} with {len(fault.evidence)} places"
        for each in fault.evidence:
            lines = (release(each.release) / each.file).read_text().splitlines()
            there = lines[max(0, each.line - 4) : each.line + 6]
            if _words(each.quote) not in _words(" ".join(there)):
                yield f"{fault.number}: {each.file}:{each.line}"


def _words(text: str) -> str:
    """The text without the marks of comments, and with one space between words."""
    return " ".join(text.replace("#", " ").split())


@pytest.mark.release
def test_upstream_says_what_is_no_fault() -> None:
    assert not [*unfounded(causes())]


@pytest.mark.release
def test_a_quote_that_does_not_stand_there_is_noticed() -> None:
    fault = next(each for each in causes() if each.evidence)
    (first, *_) = fault.evidence
    for wrong in (replace(first, quote="on purpose"), replace(first, line=first.line + 40)):
        assert [*unfounded([replace(fault, evidence=(wrong,))])]
    assert [*unfounded([replace(fault, evidence=())])]
    assert [*unfounded([replace(fault, status=CauseStatus.FAULT)])]


def test_every_open_cause_says_what_reaches_it() -> None:
    *still, fixed = grouped(survey(), causes()).values()
    assert all(fault.reach for group in still for fault in group)
    assert not any(fault.reach or fault.evidence for fault in fixed)


def test_causes_in_the_ledger_are_titles_of_faults() -> None:
    titles = {fault.title for fault in causes()}
    assert {entry.cause for entry in load_ledger(LEDGER)} <= titles


def test_what_is_not_documented_or_not_settled_is_no_pass() -> None:
    releases, faults = survey(), causes()
    assert verdict(releases, faults[1:]) is Verdict.DIVERGES
    assert "not documented yet" in table(releases, faults[1:])
    unsettled = replace(releases[0], verdict="inconclusive")
    assert verdict([unsettled], faults) is Verdict.INCONCLUSIVE
    assert verdict([], faults) is Verdict.INCONCLUSIVE


def test_what_a_check_says_of_each_release_has_a_reason(tmp_path: Path) -> None:
    releases, faults = survey(), causes()
    old, new = releases[0], releases[-1]
    signatures = tuple(sighting.signature for sighting in old.sightings)
    judged = [
        replace(old, checked=Checked("diverges", 0, signatures, 2)),
        replace(new, checked=Checked("conforms", len(new.sightings), (), 0)),
    ]
    first, second = checks(judged, faults).splitlines()[2:]
    assert first.startswith(f"| {old.version} | diverges | 1 | ")
    assert "faults that are not in the ledger: [" in first
    assert "do not reproduce" in first
    assert second.startswith(f"| {new.version} | conforms | 0 | ")
    assert "all that is found is in the ledger" in second
    assert checks(judged, faults) in table(judged, faults)
    assert "not documented yet" in checks(judged[:1], ())
    path = tmp_path / "survey.json"
    path.write_text(json.dumps(to_json(judged)))
    assert read(path) == judged


@pytest.mark.parametrize("unsettled", [[], ["a history could not be judged"]])
def test_what_another_profile_cannot_judge_is_no_pass(
    unsettled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = survey()[-1]
    target = Target(release.version, None, release.version)
    replaced: dict[str, object] = {
        "resolve": lambda _, **__: target,
        "judge": lambda *_, **__: object(),
        "of_report": lambda _: release,
        "record_of": lambda *_, **__: unsettled,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(f"hitproof.vllm_integration.commands.survey.{name}", value)
    result = CliRunner().invoke(cli.app, ["survey", release.version, "--footprints"])
    assert Verdict(result.exit_code) is (Verdict.INCONCLUSIVE if unsettled else Verdict.CONFORMS)


@pytest.mark.parametrize("by_check", [True, False])
def test_the_verdict_of_check_leaves_out_what_only_histories_of_the_ledger_show(
    by_check: bool,
) -> None:
    report = replayed_history()
    (shown,) = report.judgement.new
    if by_check:
        play = Play(Origin.GENERATED, "1:0")
        report = replace(report, reached=[Reach(shown.signature, play, Footprint(1, "0"))])
    release = of_report(report)
    assert signatures(release) == {shown.signature}
    assert release.verdict == Verdict.DIVERGES.label
    assert release.checked is not None
    assert release.checked.new == ((shown.signature,) if by_check else ())
    expected = Verdict.DIVERGES if by_check else Verdict.CONFORMS
    assert release.checked.verdict == expected.label


def test_a_survey_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "survey.json"
    path.write_text(json.dumps(to_json(survey())))
    assert read(path) == survey()


def test_the_state_that_judged_is_said_and_is_never_claimed_to_be_this_one_when_it_is_not() -> None:
    faults, this = causes(), this_state()
    old = replace(survey()[0], judged_by=None)
    new = replace(survey()[-1], judged_by=this)
    other = replace(new, judged_by=replace(this, digest="0" * 64))
    assert "judged by an earlier state of hitproof, which was not recorded" in table([old], faults)
    assert f"judged by this state of hitproof, {this.version}." in table([new], faults)
    assert "judged by another state of hitproof than this" in table([other], faults)
    assert "judged by this state" not in table([old, other], faults)
    assert f"{old.version} was judged by an earlier" in table([old, new], faults)


def test_the_kept_survey_is_said_to_be_of_this_state_only_if_it_is() -> None:
    is_ours = any(release.judged_by == this_state() for release in survey())
    shown = CliRunner().invoke(cli.app, ["survey"]).output
    assert ("judged by this state of hitproof" in shown) is is_ours
    assert "judged by" in shown


def test_a_state_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "survey.json"
    judged = [replace(survey()[0], judged_by=this_state())]
    path.write_text(json.dumps(to_json(judged)))
    assert read(path) == judged


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("form", ["markdown", "bugs", "json"])
def test_the_kept_survey_is_shown(form: str) -> None:
    result = CliRunner().invoke(cli.app, ["survey", "--format", form])
    assert result.exit_code == 0
    shown = {"markdown": "U unsound", "bugs": "# Faults found", "json": '"version": "0.14.0"'}
    assert shown[form] in result.output


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("version", ["0.19.1", "0.31.0"])
def test_a_release_confirms_its_column(version: str, tmp_path: Path) -> None:
    """What the quick profile finds is among what the survey has of the release."""
    result = hitproof("survey", "--quick", "--format", "json", version)
    assert result.returncode == 0, result.stderr
    path = tmp_path / "survey.json"
    path.write_text(result.stdout)
    (found,) = read(path)
    (kept,) = (release for release in read(SURVEY) if release.version == version)
    assert found.sightings
    assert signatures(found) <= signatures(kept)


def signatures(release: Release) -> set[object]:
    return {sighting.signature for sighting in release.sightings}

"""What failed is remembered, tried first, and compared with what fails now."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject, longer_tail
from hitproof.vllm_integration.gate.last_failed import LastFailed
from hitproof.vllm_integration.gate.report import Report, SinceThen
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.reports.ci import github
from hitproof.vllm_integration.reports.printing import drawn
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.in_process import KEEPS, ONLY, TARGET, WINDOWS, judged, known

SOUND = BrokenSubject()
WORSE = BrokenSubject(mask=longer_tail)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "failed"


def since(store: Path, report: Report, target: Target = TARGET) -> SinceThen:
    return LastFailed(store, target, "python").since_then(report)


def sizes(told: SinceThen) -> dict[str, int]:
    return {name: len(found) for name, found in told.sorts.items() if found}


def test_nothing_is_kept_at_first(store: Path) -> None:
    told = since(store, judged(KEEPS))
    assert told.made is None
    assert told.describe().startswith("last failed: no failure of this target is kept")
    assert "\n" not in told.describe()


def test_still_failing_fixed_and_new(store: Path) -> None:
    broken = judged(KEEPS)
    number = len(broken.judgement.new)
    assert number
    since(store, broken)
    assert sizes(since(store, broken)) == {"still failing": number}
    assert sizes(since(store, judged(KEEPS, ONLY, subject=SOUND))) == {"fixed": number}
    assert since(store, broken).made is None  # what was fixed is forgotten
    worse = judged(KEEPS, ONLY, subject=WORSE)
    told = since(store, worse)
    assert sizes(told) == {"fixed": number, "new": len(worse.judgement.new)}


def test_it_is_tried_first(store: Path) -> None:
    broken = judged(KEEPS)
    since(store, broken)
    places = {place_of(each.judged) for each in broken.reached}
    assert LastFailed(store, TARGET, "python").places == places


def test_what_was_not_judged_again_is_not_fixed(store: Path) -> None:
    broken = judged(KEEPS)
    number = len(broken.judgement.new)
    since(store, broken)
    elsewhere = ("full attention, block size 4, alignment 4, *",)
    for report in (
        judged(ONLY, subject=SOUND),
        judged(KEEPS, configurations=elsewhere, subject=SOUND),
        judged("prefix-block-unregistered", subject=SOUND),
        replace(judged(KEEPS, subject=SOUND), obligations=[]),
    ):
        assert sizes(since(store, report)) == {"not judged everywhere": number}
    assert sizes(since(store, judged("lookahead-*"))) == {"still failing": number}


def test_what_is_in_the_ledger_now(store: Path) -> None:
    broken = judged(KEEPS)
    since(store, broken)
    record = Record.of("0.33.0", Profile.QUICK, broken.reached)
    told = since(store, judged(KEEPS, entries=(known(broken),), record=record))
    assert sizes(told)["in the ledger now"] == 1


def test_what_has_grown_is_a_failure_of_its_own(store: Path) -> None:
    broken = judged(KEEPS)
    record = Record.of("0.33.0", Profile.QUICK, broken.reached[:1])
    grown = judged(KEEPS, entries=(known(broken),), record=record)
    number = len(grown.judgement.new)
    assert number
    since(store, grown)
    assert sizes(since(store, grown)) == {"still failing": number}


def test_each_target_has_its_own(store: Path, tmp_path: Path) -> None:
    since(store, judged(KEEPS))
    for other in (
        replace(TARGET, name="other", root=tmp_path),
        replace(TARGET, managers=("module:Class",)),
    ):
        assert since(store, judged(KEEPS), other).made is None
    checkout = Target(str(tmp_path), tmp_path, "0.33.0", inferred="git")
    commit = Target(f"{tmp_path}@HEAD", tmp_path / "cache", "0.33.0", inferred="git")
    since(store, judged(KEEPS), checkout)
    assert since(store, judged(KEEPS), commit).still


def test_few_targets_are_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.gate.last_failed.MOST_TARGETS", 2)
    report, targets = judged(KEEPS), [replace(TARGET, name=name) for name in ("a", "b", "c")]
    for number, target in enumerate(targets):
        since(store, report, target)
        os.utime(max(store.iterdir(), key=lambda file: file.stat().st_mtime), (number, number))
    assert [bool(LastFailed(store, each, "python").places) for each in targets] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("kept", ['{"signature": {"other": 1}}', "[]", "{", "\0"])
def test_failures_of_another_version_are_forgotten(store: Path, kept: str) -> None:
    since(store, judged(KEEPS))
    (file,) = store.iterdir()
    file.write_text(kept)
    assert since(store, judged(KEEPS)).made is None


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert since(tmp_path / "file" / "failed", judged(KEEPS)).made is None


def test_every_report_says_so(store: Path) -> None:
    broken = judged(KEEPS)
    since(store, broken)
    broken.since_then = since(store, broken)
    headline = broken.judgement.new[0].signature.headline
    for text in (
        drawn(lambda console: print_report(broken, console, False)),
        github.annotations(broken, False),
    ):
        assert f"still failing: {headline}" in text
        assert broken.since_then.describe() in text
    assert report_json(broken)["last_failed"]["still_failing"] == [headline]
    assert report_json(judged(ONLY, configurations=(WINDOWS,)))["last_failed"] is None

"""Ledgers that are written are read back as they were."""

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import (
    AcceptedRead,
    CauseStatus,
    Entry,
    all_accepted_reads,
    judge,
    load,
)
from hitproof.conformance.ledger.writing import adopted, to_toml
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts, of_tiers
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind

SHORT = Defect.of(Code.HIT_TOO_SHORT, run="cut", short="one")
SIGNATURE = Signature("lookup_returns_longest_valid_hit", "lost hit", "sliding_window", True, SHORT)
CONFIGURATION = single_group(GroupKind.SLIDING_WINDOW, 1, 2, 4, True, 3)
ENTRY = Entry(SIGNATURE, CONFIGURATION, SpecifierSet(">=0.21,<0.30"), "why", "https://x", "a cause")


def again(tmp_path: Path, *entries: Entry, comment: str = "") -> list[Entry]:
    path = tmp_path / "ledger.toml"
    path.write_text(to_toml(entries, comment), encoding="utf-8")
    return list(load(path))


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        replace(ENTRY, releases=SpecifierSet("")),
        replace(ENTRY, link="", cause="why"),
        *(replace(ENTRY, status=each) for each in CauseStatus),
        replace(
            ENTRY,
            signature=replace(
                SIGNATURE,
                claim="fine_grained_hit_is_vouched_for",
                defect=Defect(Code.FINE_HIT_TOO_SHORT),
            ),
        ),
        replace(
            ENTRY,
            signature=replace(
                SIGNATURE, defect=Defect.of(Code.RAISES_EXCEPTION, error='a "name" = {}')
            ),
        ),
        replace(ENTRY, reason='"quoted" \\ two\nlines\t\x00\x1f\x7f\u2028 \U0001f600 é', cause="c"),
    ],
)
def test_an_entry_is_read_back(entry: Entry, tmp_path: Path) -> None:
    assert again(tmp_path, entry) == [entry]


def test_accepted_reads_are_read_back(tmp_path: Path) -> None:
    reads = (
        AcceptedRead("Request.tier", SpecifierSet(""), "shown only"),
        AcceptedRead('a "b"', SpecifierSet("<0.30"), "why\nnot"),
    )
    path = tmp_path / "ledger.toml"
    path.write_text(to_toml([ENTRY], "", reads), encoding="utf-8")
    assert (all_accepted_reads(path), load(path)) == (reads, (ENTRY,))


def test_every_kind_of_configuration_is_read_back(tmp_path: Path) -> None:
    judged: list[Configuration | Layout] = [
        *configurations(Profile.QUICK),
        *layouts(Profile.QUICK),
        *of_tiers(Profile.QUICK),
    ]
    assert any(isinstance(each, Layout) for each in judged)
    entries = [replace(ENTRY, configuration=each) for each in judged]
    read = again(tmp_path, *entries)
    assert read == entries
    assert [e.configuration.as_json() for e in read] == [each.as_json() for each in judged]


def test_a_ledger_may_be_empty(tmp_path: Path) -> None:
    assert again(tmp_path, comment="two\nlines") == []


@pytest.mark.parametrize("version", ["0.14.0", "1.0rc1", None])
def test_an_adopted_finding_is_known_on_any_release(version: str | None, tmp_path: Path) -> None:
    found = Finding(SIGNATURE, "", (), "", "", "", "", CONFIGURATION.as_json())
    (entry,) = again(tmp_path, adopted(found, "today"))
    assert entry.applies_to(version)
    judgement = judge([found], [entry])
    assert not judgement.new
    assert not judgement.stale
    assert "today" in entry.reason
    assert "Write here" in entry.reason


def test_adopted_findings_are_not_taken_for_one_cause() -> None:
    signatures = SIGNATURE, replace(SIGNATURE, defect=Defect(Code.FINE_HIT_TOO_SHORT))
    found = [Finding(s, "", (), "", "", "", "", CONFIGURATION.as_json()) for s in signatures]
    assert len({adopted(each, "today").cause for each in found}) == 2

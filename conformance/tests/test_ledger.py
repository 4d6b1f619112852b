"""The ledger: exact matches only, stale entries noticed, bad files refused in a sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import Entry, LedgerError, accepted_reads, judge, load
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.tests.editing import cases
from hitproof.spec.groups import GroupKind

SHORT = Defect.of(Code.HIT_TOO_SHORT, run="cut", short="one")
SIGNATURE = Signature("lookup_returns_longest_valid_hit", "lost hit", "sliding_window", True, SHORT)
CONFIGURATION = single_group(GroupKind.SLIDING_WINDOW, 1, 2, 4, True, 3)

TEXT = """
[[divergence]]
releases = ">=0.21,<0.30"
reason = "why"
[divergence.signature]
claim = "lookup_returns_longest_valid_hit"
divergence = "lost hit"
kind = "sliding_window"
eagle = true
code = "hit-too-short"
parameters = { run = "cut", short = "one" }
[divergence.configuration]
kind = "sliding_window"
block_size = 1
window = 4
eagle = true
alignment = 2
hash_block_size = 1
members = 1
num_blocks = 3
"""


def found(signature: Signature) -> Finding:
    return Finding(signature, "", (), "", "", "", "", {})


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ledger.toml"
    path.write_text(text)
    return path


def test_an_entry_is_read(tmp_path: Path) -> None:
    (entry,) = load(write(tmp_path, TEXT))
    assert entry == Entry(SIGNATURE, CONFIGURATION, SpecifierSet(">=0.21,<0.30"), "why", "", "why")


@pytest.mark.parametrize(
    ("version", "applies"),
    [("0.20.2", False), ("0.21.0", True), ("0.29.1rc1", True), ("0.30.0", False), (None, False)],
)
def test_releases_bound_an_entry(tmp_path: Path, version: str | None, applies: bool) -> None:
    (entry,) = load(write(tmp_path, TEXT))
    assert entry.applies_to(version) is applies


@pytest.mark.parametrize(
    ("version", "judged"),
    [("0.20.2", False), ("0.21.0", True), ("0.30.0", True), ("0.33.0", True), (None, True)],
)
def test_what_was_fixed_is_looked_for_in_later_releases(
    tmp_path: Path, version: str | None, judged: bool
) -> None:
    (entry,) = load(write(tmp_path, TEXT))
    assert entry.is_judged_on(version) is judged


def test_an_open_range_reaches_unknown_checkouts(tmp_path: Path) -> None:
    (entry,) = load(write(tmp_path, TEXT.replace(",<0.30", "")))
    assert entry.applies_to(None)


def test_only_an_equal_signature_matches(tmp_path: Path) -> None:
    entries = load(write(tmp_path, TEXT))
    same = judge([found(SIGNATURE)], entries)
    assert not same.new
    assert not same.stale
    assert [entry for _, entry in same.known] == list(entries)
    others = [
        replace(SIGNATURE, claim="mask_keeps_every_reachable_block"),
        replace(SIGNATURE, divergence="unsound"),
        replace(SIGNATURE, kind="full_attention"),
        replace(SIGNATURE, eagle=False),
        replace(SIGNATURE, defect=Defect.of(Code.HIT_TOO_SHORT, run="cut", short="several")),
        replace(
            SIGNATURE, defect=Defect.of(Code.HIT_TOO_SHORT, run="cut", short="one", segment="one")
        ),
        replace(SIGNATURE, defect=Defect(Code.HIT_OFF_BOUNDARY)),
    ]
    for other in others:
        changed = judge([found(other)], entries)
        assert len(changed.new) == 1
        assert len(changed.stale) == 1


def test_an_entry_without_its_finding_is_stale(tmp_path: Path) -> None:
    assert len(judge([], load(write(tmp_path, TEXT))).stale) == 1


@cases("change, sentence")
def test_a_bad_ledger_is_refused(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    with pytest.raises(LedgerError, match=sentence):
        load(write(tmp_path, TEXT.replace(*change)))


PLAYED = """
[[divergence]]
releases = ">=0.21"
reason = "why"
history = %s

[divergence.signature]
claim = "allowed_call_raises_nothing"
divergence = "crash"
kind = "mamba"
eagle = false
code = "raises-exception"
parameters = { error = "ValueError" }
"""
HISTORY = """{"engine": {"groups": [{"kind": "full_attention", "block_size": 1}],
 "num_gpu_blocks": 2, "hash_block_size": 1, "max_model_len": 2}, "requests": {}, "steps": []}"""


def test_an_entry_may_have_a_history(tmp_path: Path) -> None:
    (tmp_path / "played.json").write_text(HISTORY)
    for text, name in ((f"'''{HISTORY}'''", "in the ledger"), ('"played.json"', "played.json")):
        (entry,) = load(write(tmp_path, PLAYED % text))
        assert entry.configuration == Play(Origin.WRITTEN, name, HISTORY)
        assert judge([], [entry]).stale == (entry,)
        assert judge([], [entry], {entry.signature}).stale == ()


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        ('"none.json"', "its history cannot be read"),
        ("'{'", "is not JSON"),
        ("7", "cannot be read"),
    ],
)
def test_a_bad_history_is_refused(tmp_path: Path, history: str, sentence: str) -> None:
    with pytest.raises(LedgerError, match=sentence):
        load(write(tmp_path, PLAYED % history))


READ = """
[[accepted_read]]
name = "Request.tier"
reason = "shown only"
"""


def test_accepted_reads_stand_beside_divergences(tmp_path: Path) -> None:
    bounded = READ.replace("tier", "old") + 'releases = "<0.30"\n'
    without = load(write(tmp_path, TEXT))
    path = write(tmp_path, READ + bounded + TEXT)
    assert load(path) == without
    assert accepted_reads(path, None) == {"Request.tier": "shown only"}
    assert accepted_reads(path, "0.29.0").keys() == {"Request.tier", "Request.old"}


@cases("change, sentence")
def test_a_bad_accepted_read_is_refused(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    with pytest.raises(LedgerError, match=sentence):
        accepted_reads(write(tmp_path, READ.replace(*change)), None)


def test_a_missing_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="name another with --ledger"):
        load(tmp_path / "none.toml")


def test_entries_of_one_cause_have_it_alike(tmp_path: Path) -> None:
    named = TEXT.replace('reason = "why"', 'reason = "why"\ncause = "one line"')
    assert [entry.cause for entry in load(write(tmp_path, named))] == ["one line"]

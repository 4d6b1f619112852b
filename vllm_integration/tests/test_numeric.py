"""Numbers on real releases: a fault gives wrong output or wrong drafts, a repaired one does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    RequestInput,
    Schedule,
)
from hitproof.conformance.histories.vectors import vectors
from hitproof.conformance.numeric.outcome import EXACT, Showing
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.replay import run
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, hitproof, limits
from hitproof.vllm_integration.verdict import Verdict

pytestmark = pytest.mark.release

FULL = Group(GroupKind.FULL_ATTENTION, 4)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=6)
HOLE = History(
    EngineConfiguration((FULL, WINDOW), 60, 2, 64),
    {"a": RequestInput(tuple(range(16))), "b": RequestInput((*range(16), 99, 98))},
    (Schedule("a"), Finish("a"), Evict("a", 1, (5,)), Schedule("b")),
)
"""The first block of the window before a hit of 16 tokens is not cached."""


def replayed(target: object, history: Path) -> tuple[str, dict[str, Any]]:
    """What is printed, and the JSON."""
    asked = "replay", history, target, "--numeric"
    return hitproof(*asked).stdout, json.loads(hitproof(*asked, "--format", "json").stdout)


@pytest.mark.long
@pytest.mark.parametrize(("release", "is_wrong"), [("0.23.0", True), ("0.33.0", False)])
def test_mamba_under_eagle_gives_wrong_output_until_it_was_repaired(
    release: str, is_wrong: bool, tmp_path: Path
) -> None:
    path = tmp_path / "history.json"
    path.write_text(write(vectors()["mamba_under_eagle"]))
    text, report = replayed(release, path)
    assert (Showing.OUTPUT in text) == is_wrong
    assert ("logits are those of no caching" in text) != is_wrong
    assert bool(report["numeric"]["wrong"]) == is_wrong
    about_content = [each["numeric"] for each in report["findings"] if each["numeric"]]
    shown = [each["shown"] for each in about_content]
    assert shown == ([Showing.OUTPUT] * 3 if is_wrong else [])


@pytest.mark.long
def test_a_hole_in_a_window_gives_wrong_output(broken_copy: Copy, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(write(HOLE))
    tail = "blocks = cdiv(window_size - 1, block_size)"
    text, _ = replayed(broken_copy("0.33.0", {tail: f"{tail} - 1"}), path)
    assert Showing.OUTPUT in text
    text, report = replayed("0.33.0", path)
    assert Showing.OUTPUT not in text
    assert report["numeric"]["passes"]
    assert not report["numeric"]["wrong"]


@pytest.mark.long
def test_drafts_are_wrong_where_the_ledger_says_so_and_nothing_else_is() -> None:
    """On the newest release: the known histories of wrong drafts, and the frozen vectors."""
    known = LEDGER.parent / "known"
    names = [f"draft_entry_of_other_request_{n}" for n in (1, 2)]
    wrong = [read((known / f"{name}.json").read_bytes(), name) for name in names]
    right = list(vectors().values())
    reports = run(Run(resolve("0.33.0"), limits=limits()), [*wrong, *right], numeric=True)
    for report in reports[: len(wrong)]:
        assert report.numeric is not None
        shown = [report.numeric.of(found) for found in report.findings]
        assert [each and each[0] for each in shown] == [Showing.DRAFTS]
        assert all(each.errors.target <= EXACT for each in report.numeric.wrong)
        assert report.verdict is Verdict.DIVERGES
    for report in reports[len(wrong) :]:
        content = (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)
        if any(found.signature.divergence in content for found in report.findings):
            continue
        assert report.numeric is not None
        assert report.numeric.passes
        assert not report.numeric.wrong

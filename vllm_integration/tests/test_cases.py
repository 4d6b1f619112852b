"""Test cases of findings: their text, and how they end on targets that have the fault or not."""

import json
import subprocess
import sys
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.demonstration import CaseOutcome, Demonstration
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.histories.workload_json import is_workload, read_workload
from hitproof.conformance.scope.limits import refusal
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.reproduce.run_cases import _called
from hitproof.vllm_integration.reproduce.source_text import (
    Bracketed,
    call,
    laid_out,
    literal,
    one_line,
)
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import Copy, edits, hitproof, limits

NOWHERE = Target("nowhere", None, None)


def case(name: str, body: str, error: str = "AssertionError") -> Demonstration:
    """A test with one line."""
    return Demonstration(name, True, pytest=f"def test_{name}():\n    {body}\n", error=error)


CASES = (
    case("fails", "assert 1 == 2"),
    case("passes", "assert 1 == 1"),
    case("crashes", "raise ValueError('as it should')", "ValueError"),
    case("breaks", "raise TypeError('not what it is about')"),
    Demonstration("unreadable", True, pytest="import no_such_module\n", error="AssertionError"),
    Demonstration("none", False, "nothing shows it"),
)
OUTCOMES = {
    "fails": CaseOutcome.FAILS,
    "passes": CaseOutcome.PASSES,
    "crashes": CaseOutcome.FAILS,
    "breaks": CaseOutcome.BREAKS,
    "unreadable": CaseOutcome.BREAKS,
}


def test_how_cases_end(tmp_path: Path) -> None:
    ran = write_and_run(tmp_path / "new", CASES, NOWHERE, Limits())
    assert {name: shown.outcome for name, shown in ran.items()} == OUTCOMES
    assert ran["crashes"].said == "ValueError: as it should"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        f"test_{name}.py" for name in sorted(OUTCOMES)
    ]


def test_how_cases_end_without_pytest(tmp_path: Path) -> None:
    for shown in CASES[:-1]:
        file = tmp_path / f"{shown.name}.py"
        file.write_text(shown.pytest)
        error, _ = _called(str(file))
        passes = OUTCOMES[shown.name] is CaseOutcome.PASSES
        assert (error == "") == passes
        assert (error == shown.error) == (OUTCOMES[shown.name] is CaseOutcome.FAILS)


def test_a_case_that_does_not_come_to_an_end(tmp_path: Path) -> None:
    endless = case("endless", "import time; time.sleep(600)")
    ran = write_and_run(tmp_path, [endless], NOWHERE, Limits(timeout=0.5))
    assert ran["endless"].outcome is CaseOutcome.BREAKS
    assert "did not finish" in ran["endless"].said


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="name another directory with --pytest"):
        write_and_run(tmp_path / "file", CASES, NOWHERE, Limits())


def test_source_is_laid_out_as_ruff_does() -> None:
    short = call("f", "1", flag="True")
    assert laid_out("x = ", short) == "    x = f(1, flag=True)"
    names = [f"argument_number_{n}" for n in range(4)]
    within = laid_out("on_the_left = ", call("f", *names))
    assert within == f"    on_the_left = f(\n        {', '.join(names)}\n    )"
    apart = laid_out("x = ", call("f", *names, *names))
    assert apart.splitlines()[1:3] == [f"        {name}," for name in names[:2]]
    names_on_the_left = ", ".join(f"a_long_name_{number}" for number in range(5))
    wrapped = laid_out(f"{names_on_the_left} = ", call("manager.get_computed_blocks", "request"))
    assert wrapped.splitlines()[1:] == ["        manager.get_computed_blocks(request)", "    )"]
    listed = laid_out("on_the_left = ", Bracketed("[", tuple(("", name) for name in names), "]"))
    assert listed.endswith("argument_number_3,\n    ]")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        1.5,
        'a "quoted" \n line',
        b"bytes \x00",
        (1,),
        (),
        [],
        [1, 2, 3],
        list(range(40)),
        [*range(3, 20), 7, 7, *range(100, 120)],
        ["a", ("b", [1])],
        {"a": [1], 2: {}},
    ],
)
def test_literals_mean_what_they_are_of(value: object) -> None:
    text = one_line(literal(value))
    assert eval(text) == value
    assert len(text) < 80


class Mode(IntEnum):
    """Numbers, whose text is no source."""

    PLAIN = 1


def test_a_member_of_an_enum_is_no_literal() -> None:
    with pytest.raises(TypeError, match="has no literal"):
        literal(Mode.PLAIN)


REPLAYED = "; `hitproof replay` plays the history on the target's own scheduler"
NOT_PLAYED = {
    "the fault does not show in what a public method returns",
    f"the fault does not show in what the scheduler's methods return{REPLAYED}",
}

NOT_WRITTEN = {
    refusal("demonstration-hash-lookahead"),
    "it is of a tier behind a KV connector, and no history of a manager has one",
    *(
        f"a test {lacks}{REPLAYED}"
        for lacks in (
            "does not follow the pages that a host's pool backs",
            "does not follow what a connector keeps in host memory",
            "does not tell what a failed load has spoilt",
            "has groups of one precision",
            "has no grammars beside hashes, counts of drafts and transfers",
            "has no hashes or whole images beside streaming sessions",
            "has no layers that draft beside a connector",
            "has no pipeline",
            "has no resets of their own, and no encoder cache connector",
        )
    ),
}

UNWRITTEN = {
    "A request of one token that a KV connector loads is looked up a second time",
    "An event says that a block is removed while a copy of it is cached",
    "Stored events do not say what comes before blocks that were left out",
    "The event of a block in part begins at its last hash unit",
    "The next input of a streaming session writes its Mamba state into the null block",
}
"""Faults that have no test, for the reasons above."""

WRITTEN_BESIDE = {"The state of a hit inside a block is registered as the state of the block's end"}
"""Faults whose history in the ledger is of a manager, which no public method shows; a test below
writes the one of a scheduler."""


@pytest.mark.long
@pytest.mark.release
def test_every_finding_of_a_release_has_a_test_that_fails_there(tmp_path: Path) -> None:
    """No false alarm: each known divergence shows on the whole manager, and its test proves it.

    What only the content of pages shows, or an entry inside a block, no public method returns.
    What has no test is in `NOT_WRITTEN`.
    """
    result = hitproof(
        *("check", "--quick", "--verbose", "--format", "json", "--pytest", tmp_path, "0.33.0")
    )
    report = json.loads(result.stdout)
    every: list[dict[str, Any]] = report["findings"] + report["known_divergences"]
    every = [each for each in every if each["detail"] not in NOT_WRITTEN]
    found = [each for each in every if each["reproduced"] is not None]
    assert len(found) >= 30
    for other in (each for each in every if each not in found):
        assert "origin" in other["configuration"]
        assert other["detail"] in NOT_PLAYED
    assert {(f["reproduced"], f["outcome"]) for f in found} == {(True, "fails as it should")}
    causes = {each["cause"] for each in every}
    assert causes - {each["cause"] for each in found} == WRITTEN_BESIDE | UNWRITTEN
    crashes = [f for f in found if f["signature"]["divergence"] == "crash"]
    assert {f["error"] for f in crashes} > {"AssertionError", "IndexError", "ValueError"}
    refused = [f for f in found if f["signature"]["code"] == "layers-refused"]
    assert {f["error"] for f in found if f not in (*crashes, *refused)} == {"AssertionError"}
    assert {path.name for path in tmp_path.iterdir()} == {f"test_{f['name']}.py" for f in found}
    assert all(f["vector"].get("steps") or f["vector"]["requests"] for f in found)
    of_schedulers = [f["pytest"] for f in found if f["signature"]["kind"] == "scheduler"]
    assert len(of_schedulers) >= 4
    assert all("scheduler = " in text or "EngineCore)" in text for text in of_schedulers)
    assert any("Workers(" in text for text in of_schedulers)
    ruff = [sys.executable, "-m", "ruff"]
    for how in (["format", "--check", "--line-length", "88"], ["check", "--select", "E,F,W"]):
        subprocess.run([*ruff, *how, "--isolated", tmp_path], check=True)
    text = "\n".join(f["pytest"] for f in found)
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if " import " in line}
    assert imported <= {
        "collections",
        "concurrent",
        "os",
        "torch",
        "types",
        "typing",
        "unittest",
        "vllm",
    }


@pytest.mark.release
def test_a_case_fails_with_the_fault_and_passes_without_it(
    broken_copy: Copy, tmp_path: Path
) -> None:
    """The tests of a broken copy's findings, on the copy and on the release itself.

    The ledger is empty, so the release's own findings are among them: those fail on both.
    """
    copy = broken_copy(
        "0.23.0",
        {"blocks = cdiv(window_size - 1, block_size)": "blocks = (window_size - 1) // block_size"},
    )
    (tmp_path / "empty.toml").write_text("")
    cases = tmp_path / "cases"
    options = ("--histories", 30, "--shrink-budget", 40, "--ledger", tmp_path / "empty.toml")
    result = hitproof("lockstep", "--format", "json", *options, "--pytest", cases, copy)
    shown = [Demonstration(**found["case"]) for found in json.loads(result.stdout)["findings"]]
    assert {each.outcome for each in shown} == {CaseOutcome.FAILS}
    assert any("@patch.dict(os.environ" in each.pytest for each in shown)
    ran = write_and_run(cases, shown, resolve("0.23.0"), limits())
    fixed = {name for name, each in ran.items() if each.outcome is CaseOutcome.PASSES}
    assert any("longer_than_sliding_window_can_serve" in name for name in fixed)
    assert any("promised" in name for name in ran.keys() - fixed)


NEWEST = "0.33.0"
SHOWN = edits("shown")


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("name", SHOWN)
def test_a_case_fails_with_its_fault_and_passes_without_it(
    name: str, broken_copy: Copy, tmp_path: Path
) -> None:
    case = SHOWN[name]
    faulty, right = (
        resolve(
            each if isinstance(each, str) else str(broken_copy(NEWEST, {each["old"]: each["new"]}))
        )
        for each in (case["faulty"], case["right"])
    )
    text = case.get("history") or (LEDGER.parent / f"known/{name}.json").read_text()
    if is_workload(text):
        play = Play.written_workload(read_workload(text), "history")
    else:
        play = Play.written(read(text), "history")
    with closing(Session.of(faulty, limits())) as session:
        found = session.play(play).signatures
        shown = session.finding((found[0], play), "shown").demonstration
    assert shown.reproduced
    assert "hitproof" not in shown.pytest
    assert case.get("written", "") in shown.pytest
    for target, outcome in ((faulty, CaseOutcome.FAILS), (right, CaseOutcome.PASSES)):
        assert write_and_run(tmp_path, [shown], target, limits())["shown"].outcome is outcome

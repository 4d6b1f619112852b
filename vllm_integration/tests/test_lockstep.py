"""Lockstep on real releases, and on copies of them with one fault each."""

import json
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.gate.lockstep import policies_of, run
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.target import Target, TargetError
from hitproof.vllm_integration.tests.conftest import Copy, hitproof, limits
from hitproof.vllm_integration.verdict import Verdict


def lockstep(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `hitproof lockstep`."""
    result = hitproof("lockstep", "--format", "json", *arguments)
    return result.returncode, json.loads(result.stdout)


@pytest.mark.release
@pytest.mark.parametrize("release", ["0.23.0", "0.33.0"])
def test_a_slice_of_the_long_run(release: str) -> None:
    """What the ledger has is found, and nothing else differs."""
    code, report = lockstep("--histories", 60, "--seed", 1, release)
    assert (report["findings"], report["faults"]) == ([], [])
    assert (code, report["verdict"]) == (Verdict.CONFORMS, "conforms")
    assert report["histories"] == 60
    assert report["calls"] > report["steps"] > 600
    assert report["known_findings"]


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize(
    ("release", "numbers"), [("0.20.0", set()), ("0.21.0", set()), ("0.22.1", {8})]
)
def test_what_differs_in_older_releases_is_a_documented_fault(
    release: str, numbers: set[int]
) -> None:
    code, report = lockstep("--histories", 90, "--seed", 1, "--shrink-budget", 20, release)
    assert (report["histories"], report["faults"], report["unsettled"]) == (90, [], "")
    assert code == (Verdict.DIVERGES if numbers else Verdict.CONFORMS)
    assert {tuple(found["faults"]) for found in report["findings"]} == {(n,) for n in numbers}
    assert report["known_findings"]


@pytest.mark.long
@pytest.mark.release
def test_what_is_not_in_the_ledger_is_a_finding(tmp_path: Path) -> None:
    """The known example: with EAGLE, Mamba lengthens a hit beyond what full attention serves."""
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    code, report = lockstep("--histories", 45, "--ledger", empty, "0.23.0")
    assert (code, report["verdict"]) == (Verdict.DIVERGES, "diverges")
    found = next(f for f in report["findings"] if "mamba" in f["what"]["kind"])
    assert found["what"]["divergence"] == "unsound"
    assert found["what"]["code"] == "hit-too-long"
    assert found["what"]["parameters"] == {"group": "full_attention"}
    smallest = read(found["smallest"])
    assert found["location"]["path"].startswith("vllm/v1/core/")
    (broken,) = found["trace"]["steps"][-1]["broken"]
    assert broken["code"] == "hit-too-long(group=full_attention)"
    assert len(smallest.steps) <= 3
    assert {group.kind.value for group in smallest.engine.groups} >= {"full_attention", "mamba"}


@pytest.mark.long
@pytest.mark.release
@cases("old, new, divergence, code, parameters")
def test_a_broken_release_is_caught(
    broken_copy: Copy, old: str, new: str, divergence: str, code: str, parameters: dict[str, str]
) -> None:
    exit_code, report = lockstep(
        "--histories", 30, "--shrink-budget", 5, broken_copy("0.23.0", {old: new})
    )
    found = [f["what"] for f in report["findings"]]
    shown = [(what["divergence"], what["code"], what["parameters"]) for what in found]
    assert (exit_code, report["faults"]) == (Verdict.DIVERGES, [])
    assert (divergence, code, parameters) in shown


class EndsLater:
    """A worker that ends in the second batch, and whenever something is to be demonstrated."""

    def __init__(self, *_: object) -> None: ...

    def ask(self, _: float, op: str, first: int = 0, **message: Any) -> dict[str, Any]:
        if first or message.get("name"):
            raise WorkerGone(f"it ended in {op}")
        if op == "finding":
            shown = {"signature": message["shows"], "spec": "small", "history": "{}"}
            return {"finding": shown, "demonstration": {}}
        found = {"signature": SHOWN.as_json(), "spec": "large"}
        outcome = {"findings": [found], "fault": None, "history": 0}
        return {"next": 1, "steps": 2, "calls": 3, "found": [outcome]}

    def close(self) -> None: ...


READ = Defect.of(Code.NULL_BLOCK_READ)
SHOWN = Signature("null_block_is_never_served", "unsound", "mamba", False, READ)


def test_what_is_found_before_the_worker_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.gate.sessions.Worker", EndsLater)
    target = Target("0.33.0", None, "0.33.0")
    report = run(Run(target, limits=limits()), histories=9, seed="1", progress=lambda *_: None)
    (found,) = report.findings
    assert (report.verdict, report.unsettled) == (Verdict.DIVERGES, "it ended in lockstep")
    assert (report.histories, found.times, found.smallest) == (1, 1, "{}")
    assert (found.shown["spec"], found.case.detail) == ("small", "it ended in finding")


def test_releases_that_lockstep_does_not_follow() -> None:
    with pytest.raises(TargetError, match=r"from 0\.20 on"):
        policies_of(Target("0.19.1", None, "0.19.1"))
    assert policies_of(Target("0.21.0", None, "0.21.0")) == "VLLM_0_20"
    assert policies_of(Target("0.22.1", None, "0.22.1")) == "VLLM_0_22"
    assert policies_of(Target("0.23.0", None, "0.23.0")) == "VLLM_0_23"
    assert policies_of(Target("here", None, None)) == "VLLM_0_33"

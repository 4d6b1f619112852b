"""Test cases as files, run on the target under its interpreter."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hitproof.conformance.findings.demonstration import CaseOutcome, Demonstration
from hitproof.conformance.findings.findings import Finding
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, Limits
from hitproof.vllm_integration.sandbox.processes import end, environment
from hitproof.vllm_integration.targets.target import Target

_SCRIPT = Path(__file__).parent / "run_cases.py"


def write_and_run(
    directory: Path, cases: Sequence[Demonstration], target: Target, limits: Limits
) -> dict[str, Demonstration]:
    """Write ``test_<name>.py`` for each case that has a test, and run them all on the target.

    The time limit bounds each test and the imports. Returns those cases by name, with
    their results. Raises `EnvironmentFailure` when the directory cannot be written.
    """
    files = {
        str(directory.absolute() / f"test_{case.name}.py"): case for case in cases if case.pytest
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, case in files.items():
            Path(file).write_text(case.pytest, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFailure(
            f"tests cannot be written to {directory} ({error.strerror}); name another directory "
            f"with --pytest"
        ) from error
    endings = _run(list(files), target, limits) if files else {}
    return {case.name: _judged(case, endings.get(file)) for file, case in files.items()}


def _judged(case: Demonstration, ending: list[str] | None) -> Demonstration:
    if ending is None:
        return replace(case, outcome=CaseOutcome.BREAKS, said="the test did not finish")
    error, said = ending
    if not error:
        return replace(case, outcome=CaseOutcome.PASSES)
    outcome = CaseOutcome.FAILS if error == case.error else CaseOutcome.BREAKS
    return replace(case, outcome=outcome, said=f"{error}: {said}")


def _run(files: list[str], target: Target, limits: Limits) -> dict[str, list[str]]:
    """The result of each file's test; files that did not finish are omitted."""
    with tempfile.TemporaryDirectory(prefix="hitproof-", ignore_cleanup_errors=True) as scratch:
        report = Path(scratch) / "report.json"
        variables = environment(target, Path(scratch)) | {"PYTHONDONTWRITEBYTECODE": "1"}
        root = "" if target.root is None else str(target.root)
        process = subprocess.Popen(
            [limits.interpreter, "-P", str(_SCRIPT), root, str(report), *files],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env=variables,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limits.timeout * (len(files) + 2))
        end(process, variables)
        try:
            endings: dict[str, list[str]] = json.loads(report.read_text())
        except (OSError, ValueError):
            return {}
    return endings


def tested(
    directory: Path, findings: Sequence[Finding], target: Target, limits: Limits
) -> list[Finding]:
    """The findings, each with how its test ended; the tests are written to ``directory``."""
    shown = [finding.demonstration for finding in findings]
    ran = write_and_run(directory, shown, target, limits)
    return [
        replace(finding, demonstration=ran.get(each.name, each))
        for finding, each in zip(findings, shown, strict=True)
    ]

"""Findings with how their tests end on the target."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hitproof.conformance.findings.findings import Finding
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target


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

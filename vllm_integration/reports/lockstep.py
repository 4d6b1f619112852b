"""Reports of lockstep as people and as programs read them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.picking import picked
from hitproof.vllm_integration.gate.lockstep import LockstepFinding, LockstepReport
from hitproof.vllm_integration.reports.causes import known_from, named
from hitproof.vllm_integration.reports.printing import print_text
from hitproof.vllm_integration.survey.faults import Fault


def lockstep_json(report: LockstepReport) -> dict[str, Any]:
    """The report of `hitproof lockstep` as JSON."""
    return {
        "verdict": report.verdict.label,
        "exit_code": int(report.verdict),
        **picked(report, "target", "seed", "histories", "steps", "calls", "unsettled"),
        "seconds": round(report.seconds, 1),
        "findings": [
            asdict(found) | {"faults": [fault.number for fault in _known_from(found, report)]}
            for found in report.findings
        ],
        "known_findings": [asdict(f) | {"reason": e.reason} for f, e in report.known],
        "faults": [asdict(found) for found in report.faults],
    }


def print_lockstep(report: LockstepReport, console: Console, verbose: bool) -> None:
    """What `hitproof lockstep` prints."""
    classes = Counter(found.what["divergence"] for found, _ in report.known)
    print_text(
        console,
        "lockstep.txt",
        report=report,
        verbose=verbose,
        fault=lambda found: named(_known_from(found, report)),
        classes=", ".join(f"{name}: {classes[name]}" for name in SEVERITY if classes[name]),
    )


def _known_from(found: LockstepFinding, report: LockstepReport) -> Sequence[Fault]:
    return known_from(Signature.from_json(found.what), report.target.version)

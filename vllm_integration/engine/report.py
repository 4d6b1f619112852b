"""The report of an engine as people and as programs read it."""

from typing import Any

from rich.console import Console

from hitproof.conformance.picking import picked
from hitproof.vllm_integration.engine.running import EngineReport
from hitproof.vllm_integration.reports.printing import print_text


def engine_json(report: EngineReport) -> dict[str, Any]:
    """The report of `hitproof engine` as JSON."""
    return {
        "verdict": report.verdict.label,
        "exit_code": int(report.verdict),
        **picked(report, "target", "build", "ended"),
        "seconds": round(report.seconds, 1),
        "cases": [
            {
                "verdict": each.verdict.label,
                "unsettled": each.unsettled,
                **each.case.as_json(),
                **{k: v for k, v in each.data.items() if k not in ("shadow", "record")},
                "shadow": each.summary,
                "findings": each.seen,
                "known_findings": each.known,
            }
            for each in report.outcomes
        ],
    }


def print_engine(report: EngineReport, console: Console, verbose: bool) -> None:
    """What `hitproof engine` prints."""
    print_text(console, "engine.txt", report=report, verbose=verbose)

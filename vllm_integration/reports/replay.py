"""Reports of replay as people and as programs read them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from rich.console import Console

from hitproof.conformance.explain.reasons import Reason
from hitproof.conformance.findings.places import Location
from hitproof.conformance.findings.replayed import describe, of_workload
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.replay import ReplayReport, SchedulerReport, worst
from hitproof.vllm_integration.reports.printing import print_text, sentence

Report: TypeAlias = ReplayReport | SchedulerReport
"""That on a history of a manager, or on one of a scheduler."""


def report_json(report: Report) -> dict[str, Any]:
    """The report of `hitproof replay` on one history as JSON."""
    whole = {
        "verdict": report.verdict.label,
        "exit_code": int(report.verdict),
        **picked(report, "target", "policies", "steps", "ended", "unsettled"),
        "findings": [_finding_json(report, found) for found in report.findings],
        "seconds": round(report.seconds, 1),
    }
    if isinstance(report, SchedulerReport):
        return whole | {"requests": report.lives}
    return whole | {
        **picked(report, "lookups", "trace", "numeric"),
        "expected": [vars(each) | {"met": each.is_met} for each in report.expected],
    }


def _finding_json(report: Report, found: Occurrence) -> dict[str, Any]:
    told = {
        **picked(found.signature, "claim", "sentence", **{"class": "divergence"}),
        "cites": sort_of(found.signature.claim),
        **picked(found, "signature", "step", "times", "cause"),
        **picked(found.violation, "spec", "actual"),
    }
    if isinstance(report, SchedulerReport):
        return told | {"given": of_workload(report.history)}
    return told | {
        "given": _given(report, found),
        "call": found.call,
        "because": [asdict(reason) for reason in _reasons(report, found)],
        "location": None if (line := _location(report, found)) is None else line.as_json(),
        "numeric": _shown_json(report, found),
    }


def print_report(report: Report, console: Console, verbose: bool) -> None:
    """What `hitproof replay` prints of one history."""
    print_replays([report], console, verbose, None)


def replays_json(reports: Sequence[Report], seconds: float) -> dict[str, Any]:
    """The reports of several histories as JSON."""
    verdict = worst(reports)
    return {
        "verdict": verdict.label,
        "exit_code": int(verdict),
        "histories": [
            {"number": number, "about": report.history.about} | report_json(report)
            for number, report in enumerate(reports, 1)
        ],
        "seconds": round(seconds, 1),
    }


def print_replays(
    reports: Sequence[Report], console: Console, verbose: bool, seconds: float | None
) -> None:
    """What `hitproof replay` prints of several histories; of one without ``seconds``."""
    steps = (each.steps for each in reports)
    print_text(
        console,
        "replay.txt",
        reports=reports,
        verbose=verbose,
        seconds=seconds,
        steps=sum(each if isinstance(each, int) else len(each) for each in steps),
        lookups=sum(len(report.lookups) for report in reports),
        worst=worst(reports),
        of_manager=lambda report: isinstance(report, ReplayReport),
        sentence=sentence,
        **{each.__name__.removeprefix("_"): each for each in _TOLD},
    )


def _found_in(reports: Sequence[Report]) -> str:
    """How many findings and unmet expectations there are, in words."""
    findings = sum(len(report.findings) for report in reports)
    unmet = sum(len(report.unmet) for report in reports)
    counted = [count(findings, "finding")] if findings or not unmet else []
    return " and ".join(counted + ([count(unmet, "unmet expectation")] if unmet else []))


def _expected(reports: Sequence[Report]) -> str:
    expected = [each for report in reports for each in report.expected]
    met = sum(each.is_met for each in expected)
    return f", {met} of {count(expected, 'expectation')} met" if expected else ""


def _numbers(report: Report, found: Occurrence) -> str | None:
    """What numbers show of a finding that says that content is wrong."""
    shown = None if report.numeric is None else report.numeric.of(found)
    if shown is None:
        return None
    what, wrong = shown
    return str(what) if wrong is None else f"{what}: {wrong.in_words}"


def _shown_json(report: ReplayReport, found: Occurrence) -> dict[str, Any] | None:
    shown = None if report.numeric is None else report.numeric.of(found)
    if shown is None:
        return None
    what, wrong = shown
    return {"shown": str(what), "by": None if wrong is None else wrong.as_json()}


def _reasons(report: Report, found: Occurrence) -> tuple[Reason, ...]:
    """Why it is a finding; nothing for what follows from another one."""
    return () if found.cause is not None else report.reasons.get(found.signature, ())


def _location(report: Report, found: Occurrence) -> Location | None:
    """The line that decides; none for what follows from another finding."""
    return None if found.cause is not None else report.locations.get(found.signature)


def _given(report: Report, found: Occurrence) -> list[str]:
    """The configuration, and the step at which the finding was first seen."""
    again = f", {count(found.times, 'time')} in all" if found.times > 1 else ""
    if isinstance(report, SchedulerReport):
        return [*of_workload(report.history), f"step {found.step} of the scheduler{again}"]
    after = "after the step" if found.call == "step" else f"at {found.call}"
    return [*describe(report.history.engine), f"{_step(report, found.step)}, {after}{again}"]


def _step(report: ReplayReport, number: int) -> str:
    step = as_json(report.history)["steps"][number]
    return f"steps[{number}] {json.dumps(step)}"


_TOLD = _expected, _found_in, _given, _location, _numbers, _reasons, _step
"""What the template asks about reports and findings."""

"""Reports of replay as people and as programs read them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.explain.reasons import Reason
from hitproof.conformance.findings.places import Location
from hitproof.conformance.findings.replayed import describe, of_workload
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.judge.outcome import Comparison
from hitproof.conformance.numeric.outcome import NumericOutcome
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count, in_tokens
from hitproof.vllm_integration.gate.replay import ReplayReport, SchedulerReport, worst
from hitproof.vllm_integration.reports.lines import print_cited
from hitproof.vllm_integration.reports.traces import print_trace
from hitproof.vllm_integration.verdict import Verdict

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
    if isinstance(report, ReplayReport) and report.trace is not None:
        print_trace(report.trace, console)
        console.print()
    for found in report.findings:
        _print_finding(report, found, console)
    if isinstance(report, ReplayReport):
        _print_of_manager(report, console, verbose)
    else:
        _print_of_scheduler(report, console, verbose)
    _print_verdict(report.verdict, [report], "on this history", console)


def _print_ended(report: Report, console: Console) -> None:
    if report.ended:
        console.print(f"the history ends early: {escape(report.ended)}")


def _print_of_manager(report: ReplayReport, console: Console, verbose: bool) -> None:
    for each in report.unmet:
        _print_unmet(report, each, console)
    _print_ended(report, console)
    for number, deviation in enumerate(report.steps) if verbose else ():
        console.print(f"{_step(report, number)}: {escape(deviation or 'done')}")
    for lookup in report.lookups if verbose else ():
        console.print(
            f"{_step(report, lookup['step'])}: expected a hit of "
            f"{count(lookup['due'], 'token')}, served {count(lookup['served'], 'token')}"
        )
    if report.policies and verbose:
        shown = ", ".join(f"{name} {value}" for name, value in report.policies.items())
        console.print(f"judged under these policies: {escape(shown)}")
    if report.steps:
        judged = f"{count(report.lookups, 'lookup')} judged{_expected([report])}"
        console.print(
            f"{len(report.steps)} of {count(report.history.steps, 'step')} played, {judged}; "
            f"{report.seconds:.1f} s"
        )
    if report.numeric is not None:
        console.print(_computed(report.numeric))


def _print_of_scheduler(report: SchedulerReport, console: Console, verbose: bool) -> None:
    for name, life in report.lives.items():
        console.print(escape(f"request {name}: {_life(life, verbose)}"))
    _print_ended(report, console)
    if report.steps:
        console.print(
            f"{count(report.steps, 'step')} of the target's own scheduler played and judged; "
            f"{report.seconds:.1f} s"
        )


def _life(life: dict[str, Any], verbose: bool) -> str:
    if life["hit"] is None:
        return "never scheduled"
    chunks = life["chunks"] if verbose else []
    where = ", ".join(f"{start} to {start + tokens}" for start, tokens in chunks)
    preempted = f", preempted {count(life['preemptions'], 'time')}" if life["preemptions"] else ""
    return (
        f"hit of {in_tokens(life['hit'])}, {count(life['chunks'], 'step')}"
        f"{f' ({where})' if where else ''}{preempted}, "
        f"{in_tokens(len(life['delivered']))} delivered, {life['ended'] or 'never ends'}"
    )


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
    reports: Sequence[Report], console: Console, verbose: bool, seconds: float
) -> None:
    """What `hitproof replay` prints of several histories: first those that do not conform."""
    for number, report in enumerate(reports, 1):
        if report.verdict is not Verdict.CONFORMS or verbose:
            about = f": {escape(report.history.about)}" if report.history.about else ""
            console.print(f"history {number} of {len(reports)}{about}")
            print_report(report, console, verbose)
            console.print()
    of_managers = [report for report in reports if isinstance(report, ReplayReport)]
    lookups = sum(len(report.lookups) for report in of_managers)
    steps = sum(len(report.steps) for report in of_managers)
    steps += sum(report.steps for report in reports if isinstance(report, SchedulerReport))
    console.print(
        f"{count(reports, 'history', 'histories')}, {count(steps, 'step')} played, "
        f"{count(lookups, 'lookup')} judged{_expected(of_managers)}; {seconds:.1f} s"
    )
    _print_verdict(worst(reports), reports, "on these histories", console)


def _print_verdict(
    verdict: Verdict, reports: Sequence[Report], where: str, console: Console
) -> None:
    findings = [found for report in reports for found in report.findings]
    of_managers = (report for report in reports if isinstance(report, ReplayReport))
    unmet = [each for report in of_managers for each in report.unmet]
    unsettled = next((report.unsettled for report in reports if report.unsettled), "")
    words = {
        Verdict.CONFORMS: f"[bold green]conforms[/] {where}",
        Verdict.DIVERGES: f"[bold red]diverges[/], {_and(findings, unmet)}",
        Verdict.INCONCLUSIVE: f"[bold yellow]inconclusive[/]: {escape(unsettled)}",
    }
    console.print(f"vLLM {escape(reports[0].target.label)}: {words[verdict]}")


def _and(findings: Sequence[Occurrence], unmet: Sequence[Comparison]) -> str:
    counted = [count(findings, "finding")] if findings or not unmet else []
    return " and ".join(counted + ([count(unmet, "unmet expectation")] if unmet else []))


def _expected(reports: Sequence[ReplayReport]) -> str:
    expected = [each for report in reports for each in report.expected]
    met = sum(each.is_met for each in expected)
    return f", {met} of {count(expected, 'expectation')} met" if expected else ""


def _print_unmet(report: ReplayReport, unmet: Comparison, console: Console) -> None:
    console.print("[bold red]not as expected[/]")
    console.print(f"  given : {escape(_step(report, unmet.step))}")
    wanted, actual = json.dumps(unmet.expected), json.dumps(unmet.actual)
    console.print(f"  {unmet.what:<6}: {escape(actual)}, not {escape(wanted)}")
    console.print()


def _print_finding(report: Report, found: Occurrence, console: Console) -> None:
    signature = found.signature
    console.print(f"[bold red]{signature.divergence}[/]: {escape(signature.headline)}")
    console.print(f"  code  : {signature.defect}", markup=False)
    if isinstance(report, ReplayReport):
        print_cited(signature.claim, signature.sentence, console)
    if found.cause is not None:
        console.print(f"  follows from: {escape(found.cause.headline)}")
    for number, fact in enumerate(_given(report, found)):
        console.print(f"  {'' if number else 'given :':<7} {escape(fact)}")
    shown = _shown(report, found) if isinstance(report, ReplayReport) else None
    for number, reason in enumerate(_untraced(report, found)):
        console.print(f"  {'' if number else 'why   :':<7} {escape(reason.text)}")
    console.print(f"  spec  : {escape(found.violation.spec)}")
    console.print(f"  vllm  : {escape(found.violation.actual)}")
    if shown is not None:
        console.print(f"  numbers: {escape(shown)}")
    if isinstance(report, ReplayReport) and (location := _location(report, found)) is not None:
        console.print(f"  {location}", markup=False)
    console.print()


def _untraced(report: Report, found: Occurrence) -> tuple[Reason, ...]:
    """Why it is a finding, where no trace says so."""
    if isinstance(report, SchedulerReport) or report.trace is not None:
        return ()
    return _reasons(report, found)


def _shown(report: ReplayReport, found: Occurrence) -> str | None:
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


def _computed(numeric: NumericOutcome) -> str:
    """How a history that was computed compares with no caching."""
    passes = count(numeric.passes, "pass", "passes")
    if not numeric.wrong:
        return (
            f"{passes} computed: logits are those of no caching, to {numeric.largest.largest:.0e}"
        )
    first = numeric.wrong[0]
    return (
        f"{passes} computed: logits of {len(numeric.wrong)} are not those of no caching; first "
        f"{first.in_words}"
    )


def _reasons(report: ReplayReport, found: Occurrence) -> tuple[Reason, ...]:
    """Why it is a finding; nothing for what follows from another one."""
    return () if found.cause is not None else report.reasons.get(found.signature, ())


def _location(report: ReplayReport, found: Occurrence) -> Location | None:
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

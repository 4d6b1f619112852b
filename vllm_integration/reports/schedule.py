"""Reports of scheduler histories as people and as programs read them."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.findings.replayed import of_workload
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.words import count, in_tokens
from hitproof.vllm_integration.gate.schedule import SchedulerReport
from hitproof.vllm_integration.verdict import Verdict


def scheduler_json(report: SchedulerReport) -> dict[str, Any]:
    """The report of `hitproof replay` on a scheduler history as JSON."""
    return {
        "verdict": report.verdict.label,
        "exit_code": int(report.verdict),
        "target": report.target.as_json(),
        "policies": report.policies,
        "requests": report.lives,
        "steps": report.steps,
        "findings": [
            {
                "claim": found.signature.claim,
                "cites": sort_of(found.signature.claim),
                "sentence": found.signature.sentence,
                "class": found.signature.divergence,
                "signature": found.signature.as_json(),
                "given": of_workload(report.history),
                "spec": found.violation.spec,
                "actual": found.violation.actual,
                "step": found.step,
                "times": found.times,
                "cause": None if found.cause is None else found.cause.as_json(),
            }
            for found in report.findings
        ],
        "ended": report.ended,
        "unsettled": report.unsettled,
        "seconds": round(report.seconds, 1),
    }


def print_scheduler(report: SchedulerReport, console: Console, verbose: bool) -> None:
    """What `hitproof replay` prints of a scheduler history."""
    for found in report.findings:
        _print_finding(report, found, console)
    for name, life in report.lives.items():
        console.print(escape(f"request {name}: {_life(life, verbose)}"), highlight=False)
    if report.ended:
        console.print(f"the history ends early: {escape(report.ended)}", highlight=False)
    if report.steps:
        console.print(
            f"{count(report.steps, 'step')} of the target's own scheduler played and judged; "
            f"{report.seconds:.1f} s",
            highlight=False,
        )
    words = {
        Verdict.CONFORMS: "[bold green]conforms[/] on this history",
        Verdict.DIVERGES: f"[bold red]diverges[/], {count(report.findings, 'finding')}",
        Verdict.INCONCLUSIVE: f"[bold yellow]inconclusive[/]: {escape(report.unsettled)}",
    }
    console.print(f"vLLM {escape(report.target.label)}: {words[report.verdict]}", highlight=False)


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


def _print_finding(report: SchedulerReport, found: Occurrence, console: Console) -> None:
    signature = found.signature
    console.print(
        f"[bold red]{signature.divergence}[/]: {escape(signature.headline)}", highlight=False
    )
    console.print(f"  code  : {signature.defect}", highlight=False, markup=False)
    if found.cause is not None:
        console.print(f"  follows from: {escape(found.cause.headline)}", highlight=False)
    again = f", {count(found.times, 'time')} in all" if found.times > 1 else ""
    given = [*of_workload(report.history), f"step {found.step} of the scheduler{again}"]
    for number, fact in enumerate(given):
        console.print(f"  {'' if number else 'given :':<7} {escape(fact)}", highlight=False)
    console.print(f"  spec  : {escape(found.violation.spec)}", highlight=False)
    console.print(f"  vllm  : {escape(found.violation.actual)}", highlight=False)
    console.print()

"""The report of an engine as people and as programs read it."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.engine.running import EngineReport, Outcome
from hitproof.vllm_integration.verdict import Verdict


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
    for outcome in report.outcomes:
        _print_outcome(outcome, console, verbose)
    if report.ended:
        console.print(f"the engine: {report.ended}", markup=False)
    own = report.target.version == report.build and report.target.is_release
    where = "its own build for CPUs" if own else f"over the compiled extension of {report.build}"
    words = {
        Verdict.CONFORMS: "[bold green]outputs with and without the cache are equal[/]",
        Verdict.DIVERGES: "[bold red]diverges[/]",
        Verdict.INCONCLUSIVE: "[bold yellow]inconclusive[/]",
    }
    console.print(
        f"vLLM {escape(report.target.label)} ({where}): {words[report.verdict]}; "
        f"{report.seconds:.0f} s"
    )


def _print_outcome(outcome: Outcome, console: Console, verbose: bool) -> None:
    data, judged = outcome.data, outcome.summary
    if not data:
        console.print(f"{outcome.case}: {outcome.unsettled}", markup=False)
        return
    groups = ", ".join(f"{name.removesuffix('Manager')} {size}" for name, size in data["groups"])
    console.print(f"[bold]{escape(str(outcome.case))}[/] ({groups})")
    console.print(
        f"  {count(data['requests'], 'request')}, {data['hits']} with a hit "
        f"({data['hit_tokens']} tokens), {count(data['evictions'], 'eviction')}, "
        f"{count(data['preemptions'], 'preemption')}"
    )
    console.print(
        f"  numbers: {data['tokens']} distributions compared, largest difference "
        f"{data['worst']:.1e}, noise {data['noise']:.1e}, threshold {data['threshold']:.1e}"
    )
    if outcome.different:
        first = outcome.different[0]
        console.print(
            f"  [bold red]wrong numbers[/] in {count(len(outcome.different), 'request')}, first "
            f"in request {first['request']} at its token {first['token']}: {first['size']:.2g}"
        )
    if judged:
        console.print(
            f"  shadow: {count(judged['operations'], 'operation')}, "
            f"{count(judged['lookups'], 'lookup')} ({judged['hits']} with a hit), "
            f"{count(judged['blocks'], 'registered block')}, {count(judged['audits'], 'audit')}"
        )
    for what, found in (("new", outcome.seen), ("known", outcome.known if verbose else [])):
        for each in found:
            signature = Signature.from_json(each["signature"])
            line = f"{signature.divergence}: {signature.headline} ({signature.claim})"
            console.print(f"    {what}: {line}", markup=False)
    if outcome.known and not verbose:
        signatures = count(len(outcome.known), "signature")
        console.print(f"    known divergences of {signatures}")
    for why, times in judged.get("not_judged", {}).items():
        console.print(f"    not judged, {count(times, 'time')}: {why}", markup=False)
    if outcome.unsettled:
        console.print(f"  [bold yellow]inconclusive[/]: {outcome.unsettled}")

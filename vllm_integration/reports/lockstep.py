"""Reports of lockstep as people and as programs read them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.lockstep import LockstepFinding, LockstepReport
from hitproof.vllm_integration.reports.causes import known_from, named
from hitproof.vllm_integration.reports.lines import print_cited
from hitproof.vllm_integration.reports.text import print_demonstration
from hitproof.vllm_integration.reports.traces import print_trace
from hitproof.vllm_integration.survey.faults import Fault
from hitproof.vllm_integration.verdict import Verdict


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
    for found in report.findings:
        _print_finding(found, named(_known_from(found, report)), console, verbose)
    for found in report.faults:
        console.print(
            f"[bold red]defect in hitproof[/]: {escape(' of '.join(reversed(found.what)))} "
            f"differs in {_histories(found)}, and the reference violates the spec there"
        )
        _print_case(found, console)
    if verbose:
        for found, entry in report.known:
            console.print(f"known, in {_histories(found)}: {_words(found)}")
            console.print(f"  {escape(entry.reason.strip())}")
    rate = report.histories / report.seconds if report.seconds else 0.0
    console.print(
        f"{count(report.histories, 'history', 'histories')} (seed {escape(report.seed)}), "
        f"{count(report.steps, 'step')}, {count(report.calls, 'call')} compared; "
        f"{report.seconds:.1f} s, {rate:.0f} histories a second"
    )
    classes = Counter(found.what["divergence"] for found, _ in report.known)
    by_class = ", ".join(f"{name}: {classes[name]}" for name in SEVERITY if classes[name])
    known = f", {count(report.known, 'known finding')} ({by_class})" if report.known else ""
    words = {
        Verdict.CONFORMS: f"[bold green]in lockstep with the reference[/]{known}",
        Verdict.DIVERGES: f"[bold red]diverges[/], {count(report.findings, 'new finding')}",
        Verdict.INCONCLUSIVE: f"[bold yellow]inconclusive[/]: {escape(report.unsettled)}",
        Verdict.INTERNAL: "[bold red]the reference violates the spec[/]; "
        "a defect in hitproof, please report it",
    }
    console.print(f"vLLM {escape(report.target.label)}: {words[report.verdict]}")


def _histories(found: LockstepFinding) -> str:
    return count(found.times, "history", "histories")


def _words(found: LockstepFinding) -> str:
    what = found.what
    kind = what["kind"].replace("_", " ")
    return escape(f"{what['divergence']}: {kind}: {what['pattern']}")


def _known_from(found: LockstepFinding, report: LockstepReport) -> Sequence[Fault]:
    return known_from(Signature.from_json(found.what), report.target.version)


def _print_finding(found: LockstepFinding, fault: str, console: Console, verbose: bool) -> None:
    console.print(f"[bold]{_words(found)}[/], in {_histories(found)}")
    signature = Signature.from_json(found.what)
    console.print(f"  code  : {escape(str(signature.defect))}")
    if fault:
        console.print(f"  fault : {escape(fault)}")
    print_cited(signature.claim, signature.sentence, console)
    console.print(f"  spec  : {escape(str(found.shown.get('spec')))}")
    console.print(f"  vllm  : {escape(str(found.shown.get('actual')))}")
    if found.location is not None:
        console.print(f"  {found.location}", markup=False)
    _print_case(found, console)
    if verbose and found.trace is not None:
        print_trace(Trace.model_validate(found.trace), console)
        console.print()


def _print_case(found: LockstepFinding, console: Console) -> None:
    difference = found.shown.get("difference", found.shown) or {}
    if difference:
        for side in ("real", "reference"):
            console.print(
                f"  {'vllm' if side == 'real' else side}: step {difference['step']}, "
                f"{difference['call']}, {difference['field']}: {escape(difference[side])}"
            )
    for line in found.smallest.splitlines():
        console.print(f"    {escape(line)}")
    print_demonstration(found.case, console)
    console.print()

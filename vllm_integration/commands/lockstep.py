"""``hitproof lockstep``."""

import time
from pathlib import Path

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.options import Classes, Format, OneWorker
from hitproof.vllm_integration.commands.running import announce, failures, progress, show
from hitproof.vllm_integration.gate.lockstep import run
from hitproof.vllm_integration.reports.lockstep import lockstep_json, print_lockstep
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve


def lockstep(
    target: str,
    histories: int = 200,
    seed: str = "1",
    shrink_budget: int = 2_000,
    output: Format = Format.TEXT,
    ledger: Path = LEDGER,
    limits: OneWorker = Limits(timeout=120.0),
    pytest: Path | None = None,
    classes: Classes = Classes(),
    verbose: bool = False,
) -> None:
    """Play generated histories on vLLM's real manager and on the reference, step by step.

    All observable state must agree after every call, except where the target violates a claim.
    """
    started = time.monotonic()
    with failures(output):
        entries = load(ledger)
        resolved = classes.of(resolve(target, announce=announce))
        with progress(f"playing vLLM {resolved.name}") as done:
            report = run(
                resolved,
                entries,
                limits,
                histories=histories,
                seed=seed,
                shrink_budget=shrink_budget,
                progress=done,
            )
        if pytest is not None:
            cases = [found.case for found in report.findings]
            ran = write_and_run(pytest, cases, resolved, limits)
            for found in report.findings:
                found.case = ran.get(found.case.name, found.case)
    report.seconds = time.monotonic() - started
    show(
        output,
        lambda: lockstep_json(report),
        lambda console: print_lockstep(report, console, verbose),
    )
    raise typer.Exit(int(report.verdict))

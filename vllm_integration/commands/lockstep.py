"""``hitproof lockstep``."""

import time
from typing import Annotated

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.options import (
    MEMORY,
    PYTHON,
    Aliases,
    Coordinators,
    Format,
    Ledger,
    Managers,
    Memory,
    Output,
    Pytest,
    Python,
    Release,
    TargetName,
    Timeout,
    Verbose,
    in_bytes,
)
from hitproof.vllm_integration.commands.running import (
    announce,
    failures,
    progress,
    show,
    with_classes,
)
from hitproof.vllm_integration.gate.lockstep import run
from hitproof.vllm_integration.reports.lockstep import lockstep_json, print_lockstep
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.sandbox.driver import find_python
from hitproof.vllm_integration.targets.resolving import resolve


def lockstep(
    target: TargetName,
    histories: Annotated[
        int, typer.Option("--histories", min=1, help="Number of histories to play.")
    ] = 200,
    seed: Annotated[str, typer.Option("--seed", help="Equal seeds give equal histories.")] = "1",
    shrink_budget: Annotated[
        int,
        typer.Option(
            "--shrink-budget", min=0, help="Maximum number of histories to try per shrink."
        ),
    ] = 2_000,
    output: Output = Format.TEXT,
    python: Python = PYTHON,
    ledger: Ledger = LEDGER,
    timeout: Timeout = 120.0,
    memory: Memory = MEMORY,
    pytest: Pytest = None,
    manager: Managers = None,
    coordinator: Coordinators = None,
    alias: Aliases = None,
    release: Release = None,
    verbose: Verbose = False,
) -> None:
    """Play generated histories on vLLM's real manager and on the reference, step by step.

    All observable state must agree after every call, except where the target violates a claim.
    """
    started = time.monotonic()
    with failures(output):
        entries = load(ledger)
        interpreter = find_python(python)
        resolved = with_classes(
            resolve(target, announce=announce), manager, coordinator, release, alias
        )
        with progress(f"playing vLLM {resolved.name}") as done:
            report = run(
                resolved,
                entries,
                histories=histories,
                seed=seed,
                shrink_budget=shrink_budget,
                python=interpreter,
                timeout=timeout,
                memory=in_bytes(memory),
                progress=done,
            )
        if pytest is not None:
            cases = [found.case for found in report.findings]
            ran = write_and_run(pytest, cases, resolved, interpreter, timeout)
            for found in report.findings:
                found.case = ran.get(found.case.name, found.case)
    report.seconds = time.monotonic() - started
    show(
        output,
        lambda: lockstep_json(report),
        lambda console: print_lockstep(report, console, verbose),
    )
    raise typer.Exit(int(report.verdict))

"""``hitproof lockstep``."""

from functools import partial
from pathlib import Path

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Classes, OneWorker
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate.lockstep import run
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.lockstep import lockstep_json, print_lockstep
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.sandbox.driver import Limits


@command()
def lockstep(
    target: str,
    classes: Classes,
    histories: int = 200,
    seed: str = "1",
    shrink_budget: int = 2_000,
    ledger: Path = LEDGER,
    limits: OneWorker = Limits(timeout=120.0),
    pytest: Path | None = None,
    verbose: bool = False,
) -> Answer:
    """Play generated histories on vLLM's real manager and on the reference, step by step.

    All observable state must agree after every call, except where the target violates a claim.
    """
    entries = load(ledger)
    resolved = classes.of(resolve(target))
    with progress(f"playing vLLM {resolved.name}") as done:
        report = run(
            Run(resolved, entries=entries, limits=limits),
            histories=histories,
            seed=seed,
            shrink_budget=shrink_budget,
            progress=done,
        )
    if pytest is not None:
        ran = write_and_run(pytest, [found.case for found in report.findings], resolved, limits)
        for found in report.findings:
            found.case = ran.get(found.case.name, found.case)
    shown = partial(print_lockstep, report, verbose=verbose), partial(lockstep_json, report)
    return Answer(report.verdict, *shown, of=report)

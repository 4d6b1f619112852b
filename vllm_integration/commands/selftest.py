"""``hitproof selftest``."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import EQUIVALENTS, LEDGER
from hitproof.vllm_integration.commands.options import Format, Without
from hitproof.vllm_integration.commands.running import announce, failures, progress, show
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate import equivalents
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selftest import Chosen, NoTests, UnknownFunction, run
from hitproof.vllm_integration.reports.selftest import print_selftest, selftest_json
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve

_AT_LEAST = {
    (Family.SINGLE_POINT, Profile.QUICK): 92.0,
    (Family.SINGLE_POINT, Profile.DEFAULT): 97.0,
    (Family.STRUCTURED, Profile.QUICK): 0.0,
    (Family.STRUCTURED, Profile.DEFAULT): 95.0,
    (Family.SCHEDULER, Profile.QUICK): 0.0,
    (Family.SCHEDULER, Profile.DEFAULT): 90.0,
    (Family.LIFECYCLE, Profile.QUICK): 0.0,
    (Family.LIFECYCLE, Profile.DEFAULT): 0.0,
    (Family.TIERS, Profile.QUICK): 0.0,
    (Family.TIERS, Profile.DEFAULT): 80.0,
}


def selftest(
    target: str,
    family: Family = Family.SINGLE_POINT,
    quick: bool = False,
    function: list[str] | None = None,
    sample: int | None = None,
    seed: int = 0,
    upstream: bool = False,
    at_least: float | None = None,
    output: Format = Format.TEXT,
    ledger: Path = LEDGER,
    same: Path = EQUIVALENTS,
    timeout: float = 20.0,
    limits: Annotated[Limits, Without(("timeout",))] = Limits(),
    verbose: bool = False,
) -> None:
    """Test the checks: count the mutants of vLLM's code that `check` catches.

    The target's lookups, masks, cache_blocks and coordinators are mutated. A mutant is caught if
    the gate reports something that it does not report for the target: a finding, a timeout, or,
    without a finding, an inconclusive claim or a known divergence that has shrunk.
    """
    started = time.monotonic()
    profile = Profile.QUICK if quick else Profile.DEFAULT
    wanted = _AT_LEAST[family, profile] if at_least is None else at_least
    with failures(output, NoTests, UnknownFunction):
        entries, known_same = load(ledger), equivalents.load(same)
        resolved = resolve(target, announce=announce)
        with progress(f"mutants of vLLM {resolved.name}") as done:
            report = run(
                Run(resolved, profile, entries, replace(limits, timeout=timeout)),
                known_same,
                Chosen(family, function or (), sample, seed, upstream),
                done,
            )
    report.seconds = time.monotonic() - started
    show(
        output,
        lambda: selftest_json(report, wanted),
        lambda console: print_selftest(report, wanted, console, verbose),
    )
    raise typer.Exit(int(report.verdict(wanted)))

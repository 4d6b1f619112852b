"""``hitproof selftest``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import EQUIVALENTS, LEDGER
from hitproof.vllm_integration.commands.options import (
    Format,
    Ledger,
    Output,
    TargetName,
    Verbose,
    Without,
)
from hitproof.vllm_integration.commands.running import (
    announce,
    fail,
    failures,
    progress,
    show,
)
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate import equivalents
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selftest import Chosen, NoTests, UnknownFunction, run
from hitproof.vllm_integration.reports.selftest import print_selftest, selftest_json
from hitproof.vllm_integration.sandbox.driver import (
    Limits,
)
from hitproof.vllm_integration.targets.resolving import (
    resolve,
)
from hitproof.vllm_integration.verdict import Verdict


@contextmanager
def _unknown_is_usage(output: Format) -> Iterator[None]:
    try:
        yield
    except (NoTests, UnknownFunction) as unknown:
        fail(Verdict.USAGE, str(unknown), output)


_AT_LEAST = {
    (Family.SINGLE_POINT, Profile.QUICK): 92.0,
    (Family.SINGLE_POINT, Profile.DEFAULT): 97.0,
    (Family.STRUCTURED, Profile.QUICK): 0.0,
    (Family.STRUCTURED, Profile.DEFAULT): 95.0,
    (Family.SCHEDULER, Profile.QUICK): 0.0,
    (Family.SCHEDULER, Profile.DEFAULT): 90.0,
    (Family.TIERS, Profile.QUICK): 0.0,
    (Family.TIERS, Profile.DEFAULT): 80.0,
}


def selftest(
    target: TargetName,
    family: Annotated[
        Family, typer.Option("--family", help="Kind of mutants.")
    ] = Family.SINGLE_POINT,
    quick: Annotated[
        bool, typer.Option("--quick", help="Judge the mutants as `check --quick` does.")
    ] = False,
    function: Annotated[
        list[str] | None,
        typer.Option(
            "--function", help="Mutate only this function; repeatable.", show_default=False
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", min=1, help="Judge a random sample of this size.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sample.")] = 0,
    upstream: Annotated[
        bool,
        typer.Option(
            "--upstream",
            help="Run vLLM's own prefix-cache tests on surviving mutants; fail if they catch one.",
        ),
    ] = False,
    at_least: Annotated[
        float | None,
        typer.Option(
            "--at-least",
            min=0.0,
            max=100.0,
            help="Required share of caught mutants, in percent. [default: single-point 97, with "
            "--quick 92; structured 95, scheduler 90, none for these two with --quick]",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TEXT,
    ledger: Ledger = LEDGER,
    same: Annotated[
        Path,
        typer.Option(
            "--equivalents",
            help="List of equivalent mutants, with reasons. [default: hitproof's own]",
            show_default=False,
        ),
    ] = EQUIVALENTS,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            help="CPU time limit per mutant, in seconds.",
        ),
    ] = 20.0,
    limits: Annotated[Limits, Without(("timeout",))] = Limits(),
    verbose: Verbose = False,
) -> None:
    """Test the checks: count the mutants of vLLM's code that `check` catches.

    The target's lookups, masks, cache_blocks and coordinators are mutated. A mutant is caught if
    the gate reports something that it does not report for the target: a finding, a timeout, or,
    without a finding, an inconclusive claim or a known divergence that has shrunk.
    """
    started = time.monotonic()
    profile = Profile.QUICK if quick else Profile.DEFAULT
    wanted = _AT_LEAST[family, profile] if at_least is None else at_least
    with failures(output):
        entries, known_same = load(ledger), equivalents.load(same)
        resolved = resolve(target, announce=announce)
        with _unknown_is_usage(output), progress(f"mutants of vLLM {resolved.name}") as done:
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

"""``hitproof engine``."""

import time
from pathlib import Path
from typing import Annotated

import typer

from hitproof.vllm_integration.commands.options import Format, Output, TargetName, Verbose
from hitproof.vllm_integration.commands.running import announce, fail, failures, show
from hitproof.vllm_integration.engine.environment import engine_python
from hitproof.vllm_integration.engine.models import EAGLE_KINDS, Kind
from hitproof.vllm_integration.engine.planting import PLANTED, Planted
from hitproof.vllm_integration.engine.report import engine_json, print_engine
from hitproof.vllm_integration.engine.running import Case, run
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def engine(
    target: TargetName,
    model: Annotated[
        list[Kind] | None,
        typer.Option(
            "--model", help="Layer kinds of the tiny model; repeatable.", show_default="all"
        ),
    ] = None,
    eagle: Annotated[bool, typer.Option("--eagle", help="Draft with an EAGLE head.")] = False,
    plant: Annotated[
        Planted | None,
        typer.Option(
            "--plant", help="Inject this fault into the managers, which must then diverge."
        ),
    ] = None,
    seed: Annotated[str, typer.Option("--seed", help="Equal seeds give equal workloads.")] = "1",
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Record the engine's calls of its managers to DIR, as histories for replay.",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TEXT,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1, help="Time limit for all models together, in seconds."),
    ] = 900.0,
    verbose: Verbose = False,
) -> None:
    """Run a real engine of vLLM on the CPU, with and without the cache, under the shadow.

    The log probabilities of every sampled token are compared, and the shadow judges every call of
    the manager. `make engine` sets up the environment.
    """
    started = time.monotonic()
    kinds = model or [kind for kind in Kind if not eagle or kind in EAGLE_KINDS]
    if plant is not None and model is None:
        kinds = [kind for kind in kinds if plant in PLANTED[kind]]
    for kind in kinds:
        if eagle and kind not in EAGLE_KINDS:
            able = ", ".join(EAGLE_KINDS)
            fail(Verdict.USAGE, f"--eagle runs with the models {able}, not with {kind}", output)
        if plant is not None and plant not in PLANTED[kind]:
            able = ", ".join(each for each in Kind if plant in PLANTED[each])
            sentence = f"--plant {plant} is for the models {able}, not for {kind}"
            fail(Verdict.USAGE, sentence, output)
    with failures(output):
        engine_python()
        resolved = resolve(target, announce=announce)
        cases = [Case(kind, eagle, plant) for kind in kinds]
        report = run(resolved, cases, seed=seed, timeout=timeout, record=record)
    report.seconds = time.monotonic() - started
    show(
        output,
        lambda: engine_json(report),
        lambda console: print_engine(report, console, verbose),
    )
    raise typer.Exit(int(report.verdict))

"""``hitproof engine``."""

import time
from pathlib import Path

import typer

from hitproof.vllm_integration.commands.options import Format
from hitproof.vllm_integration.commands.running import announce, fail, failures, show
from hitproof.vllm_integration.engine.environment import engine_python
from hitproof.vllm_integration.engine.models import EAGLE_KINDS, Kind
from hitproof.vllm_integration.engine.planting import PLANTED, Planted
from hitproof.vllm_integration.engine.report import engine_json, print_engine
from hitproof.vllm_integration.engine.running import Case, run
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def engine(
    target: str,
    model: list[Kind] | None = None,
    eagle: bool = False,
    plant: Planted | None = None,
    seed: str = "1",
    record: Path | None = None,
    output: Format = Format.TEXT,
    timeout: float = 900.0,
    verbose: bool = False,
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
        output, lambda: engine_json(report), lambda console: print_engine(report, console, verbose)
    )
    raise typer.Exit(int(report.verdict))

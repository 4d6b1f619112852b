"""``hitproof engine``."""

from functools import partial
from pathlib import Path

from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Refusal
from hitproof.vllm_integration.commands.running import resolve
from hitproof.vllm_integration.engine.environment import engine_python
from hitproof.vllm_integration.engine.models import EAGLE_KINDS, Kind
from hitproof.vllm_integration.engine.planting import PLANTED, Planted
from hitproof.vllm_integration.engine.report import engine_json, print_engine
from hitproof.vllm_integration.engine.running import Case, run


@command()
def engine(
    target: str,
    model: list[Kind] | None = None,
    eagle: bool = False,
    plant: Planted | None = None,
    seed: str = "1",
    record: Path | None = None,
    timeout: float = 900.0,
    verbose: bool = False,
) -> Answer:
    """Run a real engine of vLLM on the CPU, with and without the cache, under the shadow.

    The log probabilities of every sampled token are compared, and the shadow judges every call of
    the manager. `make engine` sets up the environment.
    """
    kinds = model or [kind for kind in Kind if not eagle or kind in EAGLE_KINDS]
    if plant is not None and model is None:
        kinds = [kind for kind in kinds if plant in PLANTED[kind]]
    for kind in kinds:
        if eagle and kind not in EAGLE_KINDS:
            able = ", ".join(EAGLE_KINDS)
            raise Refusal(f"--eagle runs with the models {able}, not with {kind}")
        if plant is not None and plant not in PLANTED[kind]:
            able = ", ".join(each for each in Kind if plant in PLANTED[each])
            raise Refusal(f"--plant {plant} is for the models {able}, not for {kind}")
    engine_python()
    cases = [Case(kind, eagle, plant) for kind in kinds]
    report = run(resolve(target), cases, seed=seed, timeout=timeout, record=record)
    shown = partial(print_engine, report, verbose=verbose), partial(engine_json, report)
    return Answer(report.verdict, *shown, of=report)

"""What faults cost: the hit rate of the reference with such a behaviour switched on, and without.

On record, beside the faults; ``python -m hitproof.vllm_integration.survey.costs`` measures it anew
with simulations (`conformance.simulation`). Only faults that the reference can have are measured.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hitproof.conformance.emulation.releases import Policies, ReplayPolicy
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.simulation import generators
from hitproof.conformance.simulation.hash_file import HashFile
from hitproof.conformance.simulation.player import Simulation
from hitproof.conformance.simulation.reference import SimulatedReference
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.bundled import COSTS
from hitproof.vllm_integration.gate.simulate import engine_of

_REQUESTS, _TOKENS, _POOL, _CHUNK = 60, 8192, 2.5, 2048
WORKLOADS = {"chat": generators.chat, "resends": generators.resends}
"""What the costs are measured on."""
SETTING = (
    f"The hit rate of the reference, without and with such a behaviour, on {_REQUESTS} requests of "
    f"up to {_TOKENS} tokens and in a pool for {_POOL} of them"
)
"""How they are measured, for readers."""


@dataclass(frozen=True)
class Behaviour:
    """A fault as the reference can have it.

    Attributes:
        policies: the spec's policies, but for the fault.
        eagle: whether draft layers run.
        retention: the retention interval in tokens; None is dense.
    """

    policies: Policies
    eagle: bool
    retention: int | None


def _registers_all(kind: GroupKind) -> Policies:
    return Policies(thinned_kinds=frozenset(GroupKind) - {kind})


BEHAVIOURS: Mapping[int, Behaviour] = {
    10: Behaviour(Policies(replays=ReplayPolicy.LAST_TOKEN_RECOMPUTED), False, 0),
    11: Behaviour(Policies(replays=ReplayPolicy.LAST_TOKEN_RECOMPUTED), True, 0),
    14: Behaviour(_registers_all(GroupKind.SLIDING_WINDOW), False, None),
    16: Behaviour(_registers_all(GroupKind.CHUNKED_LOCAL), False, None),
    17: Behaviour(_registers_all(GroupKind.MAMBA), False, None),
    32: Behaviour(Policies(replays=ReplayPolicy.ALIGNMENT_DROPPED), True, 0),
}
"""Those that are measured, by the number of the fault."""


@dataclass(frozen=True)
class Cost:
    """What a fault costs on a model and a workload.

    Attributes:
        workload: one of `WORKLOADS`.
        model: the model.
        without: the share of prompt tokens that are hit without it.
        with_it: the same with it.
    """

    workload: str
    model: str
    without: float
    with_it: float

    @property
    def percent(self) -> tuple[str, str]:
        """Both in percent."""
        return f"{100 * self.without:.1f} %", f"{100 * self.with_it:.1f} %"

    @property
    def changes(self) -> bool:
        """Whether they differ as they are shown."""
        return self.percent[0] != self.percent[1]


def measure(models: Sequence[Model] = MODELS) -> dict[int, list[Cost]]:
    """The costs of each fault, on each model that supports it."""
    return {
        number: [
            Cost(
                workload,
                model.name,
                _rate(workload, model, found, Policies()),
                _rate(workload, model, found, found.policies),
            )
            for workload in WORKLOADS
            for model in models
            if model.configurations(found.eagle)
        ]
        for number, found in BEHAVIOURS.items()
    }


def read() -> dict[int, list[Cost]]:
    """The costs on record, by the number of the fault."""
    raw = json.loads(COSTS.read_text(encoding="utf-8"))
    return {int(number): [Cost(**each) for each in costs] for number, costs in raw.items()}


def in_words(costs: Sequence[Cost]) -> str:
    """What a fault costs, in sentences."""
    parts = []
    for workload in WORKLOADS:
        changed = [each for each in costs if each.workload == workload and each.changes]
        rates = ", ".join(f"{e.model} {e.percent[0]} to {e.percent[1]}" for e in changed)
        parts.append(f"{workload}: {rates or 'no change'}")
    return f"{SETTING}; {'; '.join(parts)}. On the other preset models it does not change."


def _rate(workload: str, model: Model, behaviour: Behaviour, policies: Policies) -> float:
    made = WORKLOADS[workload](_REQUESTS, _TOKENS, 1)
    engine = engine_of(
        model, made, eagle=behaviour.eagle, chunk=_CHUNK, blocks=None, pool_requests=_POOL
    )
    engine = replace(engine, retention_interval=behaviour.retention)
    with tempfile.TemporaryDirectory(prefix="hitproof-") as home:
        hashes = HashFile(Path(home) / "hashes", engine.hash_block_size)
        arrivals = hashes.write(made)
        played = Simulation(SimulatedReference(engine, policies), engine, arrivals, hashes)
        while not played.done:
            played.advance(60)
    hits = sum(each.hit for each in played.served)
    return round(hits / sum(each.prompt for each in arrivals), 4)


def main() -> None:
    """Measure anew, and keep it."""
    found = {str(n): [asdict(each) for each in costs] for n, costs in measure().items()}
    COSTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

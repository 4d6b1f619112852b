"""The worker's side of simulations."""

from functools import cache
from pathlib import Path
from typing import Any

from hitproof.conformance.simulation.hash_file import Arrival, HashFile
from hitproof.conformance.simulation.player import Simulation
from hitproof.conformance.simulation.workload import engine_adapter
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.releases.policies import Junctions
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.simulation import SimulatedVllm
from hitproof.vllm_integration.adapter.subject import VllmSubject


@cache
def _begun() -> dict[str, Simulation]:
    """The simulation that goes on from question to question."""
    return {}


def simulate(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Begin a simulation, where there is an ``engine``, or go on with it for ``seconds``."""
    begun = _begun()
    try:
        if "engine" in message:
            engine = engine_adapter().validate_python(message["engine"])
            keeps = subject.junctions is Junctions.KEPT
            manager = SimulatedVllm(VllmManagers(), engine, subject.lookahead_horizon, keeps)
            begun["now"] = Simulation(
                manager,
                engine,
                [Arrival(*each) for each in message["arrivals"]],
                HashFile(
                    Path(message["hashes"]),
                    engine.hash_block_size,
                    engine.num_hash_lookahead_tokens,
                ),
                message["max_num_seqs"],
            )
        simulation = begun["now"]
        simulation.advance(message["seconds"])
    except Exception as error:
        begun.clear()
        crashes = classify(error) is FailureKind.CRASH
        reason = f"it raises {error!r:.300}" if crashes else refusal_of(error)
        return {"cannot": reason, "crashed": crashes}
    found: dict[str, Any] = {"done": simulation.done, "tokens": simulation.tokens}
    if simulation.done:
        found |= simulation.results()
        begun.clear()
    return found

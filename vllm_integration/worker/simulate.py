"""The worker's side of simulations."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.json_format import as_plain
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.picking import picked
from hitproof.conformance.simulation.hash_file import Arrival, HashFile
from hitproof.conformance.simulation.player import Served, Simulation
from hitproof.conformance.simulation.tiers import TierSetup, tier_levels
from hitproof.conformance.simulation.workload import MOST_TOKENS, engine_adapter
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.policies import Junctions
from hitproof.vllm_integration.adapter.engine import DraftModel, Engine, OutOfReach, Refused
from hitproof.vllm_integration.adapter.engine import Served as Told
from hitproof.vllm_integration.adapter.executor import ROOM
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.simulation import SimulatedVllm, count_handed_out
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.doctor import model_directory, setup_of, tier_of


@cache
def _begun() -> dict[str, Any]:
    """The simulation that goes on from question to question, and a deployment before it."""
    return {}


@dataclass(frozen=True)
class _Deployed:
    """An engine with a tier."""

    engine: Engine
    tier: TierSetup
    junctions: bool


def _deploy(
    subject: VllmSubject,
    begun: dict[str, Any],
    config: str,
    arguments: list[str],
    pool_requests: float | None,
) -> dict[str, Any]:
    """Start an engine; its pool has room for ``pool_requests`` requests of the greatest length."""
    try:
        engine = Engine(model_directory(config), arguments)
        if pool_requests is not None:
            blocks = 1 + ceil(engine.num_blocks * pool_requests / ROOM)
            more = ["--num-gpu-blocks-override", str(blocks)]
            engine = Engine(model_directory(config), [*arguments, *more])
    except (Refused, OutOfReach, DraftModel) as end:
        return {"cannot": str(end), "refused": isinstance(end, Refused)}
    if engine.tier is None:
        return {"cannot": "there is no KV connector, or it has turned itself off", "refused": True}
    setup = setup_of(engine)
    tier = tier_of(engine, setup, subject)
    begun["tier"] = _Deployed(engine, tier, subject.junctions is Junctions.KEPT)
    found = EngineConfiguration(
        setup.groups,
        setup.num_blocks,
        setup.hash_block_size,
        engine.config.model_config.max_model_len,
        max_num_batched_tokens=engine.config.scheduler_config.max_num_batched_tokens,
        use_eagle=setup.use_eagle,
        num_hash_lookahead_tokens=setup.hash_lookahead,
        retention_interval=setup.retention,
    )
    return {"engine": as_plain(found), "tier": picked(tier, "name", "room")}


class _Tiered:
    """A workload on a real engine with a tier, request by request.

    ``requests`` have the ranges of their prompts and outputs, how many tokens they share with one
    that was served before, and the tokens of that one's prompt, and in all.
    """

    def __init__(self, deployed: _Deployed, requests: Sequence[Any]) -> None:
        self._deployed, self._requests = deployed, deque(enumerate(requests))
        self._ever: list[set[bytes]] = [set() for _ in deployed.engine.groups()]
        self._counts = count_handed_out(deployed.engine.pool)
        self.served: list[Served] = []
        self.tokens = 0

    @property
    def done(self) -> bool:
        return not self._requests

    def advance(self, seconds: float) -> None:
        """Serve requests for so long."""
        until = perf_counter() + seconds
        while self._requests and perf_counter() < until:
            self.served.append(self._serve(*self._requests.popleft()))

    def results(self) -> dict[str, Any]:
        """As those of a `Simulation`; nothing is timed."""
        return {"served": [asdict(each) for each in self.served], "samples": [], "operations": {}}

    def _serve(self, number: int, request: Any) -> Served:
        prompt, output, shared, *donor = request
        tokens, answer = _tokens(prompt), _tokens(output)
        engine, tier = self._deployed.engine, self._deployed.tier
        stored: list[set[int]] = []
        ever: list[set[int]] = []

        def look(hashes: Sequence[bytes]) -> None:
            stored.extend(engine.tier_has(hashes))
            for known, (group, _, _) in zip(self._ever, engine.groups(), strict=True):
                keys = engine.chunk_keys(hashes, group)
                ever.append({place for place, key in enumerate(keys) if bytes(key) in known})

        told = engine.serve(tokens, max(1, len(answer)), answer, look)
        self.tokens += told.steps[-1][1] - told.hit
        self._note(told)
        cap, local = len(tokens) - 1, told.hit - told.loaded
        levels, code = tier_levels(tier, cap, shared, local, stored, ever, *donor)
        if told.hit < levels[-1][1]:
            code = Code.TIER_HIT_TOO_SHORT
        ends = None
        if any(group.kind is GroupKind.MAMBA for group in tier.layout.groups):
            ends = [told.hit, *(end for _, end in told.steps if end % tier.layout.alignment == 0)]
        return Served(
            number,
            told.hit,
            told.hit,
            evictions=self._counts.evictions,
            junctions=self._deployed.junctions,
            # The levels have what lookups do not look for.
            horizon=MOST_TOKENS,
            ends=ends,
            of_tier=told.loaded,
            tier={"levels": levels, "code": code or ""},
        )

    def _note(self, told: Told) -> None:
        """Note what the tier has of a request that was served."""
        engine, hashes = self._deployed.engine, self._deployed.engine.hashes(told)
        for known, places, (group, _, _) in zip(
            self._ever, engine.in_tier(told), engine.groups(), strict=True
        ):
            keys = engine.chunk_keys(hashes, group)
            known.update(bytes(keys[place]) for place in places)


def _tokens(ranges: Sequence[Sequence[int]]) -> list[int]:
    return [token for first, last in ranges for token in range(first, last + 1)]


def simulate(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Begin a simulation, where there is an ``engine``, or go on with it for ``seconds``.

    With ``deploy`` an engine with a tier is started, which answers with its configuration, and
    begins with ``requests``.
    """
    begun = _begun()
    if "deploy" in message:
        return _deploy(subject, begun, **message["deploy"])
    try:
        if "requests" in message:
            begun["now"] = _Tiered(begun.pop("tier"), message["requests"])
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

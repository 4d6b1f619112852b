"""Simulations: one workload on targets and on the reference, one after another."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from hitproof.conformance.emulation import releases
from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.histories.json_format import as_plain
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.scope.models import Model
from hitproof.conformance.simulation.bounds import Bound, blocks_of_request, bounds, cache_setup
from hitproof.conformance.simulation.causes import Cause, fault_codes, losses
from hitproof.conformance.simulation.hash_file import Arrival, HashFile
from hitproof.conformance.simulation.player import Served, Simulation
from hitproof.conformance.simulation.reference import SimulatedReference
from hitproof.conformance.simulation.workload import Workload, WorkloadError, engine_adapter
from hitproof.vllm_integration.gate.doctor import Model as DoctorModel
from hitproof.vllm_integration.gate.lockstep import policies_name
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.sandbox.driver import Limits, WorkerGone
from hitproof.vllm_integration.targets.target import Target

_BATCH_SECONDS = 1.0
Progress = Callable[[str, int, int], None]
"""``progress(phase, done, total)``."""


@dataclass(frozen=True)
class Deployment:
    """What a workload is played on.

    Attributes:
        engine: the engine, with dense retention.
        retentions: retention intervals to play it with; None is dense.
        max_num_seqs: the most requests that run at a time.
        name: the model, or where the engine comes from.
    """

    engine: EngineConfiguration
    retentions: tuple[int | None, ...]
    max_num_seqs: int
    name: str


@dataclass
class Serving:
    """A workload on one subject with one retention.

    Attributes:
        subject: what it is called.
        retention: the retention interval; None is dense.
        bounds: what each request could hit.
        queried: tokens of all prompts.
        cannot: why it could not be played; empty where it could.
        failed: whether that is a crash or a time-out, not something that the release lacks.
        served: what became of each request, in their order.
        samples: cached keys of each group, by the number of requests served before.
        operations: calls and seconds, by operation.
        seconds: wall clock of the whole.
        release: the version of the release that it is; None where it is none.
        tier: the KV connector of its second tier; "" without one.
    """

    subject: str
    retention: int | None
    bounds: Sequence[Bound]
    queried: int
    cannot: str = ""
    failed: bool = False
    served: list[Served] = field(default_factory=list)
    samples: list[tuple[int, list[int]]] = field(default_factory=list)
    operations: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    release: str | None = None
    tier: str = ""

    def take(self, measured: dict[str, Any]) -> None:
        """Take up what a simulation measured."""
        self.served = sorted(
            (Served(**each) for each in measured["served"]), key=lambda each: each.request
        )
        self.samples = [(ended, counts) for ended, counts in measured["samples"]]
        self.operations = measured["operations"]

    def figures(self) -> dict[str, Any]:
        """The outcome of the workload in tokens, keys and requests, without times."""
        return {
            "hits": sum(each.hit for each in self.served),
            **({"of_tier": sum(each.of_tier for each in self.served)} if self.tier else {}),
            "unbounded": sum(each.unbounded for each in self.bounds),
            "foresight": sum(each.foresight for each in self.bounds),
            "lost": {str(cause): tokens for cause, tokens in self.lost.items()},
            "faults": self.faults,
            "evictions": self.served[-1].evictions,
            "refused": sum(each.refused for each in self.served),
            "preempted": sum(each.preempted for each in self.served),
            "unfinished": sum(not each.finished for each in self.served),
        }

    @property
    def lost(self) -> dict[Cause, int]:
        """Tokens that were lost, by cause."""
        total: dict[Cause, int] = dict.fromkeys(Cause, 0)
        for bound, served in zip(self.bounds, self.served, strict=True):
            donor = None if bound.donor is None else self.served[bound.donor]
            for cause, tokens in losses(bound, served, donor).items():
                total[cause] += tokens
        return total

    @property
    def faults(self) -> dict[str, int]:
        """Codes of faults that showed, with the number of requests."""
        return fault_codes(self.served)


@dataclass(frozen=True)
class Simulated:
    """The answer.

    Attributes:
        workload: the workload.
        deployment: what it was played on.
        runs: each subject with each retention.
        hashing: processor seconds that it took to make all hashes.
    """

    workload: Workload
    deployment: Deployment
    runs: list[Serving]
    hashing: float


def engine_of(
    model: Model,
    workload: Workload,
    *,
    eagle: bool,
    chunk: int,
    blocks: int | None,
    pool_requests: float,
) -> EngineConfiguration:
    """An engine of a model that serves the workload.

    Its pool has ``blocks``, or room for ``pool_requests`` requests as long as the longest, and a
    step computes ``chunk`` tokens at most.
    """
    groups = model.groups if eagle else tuple(replace(g, eagle=False) for g in model.groups)
    engine = EngineConfiguration(
        groups,
        num_gpu_blocks=2,
        hash_block_size=model.hash_block_size,
        max_model_len=workload.longest,
        max_num_batched_tokens=chunk,
        use_eagle=eagle,
    )
    one = blocks_of_request(engine, engine.max_model_len, chunk)
    return replace(engine, num_gpu_blocks=blocks or 1 + max(1, int(pool_requests * one)))


def simulate(
    workload: Workload,
    deployment: Deployment,
    targets: Sequence[Target],
    limits: Limits,
    *,
    reference: bool,
    progress: Progress,
    opened: Callable[[Target], AbstractContextManager[Session]] | None = None,
) -> Simulated:
    """Play the workload on each target, and on the reference if that is wanted.

    Sessions are ``opened`` so, or else as the limits say.

    The reference is played with the spec's policies and with those of each target. Raises
    `WorkloadError`, and the exceptions of `Worker`.
    """
    engine = deployment.engine
    _follow(engine)
    with tempfile.TemporaryDirectory(prefix="hitproof-") as home:
        start = thread_time()
        file = HashFile(
            Path(home) / "hashes", engine.hash_block_size, engine.num_hash_lookahead_tokens
        )
        total = len(workload.requests)
        arrivals = file.write(workload, lambda done: progress("hashes", done, total))
        hashing = thread_time() - start
        engines = [
            replace(engine, retention_interval=interval) for interval in deployment.retentions
        ]
        known = [bounds(workload, each, arrivals, file) for each in engines]
        queried = sum(each.prompt for each in arrivals)
        play = _Play(arrivals, file, deployment.max_num_seqs, limits.timeout, progress)
        runs = []
        for target in targets:
            with opened(target) if opened else closing(Session.of(target, limits)) as session:
                for each, could in zip(engines, known, strict=True):
                    name = f"vLLM {target.label}"
                    run = Serving(
                        name, each.retention_interval, could, queried, release=target.version
                    )
                    play.on_target(run, each, session)
                    runs.append(run)
        for name, chosen in _references(targets) if reference else ():
            for each, could in zip(engines, known, strict=True):
                if each.retention_interval is not None and not chosen.sparse_kinds:
                    continue  # it has dense retention only
                run = Serving(name, each.retention_interval, could, queried)
                play.on_reference(run, each, chosen)
                runs.append(run)
    return Simulated(workload, deployment, runs, hashing)


@dataclass(frozen=True)
class TierDeployment:
    """A model with a KV connector, which a workload is played on.

    Attributes:
        model: the model.
        arguments: vLLM's own.
        pool_requests: requests of the greatest length that the pool has room for; None where the
            arguments say how many blocks it has.
    """

    model: DoctorModel
    arguments: tuple[str, ...]
    pool_requests: float | None


def simulate_tier(
    workload: Workload,
    deployment: TierDeployment,
    targets: Sequence[Target],
    limits: Limits,
    progress: Progress,
) -> Simulated:
    """Play the workload on each target's own engine with its KV connector, one request at a time.

    Raises `WorkloadError`, and the exceptions of `Worker`.
    """
    if any(each.lookup_only for each in workload.requests):
        raise WorkloadError(
            "the workload has requests that are only looked up, which no scheduler does; name "
            "another one, or leave the KV connector out"
        )
    engines, runs, hashing = [], [], 0.0
    asked = {
        "config": deployment.model.config,
        "arguments": [
            *deployment.arguments,
            *("--max-model-len", str(workload.longest + 1), "--enable-prefix-caching"),
        ],
        "pool_requests": deployment.pool_requests,
    }
    for target in targets:
        with closing(Session.of(target, limits)) as session:
            told = session.ask(op="simulate", deploy=asked)
            if "cannot" in told:
                remedy = "; change --tokens, --model or the connector" if told["refused"] else ""
                raise WorkloadError(f"vLLM {target.label}: {told['cannot']}{remedy}")
            engine = engine_adapter().validate_python(told["engine"])
            arrivals, known, spent = _known(workload, engine, progress)
            hashing += spent
            sizes = [(each.prompt, each.prompt + each.output) for each in arrivals]
            run = Serving(
                f"vLLM {target.label}",
                engine.retention_interval,
                known,
                sum(prompt for prompt, _ in sizes),
                release=target.version,
                tier=told["tier"]["name"],
            )
            begin = {
                "requests": [
                    (
                        each.prompt,
                        each.output,
                        bound.shared,
                        *((0, 0) if bound.donor is None else sizes[bound.donor]),
                    )
                    for each, bound in zip(workload.requests, known, strict=True)
                ]
            }
            play = _Play(arrivals, None, 1, limits.timeout, progress)
            play.go_on(run, begin, session)
            runs.append(run)
            engines.append(engine)
    chosen = Deployment(engines[0], (engines[0].retention_interval,), 1, deployment.model.name)
    return Simulated(workload, chosen, runs, hashing)


def _known(
    workload: Workload, engine: EngineConfiguration, progress: Progress
) -> tuple[list[Arrival], list[Bound], float]:
    """What each request could hit on an engine, and the seconds that its hashes took."""
    _follow(engine)
    with tempfile.TemporaryDirectory(prefix="hitproof-") as home:
        start, total = thread_time(), len(workload.requests)
        unit, ahead = engine.hash_block_size, engine.num_hash_lookahead_tokens
        file = HashFile(Path(home) / "hashes", unit, ahead)
        arrivals = file.write(workload, lambda done: progress("hashes", done, total))
        spent = thread_time() - start
        return arrivals, bounds(workload, engine, arrivals, file), spent


def _follow(engine: EngineConfiguration) -> None:
    if cache_setup(engine).fine:
        raise WorkloadError(
            "hits of this engine may end inside blocks, which simulations do not follow; name one "
            "whose hashes cover a whole block, or use `hitproof doctor`"
        )


def _references(targets: Sequence[Target]) -> Iterator[tuple[str, Policies]]:
    """The reference with the spec's policies and with those of releases."""
    yield "reference", Policies()
    for target in targets:
        name = policies_name(target.version)
        if name is not None:
            yield f"reference as {target.label}", getattr(releases, name)


@dataclass(frozen=True)
class _Play:
    arrivals: Sequence[Arrival]
    hashes: HashFile | None
    max_num_seqs: int
    timeout: float
    progress: Progress

    def on_target(self, run: Serving, engine: EngineConfiguration, session: Session) -> None:
        """Play in a worker, in batches, so that progress is seen."""
        assert self.hashes is not None
        begin: dict[str, Any] = {
            "engine": as_plain(engine),
            "arrivals": [[*asdict(each).values()] for each in self.arrivals],
            "hashes": str(self.hashes.path),
            "max_num_seqs": self.max_num_seqs,
        }
        self.go_on(run, begin, session)

    def go_on(self, run: Serving, begin: dict[str, Any], session: Session) -> None:
        """Go on from what begins, until it is done."""
        start = perf_counter()
        self._report(run, 0)
        try:
            while not run.served and not run.cannot:
                answer = session.ask(op="simulate", seconds=_BATCH_SECONDS, **begin)
                begin = {}
                if "cannot" in answer:
                    run.cannot, run.failed = answer["cannot"], answer["crashed"]
                    break
                self._report(run, answer["tokens"])
                if answer["done"]:
                    run.take(answer)
        except WorkerGone as gone:
            run.cannot, run.failed = str(gone), True
        run.seconds = perf_counter() - start

    def on_reference(self, run: Serving, engine: EngineConfiguration, chosen: Policies) -> None:
        """Play in this process."""
        start = perf_counter()
        assert self.hashes is not None
        manager = SimulatedReference(engine, chosen)
        played = Simulation(manager, engine, self.arrivals, self.hashes, self.max_num_seqs)
        while not played.done:
            played.advance(_BATCH_SECONDS)
            self._report(run, played.tokens)
        run.take(played.results())
        run.seconds = perf_counter() - start

    def _report(self, run: Serving, tokens: int) -> None:
        total = sum(each.prompt + each.output for each in self.arrivals if not each.lookup_only)
        kept = "dense" if run.retention is None else run.retention
        self.progress(f"{run.subject}, retention {kept}", min(tokens, total), total)

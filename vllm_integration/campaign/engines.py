"""Engines: what runs jobs, here or on a cluster. Each does its own scheduling and retries."""

import atexit
import itertools
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import connection, util
from typing import Any, Protocol, TypeVar

from hitproof.vllm_integration.campaign import serving
from hitproof.vllm_integration.campaign.jobs import Job
from hitproof.vllm_integration.campaign.serving import Answer, Setting, Work, serve
from hitproof.vllm_integration.campaign.trees import pack, unpacked
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_WAITING = 2
"""Jobs that are handed over for each worker: one that runs, and the next."""
_RETRIES = 5
"""How often Ray runs a job again whose machine was lost."""
_DIAL_SECONDS = 5.0

Targets = Mapping[str, Target]
"""The targets of jobs by what their trees contain."""
_Item = TypeVar("_Item")


class EngineError(Exception):
    """The engine cannot go on; the message is one sentence, ``verdict`` the exit code."""

    def __init__(self, sentence: str, verdict: Verdict) -> None:
        super().__init__(sentence)
        self.verdict = verdict


class Engine(Protocol):
    """What runs jobs."""

    name: str

    @property
    def workers(self) -> int:
        """How many jobs it runs at once."""

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        """How each job ends, in whatever order. Raises `EngineError`."""

    def close(self) -> None:
        """End its workers; jobs that run are given up."""


class Local:
    """Processes of this machine."""

    name = "processes"

    def __init__(self, workers: int, work: Work, setting: Setting) -> None:
        self._workers, self._work, self._setting = workers, work, setting
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_as_worker)

    @property
    def workers(self) -> int:
        """How many jobs it runs at once."""
        return self._workers

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        """See `Engine`."""

        def begin(job: Job) -> Any:
            target = targets.get(job.content)
            return self._pool.submit(serve, self._work, job, target, self._setting)

        def end(running: list[Any]) -> list[Any]:
            return list(wait(running, return_when=FIRST_COMPLETED).done)

        try:
            for job, future in _kept_busy(jobs, lambda: self.workers, begin, end):
                yield job, future.result()
        except BrokenProcessPool as error:
            raise EngineError(
                "a worker process was killed, perhaps out of memory; use fewer --workers",
                Verdict.INCONCLUSIVE,
            ) from error

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _as_worker() -> None:
    """End with the process that started this one, and without a word when that is interrupted."""

    def end(*_: object) -> None:
        serving.close()
        os._exit(1)

    def follow(parent: int) -> None:
        connection.wait([parent])
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    util.Finalize(None, serving.close, exitpriority=10)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()


class OnRay:
    """A Ray cluster. Raises `EngineError` if there is none at the address."""

    name = "Ray"

    def __init__(self, address: str, work: Work, setting: Setting) -> None:
        _dial(address)
        try:
            import ray
        except ImportError as error:
            raise EngineError(
                "Ray is not installed here; install hitproof[cluster]", Verdict.USAGE
            ) from error
        self._ray, self._work, self._setting = ray, work, setting
        self._address = address
        self._trees: dict[str, Any] = {}
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray has no class for them: versions differ, no answer
            raise EngineError(_of_ray(address, error), Verdict.USAGE) from error
        self._serve = ray.remote(num_cpus=1, max_retries=_RETRIES)(_serve_on_ray)

    @property
    def workers(self) -> int:
        """How many jobs it runs at once, as of now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        """See `Engine`."""
        ray = self._ray

        def begin(job: Job) -> Any:
            target = targets.get(job.content)
            tree = [] if target is None else [self._tree(job.content, target)]
            return self._serve.remote(self._work, job, target, self._setting, tree)

        def end(running: list[Any]) -> list[Any]:
            return list(ray.wait(running, num_returns=1)[0])

        try:
            for job, reference in _kept_busy(jobs, lambda: self.workers, begin, end):
                yield job, ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise EngineError(
                f"a worker of the cluster cannot run jobs ({_first_line(error)}); install the same "
                "hitproof on each machine",
                Verdict.USAGE,
            ) from error
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise EngineError(
                f"the cluster at {self._address} lost a job for good ({_first_line(error)})",
                Verdict.INCONCLUSIVE,
            ) from error

    def close(self) -> None:
        """Leave the cluster, which ends what runs there for us."""
        self._ray.shutdown()

    def _tree(self, content: str, target: Target) -> Any:
        """The tree in the cluster's store, which brings it to each machine that asks for it."""
        assert target.root is not None
        if content not in self._trees:
            self._trees = {content: self._ray.put(pack(target.root))}
        return self._trees[content]


def _serve_on_ray(
    work: Work, job: Job, target: Target | None, setting: Setting, tree: list[Any]
) -> Answer:
    """`serve`, on a machine that may not have the target's tree yet."""
    import ray

    atexit.unregister(serving.close)
    atexit.register(serving.close)
    if target is not None:
        root = unpacked(job.content, lambda: ray.get(tree[0]))
        target = replace(target, root=root)
    return serve(work, job, target, setting)


def _kept_busy(
    jobs: Iterator[Job],
    workers: Callable[[], int],
    begin: Callable[[Job], _Item],
    end: Callable[[list[_Item]], list[_Item]],
) -> Iterator[tuple[Job, _Item]]:
    """Hand over as many jobs as keep the workers busy, and give each that has ended."""
    running: dict[_Item, Job] = {}
    while True:
        room = _WAITING * workers() - len(running)
        for job in itertools.islice(jobs, max(0, room)):
            running[begin(job)] = job
        if not running:
            return
        for item in end(list(running)):
            yield running.pop(item), item


def _dial(address: str) -> None:
    """Check that HOST:PORT accepts connections: Ray tries for minutes, then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return  # "auto"
    try:
        socket.create_connection((host, int(port)), _DIAL_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EngineError(
            f"no cluster answers at {address} ({reason}); give the address that `ray start --head` "
            "printed, or leave --cluster out",
            Verdict.USAGE,
        ) from error


def _of_ray(address: str, error: Exception) -> str:
    if "ersion mismatch" in str(error):
        told = " ".join(str(error).split())
        return (
            f"the cluster at {address} has another Ray or Python; use the same ones: {told[:400]}"
        )
    return f"Ray cannot use the cluster at {address}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"

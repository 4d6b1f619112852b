"""What runs in a worker of an engine: one job, within its time, in a session that outlives it.

The target runs in a process of its own (`sandbox.driver`), so what it does to its process is a
result. A worker keeps the session with the target of its last job.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from hitproof.vllm_integration.campaign.jobs import Job, Result, version
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, Limits, Workers
from hitproof.vllm_integration.targets.target import Target, TargetError
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class Setting:
    """How jobs are run.

    Attributes:
        limits: what the target's process runs with; no interpreter stands for the worker's own.
        seconds: how long a job may take.
        version: of the hitproof that made the jobs (`jobs.version`).
    """

    limits: Limits = Limits(timeout=120.0, jobs=1)
    seconds: float = 1800.0
    version: str = field(default_factory=version)


@dataclass
class Place:
    """What a job has.

    Attributes:
        target: its target; None where it needs none.
        setting: how it is run.
        notes: what outlives the job, for as long as the session does.

    The target is imported once: a process of it that ends is replaced by a copy of the first.
    """

    target: Target | None
    setting: Setting
    notes: dict[str, Any] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)
    _workers: Workers | None = None
    _session: Session | None = None

    @property
    def limits(self) -> Limits:
        """What the target's process runs with here."""
        python = self.setting.limits.python or sys.executable
        return replace(self.setting.limits, python=python, jobs=1)

    def session(self) -> Session:
        """A session with the target. Raises `EnvironmentFailure`."""
        assert self.target is not None
        if self._session is None:
            if self._workers is None:
                self._workers = self._open.enter_context(Workers(self.target, self.limits))
            self._session = Session(self._workers.start, self.limits.timeout)
        return self._session

    def renew(self) -> None:
        """End the session, and forget what it knew; the next one begins as the first did."""
        session, self._session = self._session, None
        self.notes.clear()
        if session is not None:
            session.close()

    def close(self) -> None:
        """End the session, and the process that it was copied from."""
        self.renew()
        self._workers = None
        self._open.close()


@dataclass(frozen=True)
class Answer:
    """How a job ended.

    Attributes:
        result: what it gave; None where it could not be run here.
        seconds: how long it took.
        worker: the process that ran it, with its machine.
        refused: why it could not be run here, in a sentence.
        verdict: what the campaign ends with then.
    """

    result: Result | None
    seconds: float
    worker: str
    refused: str = ""
    verdict: Verdict = Verdict.CONFORMS


Work: TypeAlias = Callable[[Mapping[str, Any], Place], Result]
"""Runs a job by its question. It is a function of a module, so that it can be named elsewhere."""

_place: Place | None = None


class _TooLong(BaseException):
    """The job's time is over; no handler of `Exception` may keep it."""


def serve(work: Work, job: Job, target: Target | None, setting: Setting) -> Answer:
    """Run one job here."""
    started, worker = time.monotonic(), f"{socket.gethostname()}:{os.getpid()}"
    ended = partial(_ended, started, worker)
    if version() != setting.version:
        sentence = (
            f"the worker {worker} has another hitproof ({version()} there, {setting.version} "
            "here); install the same one on each machine"
        )
        return ended(None, sentence, Verdict.USAGE)
    place = _here(target, setting)
    try:
        with _limited(setting.seconds):
            return ended(work(job.question, place))
    except _TooLong:
        place.close()
        return ended({"cannot": f"the job did not end within {setting.seconds:g} seconds"})
    except (EnvironmentFailure, TargetError) as failure:
        return ended(None, f"on the worker {worker}: {failure}", Verdict.USAGE)
    except Exception as error:
        return ended(None, f"the job {job.name} raised {error!r:.300}", Verdict.INTERNAL)


def _ended(
    started: float,
    worker: str,
    result: Result | None,
    refused: str = "",
    verdict: Verdict = Verdict.CONFORMS,
) -> Answer:
    return Answer(result, time.monotonic() - started, worker, refused, verdict)


def _here(target: Target | None, setting: Setting) -> Place:
    """The place of the last job, if it had this target and setting."""
    global _place
    if _place is None or (_place.target, _place.setting) != (target, setting):
        close()
        _place = Place(target, setting)
    return _place


def close() -> None:
    """End what is kept from job to job."""
    global _place
    place, _place = _place, None
    if place is not None:
        place.close()


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` in the body after ``seconds``."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a job runs in the main thread of a worker")

    def end(_: int, __: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

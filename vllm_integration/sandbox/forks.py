"""Work in forks of this process, isolated and within limits of time and memory."""

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import fork
from typing import Any

MORE_MEMORY = 1 << 30
"""Bytes that a copy may map beyond what it inherits."""


_making_one = False
"""Whether the copy that is about to be made is one of ours."""


def end_copies_of_others() -> None:
    """From here on, end at once any fork of this process that a target makes.

    Otherwise it would continue with the check, and make more forks.
    """
    leave = os._exit
    os.register_at_fork(after_in_child=lambda: None if _making_one else leave(1))


def make_copy() -> int:
    """Fork this process for good; returns the process number, or 0 in the fork."""
    global _making_one
    _making_one = True
    process = fork()
    _making_one = False
    return process


@dataclass
class _Fork:
    number: int
    answer: bytearray = field(default_factory=bytearray)


class Forks:
    """Runs pieces of work, each in a copy of this process, at most ``jobs`` at once.

    ``work`` gives the result of a piece by its number, as JSON. Results come in no fixed order.
    """

    def __init__(self, count: int, jobs: int, work: Callable[[int], Any]) -> None:
        self._waiting = iter(range(count))
        self._jobs = jobs
        self._work = work
        self._running: dict[int, tuple[int, _Fork]] = {}

    def results(self, seconds: float) -> Iterator[tuple[int, Any]]:
        """The pieces that end within about ``seconds``: number and result.

        The result is an int where the copy died: the number of the signal, or 0.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._fill()
            if not self._running:
                return
            ready, _, _ = select.select(list(self._running), [], [], left)
            for pipe in ready:
                process, fork = self._running[pipe]
                if piece := os.read(pipe, 1 << 20):
                    fork.answer += piece
                    continue
                del self._running[pipe]
                os.close(pipe)
                _, status = os.waitpid(process, 0)
                if os.WIFSIGNALED(status):
                    yield fork.number, os.WTERMSIG(status)
                else:
                    yield fork.number, json.loads(fork.answer) if fork.answer else 0

    def _fill(self) -> None:
        while len(self._running) < self._jobs and (number := next(self._waiting, None)) is not None:
            read, write = os.pipe()
            process = make_copy()
            if process == 0:
                self._be_the_copy(number, write)
            os.close(write)
            self._running[read] = process, _Fork(number)

    def _be_the_copy(self, number: int, pipe: int) -> None:
        try:
            _limit_memory()
            answer = json.dumps(self._work(number)).encode()
            with os.fdopen(pipe, "wb") as file:
                file.write(answer)
        finally:
            sys.stdout.flush()
            os._exit(0)


def allow(seconds: float) -> None:
    """Limit the processor time from here on; SIGPROF kills the process after that."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    try:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return  # the worker's own limit stands
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MORE_MEMORY, mapped + MORE_MEMORY))

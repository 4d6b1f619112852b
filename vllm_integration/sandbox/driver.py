"""The driver: starts a worker under the chosen interpreter, talks to it, and outlives it."""

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import send_fds, socketpair
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

from packaging.version import Version

import hitproof
from hitproof.vllm_integration.sandbox.channel import Channel
from hitproof.vllm_integration.sandbox.processes import (
    end,
    end_copy,
    environment,
    is_running,
    new_mark,
)
from hitproof.vllm_integration.sandbox.protocol import OURS, TEXT, Failure, decode, encode
from hitproof.vllm_integration.targets.target import Target

_IMPORT_SECONDS = 120.0
_COPY_SECONDS = 20.0
JOBS = len(os.sched_getaffinity(0))
_ENDING_SECONDS = 5.0
_FIRST_WITH = {
    "prompts of token ids and embeddings": Version("0.21.dev0"),
    "tiers": Version("0.22.1.dev0"),
    "retention": Version("0.23.dev0"),
    "states that connectors load": Version("0.23.dev0"),
    "retention of states": Version("0.24.dev0"),
    "masks of what a tier looks up": Version("0.24.dev0"),
    "junctions": Version("0.26.dev0"),
    "fine-grained hits": Version("0.26.dev0"),
    "offloading in chunks of several blocks": Version("0.26.dev0"),
    "local prefixes for connectors": Version("0.27.dev0"),
    "drafts that are computed anew": Version("0.28.dev0"),
    "offloading of chunked local attention": Version("0.28.dev0"),
    "retention of full attention alone": Version("0.29.dev0"),
    "opting out": Version("0.29.dev0"),
    "masks of what is stored": Version("0.30.dev0"),
    "hashes that look ahead": Version("0.33.dev0"),
    "UMBP": Version("0.33.dev0"),
}
"""The first releases that can have what older ones lack, by its name."""
_BOOTSTRAP = (
    "import sys\n"
    "if sys.version_info < (3, 11): sys.exit('needs Python 3.11 or later')\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "try: from hitproof.vllm_integration.worker.main import main\n"
    "except ModuleNotFoundError as error: sys.exit(f'{sys.executable} lacks the module '\n"
    "    f'{error.name!r}; install hitproof[target] there, or name another interpreter with '\n"
    "    '--python')\n"
    "main(*map(int, sys.argv[2:]))\n"
)
_LOG_TAIL = 1 << 16  # bytes
_FRAME = r'File "(?:[^"\n]*/(?=(?:vllm|hitproof)/))?(?P<file>[^"\n]+)", line (?P<line>\d+)'
_FATAL = re.compile(rf"Fatal Python error: (?P<error>.+)\n(?s:.*?){_FRAME}")
_RAISED = re.compile(rf"(?s:.*){_FRAME}.*\n(?:[ \t].*\n)*(?P<error>\S.*)\s*\Z")


def last_words(printed: str) -> str:
    """The last line that a process printed; of a traceback, with the line that raises."""
    if found := _FATAL.search(printed) or _RAISED.match(printed):
        return f"{found['error'].strip()[:300]} ({found['file']}:{found['line']})"
    lines = (line.strip()[:300] for line in reversed(printed.split("\n")))
    return next(filter(None, lines), "")


class EnvironmentFailure(Exception):
    """The target cannot be imported under this interpreter; the message names the remedy."""


class InternalFailure(Exception):
    """A fault of hitproof itself."""


class WorkerGone(Exception):
    """The worker ended or did not answer in time; the message says which."""


class WorkerRaised(WorkerGone):
    """The worker could not answer for an exception, which the message tells; it goes on."""


@dataclass(frozen=True)
class Limits:
    """What the workers of a target run with.

    Attributes:
        python: the interpreter, as a path or as a command on the search path.
        timeout: seconds that each answer may take.
        memory: GiB that each worker may map.
        jobs: workers at a time. The result is the same for any number of them.
    """

    python: str = sys.executable
    timeout: float = 60.0
    memory: float = 16.0
    jobs: int = JOBS

    @property
    def interpreter(self) -> str:
        """The path of the interpreter. Raises `EnvironmentFailure` if there is none."""
        found = shutil.which(self.python)
        if found is None:
            raise EnvironmentFailure(
                f"{self.python} is not an executable; name a Python interpreter with --python"
            )
        return os.path.abspath(found)


class Answers(Protocol):
    """What answers questions about a target; see `sandbox.protocol`."""

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        """The answer to one question, which takes at most ``timeout`` seconds."""

    def close(self) -> None:
        """End it."""


class Asked(ABC):
    """A process with the target imported, which answers over a channel."""

    _channel: Channel
    _log: BinaryIO

    @abstractmethod
    def close(self) -> None:
        """End the process and whatever it started."""

    @abstractmethod
    def _exit_code(self) -> int | None:
        """How the process ended, negative for a signal; None while it runs."""

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        """Send one request and wait at most ``timeout`` seconds for its result."""
        token = secrets.token_hex(16)
        try:
            line = self._channel.exchange(
                encode({"token": token, "within": timeout, **message}), timeout
            )
            answer = decode(line)
            if answer.pop("token", None) != token:
                raise ValueError("it does not answer the request")
            if answer["ok"]:
                return answer
            kind, text = Failure(answer["kind"]), str(answer["message"])
        except TimeoutError:
            last = self._last_words()
            raise WorkerGone(
                f"the worker did not answer within {timeout:g} seconds; --timeout allows more"
                f"{f' ({last})' if last else ''}"
            ) from None
        except EOFError:
            raise WorkerGone(self._ending()) from None
        except (ValueError, KeyError) as error:
            raise WorkerGone(f"its answer cannot be read ({error})") from error
        if kind in (Failure.TAMPERED, Failure.RAISED):
            raise (WorkerGone if kind is Failure.TAMPERED else WorkerRaised)(text)
        raise (EnvironmentFailure if kind is Failure.ENVIRONMENT else InternalFailure)(text)

    def _ending(self) -> str:
        until = time.monotonic() + _ENDING_SECONDS
        while (code := self._exit_code()) is None:
            if time.monotonic() > until:
                return "the worker closed the connection"
            time.sleep(0.01)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = self._last_words()
        return f"the worker {how}" + (f"; its last output: {last}" if last else "")

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LOG_TAIL))
        return last_words(self._log.read(_LOG_TAIL).decode(errors="replace"))


class Copy(Asked):
    """A copy of a worker, in the worker's state at that time."""

    def __init__(
        self, worker: "Worker", number: int, mark: str, requests: int, answers: int, log: BinaryIO
    ) -> None:
        self._worker, self._number, self._mark, self._log = worker, number, mark, log
        self._channel = Channel(requests, answers, lambda: is_running(number))

    def close(self) -> None:
        """End the copy and whatever it started."""
        end_copy(self._number, self._mark)
        self._channel.close()
        self._log.close()

    def _exit_code(self) -> int | None:
        return self._worker.exit_code_of(self._number)


class Worker(Asked):
    """A worker process with the target imported. Use as a context manager.

    Raises `EnvironmentFailure` when the target does not import within two minutes and the limit of
    memory. What the target prints goes to a scratch file, never to our output. ``policies`` are the
    values by which the target is judged, where they do not follow from how it behaves.
    """

    def __init__(
        self, target: Target, limits: Limits, policies: Mapping[str, str] | None = None
    ) -> None:
        python = limits.interpreter
        # The target may have deleted it.
        self._scratch = tempfile.TemporaryDirectory(prefix="hitproof-", ignore_cleanup_errors=True)
        scratch = Path(self._scratch.name)
        # A link, so that the worker sees our package without the rest of our environment.
        (scratch / "path").mkdir()
        home = Path(hitproof.__file__).resolve().parent
        (scratch / "path" / OURS).symlink_to(home, target_is_directory=True)
        (scratch / "work").mkdir()
        self._log = (scratch / "log").open("w+b")
        self._environment = environment(target, scratch / "work")
        # Separate pipes: what the target prints is never an answer, not even before it is imported.
        asked, requests = os.pipe()
        answers, answered = os.pipe()
        self._handover, handed_over = socketpair()
        theirs = (asked, answered, handed_over.detach())
        try:
            self._process = subprocess.Popen(
                [python, "-c", _BOOTSTRAP, str(scratch / "path"), *map(str, theirs)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd=scratch / "work",
                env=self._environment,
                pass_fds=theirs,
                start_new_session=True,
            )
        except OSError as error:
            for unused in (requests, answers):
                os.close(unused)
            self._handover.close()
            self._log.close()
            self._scratch.cleanup()
            raise EnvironmentFailure(
                f"{python} cannot be run ({error.strerror}); name a Python interpreter with "
                f"--python"
            ) from error
        finally:
            for end_of_theirs in theirs:
                os.close(end_of_theirs)
        self._copying = threading.Lock()
        self._channel = Channel(requests, answers, lambda: self._process.poll() is None)
        root = None if target.root is None else str(target.root)
        try:
            here = self.ask(
                _IMPORT_SECONDS,
                op="hello",
                root=root,
                text=TEXT,
                memory=int(limits.memory * 2**30),
                policies=dict(policies or {}),
                managers=target.managers,
                coordinators=target.coordinators,
                aliases=target.aliases,
                predates=[
                    feature
                    for feature, first in _FIRST_WITH.items()
                    if target.version is not None and Version(target.version) < first
                ],
            )
        except WorkerGone as gone:
            self.close()
            raise EnvironmentFailure(
                f"importing vLLM {target.label} with {python} did not succeed: {gone}"
            ) from gone
        except BaseException:
            self.close()
            raise
        self.can_be_copied = here["copies"] is True
        """Whether copies of it work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and whatever it started, and delete its scratch directory."""
        end(self._process, self._environment)
        self._channel.close()
        self._handover.close()
        self._log.close()
        self._scratch.cleanup()

    def copy(self) -> Copy:
        """Make a copy; end it before the worker. Raises `WorkerGone` when there is none."""
        asked, requests = os.pipe()
        answers, answered = os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 the copy closes it
        mark = new_mark()
        try:
            with self._copying:
                send_fds(self._handover, [b"\0"], [asked, answered, log.fileno()])
                number = self.ask(_COPY_SECONDS, op="copy", mark=mark)["number"]
            copy = Copy(self, number, mark, requests, answers, log)
        except (OSError, WorkerGone, EnvironmentFailure) as error:
            for end_of_ours in (requests, answers):
                os.close(end_of_ours)
            log.close()
            raise WorkerGone(f"the worker cannot be forked ({error})") from error
        finally:
            for end_of_theirs in (asked, answered):
                os.close(end_of_theirs)
        try:
            copy.ask(_COPY_SECONDS, op="here")
        except BaseException:
            copy.close()
            raise
        return copy

    def exit_code_of(self, copy: int) -> int | None:
        """How a copy ended, negative for a signal; None while it runs, or if unknown."""
        try:
            with self._copying:
                code: int | None = self.ask(_COPY_SECONDS, op="ended", number=copy)["code"]
                return code
        except (WorkerGone, EnvironmentFailure):
            return None

    def _exit_code(self) -> int | None:
        return self._process.poll()


class Workers:
    """Processes that each have the same target imported; arguments as for `Worker`.

    The target is imported once, for the first of them, if its process can be copied. Use as a
    context manager.
    """

    def __init__(
        self, target: Target, limits: Limits, policies: Mapping[str, str] | None = None
    ) -> None:
        self._start: Callable[[], Worker] = lambda: Worker(target, limits, policies)
        self._original: Worker | None = None
        self._unused: Worker | None = None
        self._copies: bool | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (self._original, self._unused):
            if worker is not None:
                worker.close()

    def start(self) -> Asked:
        """Another one, which the caller closes first. Raises what `Worker` raises."""
        with self._starting:
            if self._copies is None:
                first = self._start()
                self._copies = first.can_be_copied
                if self._copies:
                    self._original = first
                else:
                    self._unused = first
            unused, self._unused = self._unused, None
            if self._copies and self._original is not None:
                try:
                    return self._original.copy()
                except WorkerGone:
                    self._copies = False
        return self._start() if unused is None else unused

"""The driver: starts a worker under the chosen interpreter, talks to it, and outlives it."""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from packaging.version import Version

from vllm_integration.protocol import VERSION, Failure, decode, encode
from vllm_integration.targets import Target, cache_directory

_IMPORT_SECONDS = 120.0
_FIRST_WITH = {
    "retention": Version("0.23.dev0"),
    "retention of states": Version("0.24.dev0"),
    "junctions": Version("0.26.dev0"),
    "fine-grained hits": Version("0.26.dev0"),
    "opting out": Version("0.29.dev0"),
    "hashes that look ahead": Version("0.33.dev0"),
}
"""The first releases that can have what older ones lack, by its name."""
_OURS = ("spec", "reference", "conformance", "vllm_integration")
_BOOTSTRAP = (
    "import sys\n"
    "if sys.version_info < (3, 11): sys.exit('needs Python 3.11 or later')\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "from vllm_integration.worker import main\n"
    "main()\n"
)
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")


class EnvironmentFailure(Exception):
    """The target cannot be imported under this interpreter; the message names the mend."""


class InternalFailure(Exception):
    """Hitproof itself is wrong."""


class WorkerGone(Exception):
    """The worker ended or did not answer in time; the message says which."""


class Worker:
    """A worker process with the target imported. Use as a context manager.

    Raises `EnvironmentFailure` when the target does not import within two minutes and ``memory``
    bytes. What the target prints goes to a scratch file, never to our output. ``policies`` are the
    values that the target is judged by, where that is not left to how it behaves.
    """

    def __init__(
        self,
        target: Target,
        python: str,
        memory: int,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="hitproof-")
        scratch = Path(self._scratch.name)
        home = Path(__file__).resolve().parent.parent
        # Links, so that the worker sees our packages without the rest of our environment.
        (scratch / "path").mkdir()
        for package in _OURS:
            (scratch / "path" / package).symlink_to(home / package, target_is_directory=True)
        (scratch / "work").mkdir()
        self._log = (scratch / "log").open("w+b")
        try:
            self._process = subprocess.Popen(
                [python, "-c", _BOOTSTRAP, str(scratch / "path")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=scratch / "work",
                env=environment(target),
                start_new_session=True,
            )
        except OSError as error:
            self._scratch.cleanup()
            raise EnvironmentFailure(
                f"{python} cannot be run ({error.strerror}); name a Python interpreter with "
                f"--python"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        root = None if target.root is None else str(target.root)
        try:
            self.ask(
                _IMPORT_SECONDS,
                op="hello",
                protocol=VERSION,
                root=root,
                memory=memory,
                policies=dict(policies or {}),
                predates=[
                    feature
                    for feature, first in _FIRST_WITH.items()
                    if target.version is not None and Version(target.version) < first
                ],
            )
        except WorkerGone as gone:
            last = self.last_words()
            self.close()
            raise EnvironmentFailure(
                f"importing vLLM {target.name} with {python} did not succeed: {gone}"
                f"{f' ({last})' if last else ''}"
            ) from gone
        except BaseException:
            self.close()
            raise

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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # a request that the worker never read
            self._requests.close()
        self._log.close()
        self._scratch.cleanup()

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        """Send one request and wait at most ``timeout`` seconds for its result."""
        try:
            self._requests.write(encode(message))
            self._requests.flush()
        except OSError:
            raise WorkerGone(self._ending()) from None
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise WorkerGone(f"it did not return within {timeout:g} seconds") from None
        if not line:
            raise WorkerGone(self._ending())
        try:
            answer = decode(line)
            if answer["ok"]:
                return answer
            kind, text = Failure(answer["kind"]), str(answer["message"])
        except (ValueError, KeyError) as error:
            raise WorkerGone(f"its answer cannot be read ({error})") from error
        raise (EnvironmentFailure if kind is Failure.ENVIRONMENT else InternalFailure)(text)

    def last_words(self) -> str:
        """The last line that the target printed, for error messages."""
        self._log.flush()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._lines.put(line)
        self._lines.put(b"")

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}"


def find_python(python: str) -> str:
    """The interpreter that ``python`` names: a path, or a command on the search path."""
    found = shutil.which(python)
    if found is None:
        raise EnvironmentFailure(
            f"{python} is no executable; name a Python interpreter with --python"
        )
    return os.path.abspath(found)


def environment(target: Target) -> dict[str, str]:
    """What a target's process may know: no secrets, no network, no bytecode in what is not ours."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    if target.root is None or not target.root.is_relative_to(cache_directory()):
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "CUDA_VISIBLE_DEVICES": "",
    }

"""Processes that run a target: what they can see of us, and how they are ended."""

import contextlib
import os
import secrets
import signal
import subprocess
from pathlib import Path

from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.target import Target

_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUSERBASE")
MARK = "HITPROOF_PROCESS"
"""The environment variable by which `end` knows what a process started."""


def environment(target: Target, scratch: Path) -> dict[str, str]:
    """The environment of a target's process: no secrets, no network, only its scratch directory.

    No bytecode is written outside it. Sets of text have the same order in each process, so that a
    question has one answer. Each call makes a new mark, for `end`.
    """
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # Packages of the user's own installation are found under the real home.
    kept.setdefault("PYTHONUSERBASE", os.path.expanduser("~/.local"))
    if target.root is None or not target.root.is_relative_to(cache_directory()):
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | {
        MARK: new_mark(),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "CUDA_VISIBLE_DEVICES": "",
    }


def new_mark() -> str:
    """A mark that no other process has."""
    return secrets.token_hex(16)


def end(process: subprocess.Popen[bytes], started_with: dict[str, str]) -> None:
    """Kill a process that leads a session, and whatever it started.

    Processes that left the session are found by the mark in their environment; Linux only.
    """
    _kill_session(process.pid)
    process.wait()
    _kill_marked(started_with[MARK])


def end_copy(number: int, mark: str) -> None:
    """Kill a copy of a process, which leads a session, and what it started with this mark."""
    _kill_session(number)
    _kill_marked(mark)


def is_running(number: int) -> bool:
    """Whether the process exists and has not ended; Linux only."""
    try:
        state = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _kill_marked(with_mark: str) -> None:
    mark = f"{MARK}={with_mark}".encode()
    for _ in range(100):  # what is killed may have started another
        left = [number for number in _numbers() if mark in _environment_of(number)]
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if not left:
            return


def _numbers() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except FileNotFoundError:
        return []


def _environment_of(number: int) -> list[bytes]:
    """The environment that a process was started with; empty if we may not read it."""
    try:
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except OSError:
        return []

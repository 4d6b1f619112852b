"""Processes that run a target: what they may know of us, and how they are ended."""

import contextlib
import os
import secrets
import signal
import subprocess
from pathlib import Path

from vllm_integration.targets import Target, cache_directory

_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUSERBASE")
_MARK = "HITPROOF_PROCESS"


def environment(target: Target, scratch: Path) -> dict[str, str]:
    """What a target's process may know: no secrets, no network, no directory but its scratch.

    No bytecode is written into what is not ours. Each call marks another process, for `end`.
    """
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # Packages that the user installed for themselves are found under the real home.
    kept.setdefault("PYTHONUSERBASE", os.path.expanduser("~/.local"))
    if target.root is None or not target.root.is_relative_to(cache_directory()):
        kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | {
        _MARK: secrets.token_hex(16),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "CUDA_VISIBLE_DEVICES": "",
    }


def end(process: subprocess.Popen[bytes], started_with: dict[str, str]) -> None:
    """Kill a process that leads a session, and whatever it started.

    What left the session is found by the mark in its environment; Linux only.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    mark = f"{_MARK}={started_with[_MARK]}".encode()
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
    """What a process was started with; nothing where that is not ours to know."""
    try:
        return Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except OSError:
        return []

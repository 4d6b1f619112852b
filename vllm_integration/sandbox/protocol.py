"""The protocol between the gate and its worker: one JSON object a line, each way.

The gate asks, the worker answers, in order. Requests carry ``op``: ``hello`` (``text``, ``root``,
``memory``, ``policies``, ``predates``, and the classes ``managers`` and ``coordinators``),
``check`` and ``behave`` (``claim``, ``configuration``), ``shrink`` (``evidence``), ``reproduce``
(``evidence``, ``name``), ``policies``, ``judge_history`` (``history``), or one of
`vllm_integration.worker.lockstep` and `vllm_integration.worker.selftest`; ``copy`` (``mark``) makes
a copy of the worker with pipes of its own, ``here`` asks whether it is there, and ``ended``
(``number``) how it ended. Requests carry ``token``, which no other has, and ``within``, the seconds
that the gate will wait.
Answers carry that ``token``, and ``ok``: true with the result, or false with ``kind`` (a `Failure`)
and ``message``.
"""

from enum import StrEnum
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

OURS = "hitproof"
"""Our package, which the worker sees."""
_JUDGING = ("spec", "reference", "conformance", "vllm_integration")


class Failure(StrEnum):
    """Why the worker could not do what it was asked."""

    ENVIRONMENT = "environment"
    """The target does not import under this interpreter."""
    TAMPERED = "tampered"
    """The target changed the code that judges it."""
    INTERNAL = "internal"
    """Hitproof itself is wrong."""


def _digest(home: Path) -> str:
    digest = sha256()
    for package in _JUDGING:
        for file in sorted((home / package).rglob("*.py")):
            digest.update(file.read_bytes() if "tests" not in file.parts else b"")
    return digest.hexdigest()


TEXT = _digest(Path(__file__).resolve().parents[2])
"""A digest of our own text. The gate and its worker must have the same: messages have no version.

They differ where hitproof is installed anew while it runs.
"""


def encode(message: dict[str, Any]) -> bytes:
    """One message as a line."""
    return dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message in a line; raises ValueError on anything else."""
    try:
        message = loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message

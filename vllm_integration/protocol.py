"""The protocol between the gate and its worker: one JSON object a line, each way.

The gate asks, the worker answers, in order. Requests carry ``op``: ``hello`` (``protocol``,
``root``, ``memory``, ``policies``, ``predates``), ``check`` and ``behave`` (``claim``,
``configuration``), ``shrink`` (``evidence``), ``reproduce`` (``evidence``, ``name``), ``policies``,
``judge_history`` (``history``), or one of `vllm_integration.lockstep_worker` and
`vllm_integration.selftest_worker`.
Answers carry ``ok``: true with the result, or false with ``kind`` (a `Failure`) and ``message``.
"""

import json
from enum import StrEnum
from typing import Any

VERSION = 1
"""Raised whenever a message changes its meaning."""


class Failure(StrEnum):
    """Why the worker could not do what it was asked."""

    ENVIRONMENT = "environment"
    """The target does not import under this interpreter."""
    INTERNAL = "internal"
    """Hitproof itself is wrong."""


def encode(message: dict[str, Any]) -> bytes:
    """One message as a line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message in a line; raises ValueError on anything else."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message

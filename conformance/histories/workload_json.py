"""Scheduler histories as JSON: strict reading and human-readable writing."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from hitproof.conformance.histories.json_format import as_plain, described, read, strictly
from hitproof.conformance.histories.schema import History
from hitproof.conformance.histories.workloads import SchedulerHistory


@cache
def _adapter() -> TypeAdapter[SchedulerHistory]:
    return TypeAdapter(SchedulerHistory)


def schema() -> dict[str, Any]:
    """The JSON schema of a scheduler history."""
    return described(SchedulerHistory)


def is_workload(text: str | bytes) -> bool:
    """Whether the JSON text says that it is a scheduler history."""
    text = text.encode() if isinstance(text, str) else text
    if b'"scheduler"' not in text:  # most are none, and long
        return False
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("kind") == "scheduler"


def read_workload(text: str | bytes, where: str = "the history") -> SchedulerHistory:
    """The history in ``text``; see `conformance.histories.json_format.read`."""
    return strictly(_adapter(), text, where)


def read_any(text: str | bytes, where: str = "the history") -> History | SchedulerHistory:
    """The history in ``text``, of a manager or a scheduler; see `json_format.read`."""
    return read_workload(text, where) if is_workload(text) else read(text, where)


def workload_as_json(history: SchedulerHistory) -> dict[str, Any]:
    """The history as JSON values, without fields that have their defaults."""
    plain = as_plain(history)
    assert isinstance(plain, dict)
    return {"kind": history.kind, "version": history.version, **plain}


def write_workload(history: SchedulerHistory) -> str:
    """The history as JSON text, one request per line; `read_workload` reads it."""
    data = workload_as_json(history)
    about = f' "about": {json.dumps(history.about)},\n' if history.about else ""
    rest = (name for name in ("pauses", "resets", "encoder_resets") if name in data)
    more = "".join(f',\n "{name}": {json.dumps(data[name])}' for name in rest)
    rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(r)}" for n, r in data["requests"].items())
    return (
        f'{{\n "kind": "{history.kind}", "version": {history.version},\n{about}'
        f' "deployment": {json.dumps(data["deployment"])},\n "requests": {{\n{rows}\n }}'
        f"{more}\n}}\n"
    )

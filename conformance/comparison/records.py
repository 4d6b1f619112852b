"""Records of histories: what was observed of a manager, as a digest for each step."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, TypeAlias


class Observable(StrEnum):
    """What is recorded of a manager, causes before consequences."""

    CALLS = "calls of the scheduler"
    CRASHES = "crashes"
    HITS = "hits"
    HIT_TABLES = "block tables of hits"
    SHARED = "shared prefixes"
    CAPPED_HITS = "hits under a cap"
    LOCAL_PREFIXES = "local prefixes for connectors"
    ADMISSION = "admission"
    RESETS = "resets"
    COPIES = "block copies"
    TABLES = "block tables"
    REF_COUNTS = "reference counts"
    CACHED = "registered blocks"
    FREE_BLOCKS = "free blocks"
    POOL_ORDER = "eviction order"
    USAGE = "usage"
    COMMON_PREFIX = "common prefixes"
    EVENTS = "events"
    STATISTICS = "statistics"


class Decision(StrEnum):
    """What is compared of a scheduler, causes before consequences."""

    STARTUP = "deployments that start-up accepts"
    CRASHES = "crashes of schedulers"
    ENDS = "requests that end"
    HITS = "hits of requests"
    PREEMPTIONS = "preemptions"
    EMPTY = "empty steps"
    SCHEDULED = "tokens that each step computes"


_OBSERVABLES = tuple(Observable)
_NUMBERS = {observable: str(number) for number, observable in enumerate(Observable)}

Label: TypeAlias = str
"""A block, by what it was allocated for: ``a/0/3@5`` is block 3 of request a in group 0, allocated
at the fifth call."""

StepRecord: TypeAlias = dict[Observable, list[Any]]
"""For each observable of which there was something to record, the values, in order."""

NULL: Label = "null"


@dataclass(frozen=True)
class Amounts:
    """Figures of one step, by which two managers can be called better or worse.

    Attributes:
        admitted: allocations that succeeded, and resets that were done.
        refused: those that did not, and were not.
        free: blocks that are free after the step.
        registered: entries of the cache after the step.
    """

    admitted: int = 0
    refused: int = 0
    free: int = 0
    registered: int = 0


@dataclass
class Record:
    """What was recorded of one history.

    Attributes:
        history: a digest of the history as it was played.
        steps: for each step that was played, a crash included, the digest of each observable of
            which there was something to record.
        amounts: for each of these steps.
    """

    history: str
    steps: list[dict[Observable, str]] = field(default_factory=list)
    amounts: list[Amounts] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The record as JSON; `from_json` reads it."""
        amounts = [list(vars(each).values()) for each in self.amounts]
        steps = [{_NUMBERS[each]: value for each, value in step.items()} for step in self.steps]
        return {"history": self.history, "steps": steps, "amounts": amounts}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Record":
        """Inverse of `as_json`."""
        return Record(
            data["history"],
            [{_OBSERVABLES[int(n)]: value for n, value in step.items()} for step in data["steps"]],
            [Amounts(*each) for each in data["amounts"]],
        )


def _ends(tokens: range) -> list[int]:
    return [tokens.start, tokens.stop]


def in_json(value: Any) -> str:
    """Values of JSON, and ranges by their ends, as a text."""
    return json.dumps(value, separators=(",", ":"), default=_ends)


def digest(value: Any) -> str:
    """Equal for equal values of JSON and ranges, and for practical purposes only for these."""
    return blake2b(in_json(value).encode(), digest_size=6).hexdigest()

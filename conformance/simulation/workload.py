"""Workloads: which requests arrive in which order, as data that can be kept.

A workload says nothing of models, pools and releases: those are chosen when it is simulated. As
JSON, with token ids one by one or as inclusive ranges ``[first, last]``::

    {"kind": "workload", "version": 1,
     "requests": [{"name": "a", "prompt": [[1, 4000]], "output": [[9001, 9100]]},
                  {"name": "a again", "prompt": [[1, 4000]], "lookup_only": true}]}

The tokens of an output are part of it, so that the next turn of a conversation can repeat them.
Recorded histories (`conformance.histories`) and traces (`conformance.simulation.traces`) are read,
too.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from hitproof.conformance.histories.json_format import described, strictly
from hitproof.conformance.histories.schema import (
    TOKEN_IDS_SCHEMA,
    EngineConfiguration,
    History,
    HistoryError,
    Strict,
)
from hitproof.conformance.simulation.tokens import TokenRanges, joined, num_tokens

_SCHEMA = "`hitproof simulate --schema` prints the schema"
MOST_TOKENS = 1 << 62
"""Token ids are smaller: hashes cover 64 bits of each."""


class WorkloadError(ValueError):
    """A workload that cannot be read or played; the message names the remedy."""


def _ranges(value: Any) -> TokenRanges:
    """Ranges from a list of token ids and of inclusive ranges [first, last]."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("token ids are a list of numbers and of ranges [first, last]")
    found = []
    for item in value:
        match item:
            case bool():
                raise ValueError(f"{item!r} is not a token id")
            case int():
                first = last = item
            case [int() as first, int() as last] if first <= last:
                pass
            case _:
                raise ValueError(f"{item!r} is neither a token id nor a range [first, last]")
        if not 0 <= first <= last < MOST_TOKENS:
            raise ValueError(f"token ids are from 0 to 2^62 - 1; {item!r} is not")
        found.append((first, last))
    return joined(found)


Ranges = Annotated[
    TokenRanges,
    BeforeValidator(_ranges),
    PlainSerializer(lambda found: [list(each) for each in found]),
    TOKEN_IDS_SCHEMA,
]


@dataclass(frozen=True)
class WorkloadRequest(Strict):
    """A request, and what the model answers."""

    prompt: Ranges
    """The prompt's token ids."""
    output: Ranges = ()
    """The tokens that the model samples."""
    name: str = ""
    """What it is called in results; its number by default."""
    lookup_only: bool = False
    """Whether it is only looked up, once all before it have ended, and computes nothing."""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise WorkloadError("a prompt has at least one token")
        if self.lookup_only and self.output:
            raise WorkloadError("a request that is only looked up has no output; leave one out")

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return num_tokens(self.prompt)

    @property
    def num_output_tokens(self) -> int:
        """Tokens of the output."""
        return num_tokens(self.output)

    @property
    def tokens(self) -> TokenRanges:
        """Prompt and output."""
        return joined((*self.prompt, *self.output))


@dataclass(frozen=True)
class Workload(Strict):
    """Requests in the order in which they arrive."""

    requests: tuple[WorkloadRequest, ...]
    """The requests."""
    about: str = field(default="", compare=False)
    """What the workload is like, for readers."""
    kind: Literal["workload"] = "workload"
    """Tells it from a history."""
    version: Literal[1] = 1
    """The version of this format."""

    def __post_init__(self) -> None:
        if not self.requests:
            raise WorkloadError("a workload has at least one request")

    @property
    def longest(self) -> int:
        """The most tokens of a request, prompt and output."""
        return max(each.num_prompt_tokens + each.num_output_tokens for each in self.requests)

    def label(self, index: int) -> str:
        """What a request is called."""
        return self.requests[index].name or str(index + 1)


@cache
def _adapter() -> TypeAdapter[Workload]:
    return TypeAdapter(Workload)


@cache
def engine_adapter() -> TypeAdapter[EngineConfiguration]:
    """How an engine goes to a worker."""
    return TypeAdapter(EngineConfiguration)


def schema() -> dict[str, Any]:
    """The JSON schema of a workload."""
    return described(Workload)


def read_workload(text: str | bytes, where: str = "the workload") -> Workload:
    """The workload in ``text``. Raises `WorkloadError`, one sentence that begins with ``where``.

    Unknown fields, duplicate names and values of the wrong type are rejected.
    """
    return strictly(_adapter(), text, where, WorkloadError, _SCHEMA)


def write_workload(workload: Workload) -> str:
    """The workload as JSON text, one request per line; `read_workload` reads it."""
    data = _adapter().dump_python(workload, mode="json", exclude_defaults=True)
    about = f' "about": {json.dumps(workload.about)},\n' if workload.about else ""
    rows = ",\n".join(f"  {json.dumps(request)}" for request in data["requests"])
    head = f' "kind": "{workload.kind}", "version": {workload.version},\n'
    return f'{{\n{head}{about} "requests": [\n{rows}\n ]\n}}\n'


def of_history(history: History) -> Workload:
    """The requests of a recorded history, in the order of its first steps about each.

    Raises `WorkloadError` where something besides tokens decides what they share.
    """
    order: dict[str, None] = {}
    for step in history.steps:
        name = getattr(step, "request", None)
        if name is not None:
            order[name] = None
    found = []
    for name in order or history.requests:
        request = history.requests[name]
        if request.images or request.embeddings or request.cache_salt or request.lora_name:
            raise WorkloadError(
                f"request {name} has images, embeddings, a salt or an adapter, which a workload "
                "cannot say; name a history without them"
            )
        found.append(WorkloadRequest(_of_ids(request.prompt), _of_ids(request.output), name))
    try:
        return Workload(tuple(found), history.about)
    except HistoryError as error:
        raise WorkloadError(str(error)) from error


def _of_ids(ids: Sequence[int]) -> TokenRanges:
    return joined((each, each) for each in ids)

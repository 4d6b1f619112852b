"""Traces in the published format of the Mooncake paper, as workloads.

JSON lines, each a request: ``timestamp`` (milliseconds), ``input_length`` and ``output_length``
(tokens), and ``hash_ids``, one for each block of 512 tokens of the prompt; equal ids mean equal
blocks with equal prefixes. Timestamps give the order of arrival; how many requests run at a time
is an option of the simulation. If a block is partly filled, only its first tokens count.
"""

import json
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from hitproof.conformance.histories.json_format import in_a_sentence
from hitproof.conformance.simulation.tokens import TokenRanges, joined
from hitproof.conformance.simulation.workload import (
    MOST_TOKENS,
    Workload,
    WorkloadError,
    WorkloadRequest,
)

BLOCK = 512
"""Tokens under one of the trace's hashes."""
_OUTPUTS = MOST_TOKENS // 2
"""Ids from here on are those of outputs, which no other request has."""
_FIELDS = "a line has timestamp, input_length, output_length and hash_ids"


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    timestamp: NonNegativeInt
    input_length: PositiveInt
    output_length: NonNegativeInt
    hash_ids: list[NonNegativeInt]


def is_trace(text: bytes) -> bool:
    """Whether the first line is one of a trace."""
    try:
        first = json.loads(text.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "hash_ids" in first


def read_trace(text: bytes, where: str) -> Workload:
    """The workload of a trace. Raises `WorkloadError`, one sentence that begins with ``where``."""
    lines = sorted(_lines(text, where), key=lambda line: line.timestamp)
    requests, outputs = [], _OUTPUTS
    for line in lines:
        output: TokenRanges = ()
        if line.output_length:
            output = ((outputs, outputs + line.output_length - 1),)
            outputs += line.output_length + 1
        requests.append(WorkloadRequest(_prompt(line), output))
    if not requests:
        raise WorkloadError(f"{where} has no request; {_FIELDS}")
    return Workload(tuple(requests), f"the trace {where}")


def _lines(text: bytes, where: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        if not raw.strip():
            continue
        at = f"{where} line {number}"
        try:
            line = _Line.model_validate_json(raw)
        except ValidationError as invalid:
            raise WorkloadError(f"{at}: {in_a_sentence(invalid, _FIELDS)}") from invalid
        blocks = -(-line.input_length // BLOCK)
        if len(line.hash_ids) != blocks:
            raise WorkloadError(
                f"{at}: {line.input_length} tokens are {blocks} blocks of {BLOCK}, but hash_ids "
                f"has {len(line.hash_ids)}; give one for each block"
            )
        if max(line.hash_ids) >= _OUTPUTS // BLOCK:
            raise WorkloadError(f"{at}: hash_ids are below {_OUTPUTS // BLOCK}; number them anew")
        yield line


def _prompt(line: _Line) -> TokenRanges:
    left, ranges = line.input_length, []
    for each in line.hash_ids:
        first, count = each * BLOCK, min(BLOCK, left)
        ranges.append((first, first + count - 1))
        left -= count
    return joined(ranges)

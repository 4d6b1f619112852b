"""Edges: requests that just fit into the pool, or just do not, and a reset of a small pool."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hitproof.conformance.histories.families import engines
from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    RequestInput,
    Reset,
    Schedule,
    Step,
)
from hitproof.spec.groups import Group, GroupKind

_APART = 7
"""Of the engines of families, every so many."""


def edges() -> Iterator[History]:
    """Histories of engines that admit no request in part, each with pools of several sizes.

    One request is computed in chunks; the next one hits half of it.
    """
    for number, engine in enumerate(islice(engines(), 0, None, _APART)):
        align = engine.alignment
        engine = replace(
            engine,
            max_model_len=8 * align,
            max_num_batched_tokens=(align, 2 * align + 1)[number % 2],
            max_concurrent_batches=1 + (number % 3 == 2),
            num_speculative_tokens=0,
            full_sequence_must_fit=True,
        )
        length = 8 * align - number % 3
        need = sum(
            min(most_blocks(engine, group), math.ceil(length / group.block_size))
            for group in engine.groups
        )
        requests = {
            "first": RequestInput(tuple(range(length - 1)), (900,)),
            "second": RequestInput((*range(4 * align), *range(500, 500 + length - 4 * align))),
        }
        ahead = engine.max_concurrent_batches > 1
        chunks = [Schedule(name, in_flight=ahead) for name in requests for _ in range(9)]
        steps: tuple[Step, ...] = (*chunks[:9], Finish("first"), *chunks[9:], Finish("second"))
        for room in (-2, -1, 0):
            yield History(replace(engine, num_gpu_blocks=1 + need + room), requests, steps)
    yield reset_of_all()


def reset_of_all() -> History:
    """Each block of a small pool is cached when the cache is reset, and then used again."""
    engine = EngineConfiguration((Group(GroupKind.FULL_ATTENTION, 2),), 4, 2, 8)
    requests = {"before": RequestInput(tuple(range(6))), "after": RequestInput(tuple(range(9, 15)))}
    used = [step for name in requests for step in (Schedule(name), Finish(name))]
    return History(engine, requests, (*used[:2], Reset(), *used[2:]))

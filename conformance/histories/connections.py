"""Connections: what KV connectors and others outside do with the blocks of a manager.

A connector loads tokens at once or later, in any number, in part or in vain; it sends the blocks of
requests that have ended, and stores blocks of those that run. Something outside takes free blocks,
down to the last one. All of that happens here on one engine of each shape, with few blocks, while
requests of the same text hit what is left.

`conformance.judge.judged_replay` judges every step.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hitproof.conformance.histories.families import engines
from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Hold,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    Release,
    RequestInput,
    Schedule,
    Sent,
    Step,
    Take,
)
from hitproof.spec.groups import GroupKind

_APART = 5
"""Distance between the chosen engines of families."""


def connections() -> Iterator[History]:
    """The histories, each of an engine of another shape; hashes do not look ahead."""
    several = (engine for engine in engines() if not engine.num_hash_lookahead_tokens)
    for number, engine in enumerate(islice(several, 0, None, _APART)):
        align = engine.alignment
        chunk = (align, None, 2 * align + 1)[number % 3]
        engine = replace(engine, max_model_len=12 * align, max_num_batched_tokens=chunk)
        most = sum(most_blocks(engine, group) for group in engine.groups)
        room = (most // 2, 2 * most, 0)[number % 3]
        engine = replace(engine, num_gpu_blocks=1 + most + room)
        yield History(engine, _requests(engine), tuple(_steps(engine, number)))


def _requests(engine: EngineConfiguration) -> dict[str, RequestInput]:
    """Requests of one text, or of another one."""
    align = engine.alignment
    text, other = tuple(range(1, 6 * align + 1)), tuple(range(500, 500 + 6 * align))
    branch = (*text[: 3 * align + 1], *other[: 2 * align])
    return {
        "sent": RequestInput(text, (900, 901)),
        "next": RequestInput((*text, 900, 901), (902,)),
        "other": RequestInput(other, (903,)),
        "branch": RequestInput((*branch, 7), (904,)),
        "loading": RequestInput((*text[: 2 * align + 1], *other), (905,)),
        "failing": RequestInput((8, *text), (906,)),
        "again": RequestInput((8, *text), (907,)),
        "long": RequestInput((9, *text, 9), (908,)),
        "looking": RequestInput((*text, 900, 901, 902)),
        "last": RequestInput((*text, 10), (909,)),
    }


def _steps(engine: EngineConfiguration, number: int) -> Iterator[Step]:
    align, groups = engine.alignment, len(engine.groups)
    # A state from inside a block would be taken for that of the block's end.
    exactly = not any(group.kind is GroupKind.MAMBA for group in engine.groups)
    tokens = 6 * align
    # Mamba's chunks end on block edges; surplus steps are skipped.
    chunks = math.ceil(tokens / engine.max_chunk) + 2
    yield from [Schedule("sent")] * chunks
    # What is sent stays, while the other blocks are taken.
    yield Finish("sent", sending=True)
    yield Lookup("looking")
    yield from (Take(2, "store"), Take(), Lookup("looking"), Schedule("next"))
    yield from (Release("store"), Schedule("next"), Release(), Schedule("next"), NewStep())
    # Blocks that a request holds, too, stay its own when they are released.
    yield Hold("next", number % groups, (0, 1, 2, 3, 4, 5))
    yield from (Release(), Sent("sent"), Schedule("next"), Schedule("next"))
    # What is held stays, and what is unused goes.
    yield from (Finish("next"), Hold("next", number % groups, (0, 1, 2), "store"))
    yield from (Take(), Lookup("looking"), Release(), Lookup("looking"), Release("store"))
    yield from [Schedule("other", external=2 * align + 1, exactly=exactly)] * 2
    yield from _loads(engine, number)
    yield from _fails(engine, number)
    # The last blocks of the pool.
    yield from (Preempt("other"), Take(), Release(), Finish("other"))
    yield from (Schedule("last"), Take(1), Schedule("last"), Schedule("last"), Finish("last"))
    yield from (Release(), Lookup("looking"))


def _loads(engine: EngineConfiguration, number: int) -> Iterator[Step]:
    """Loads at once and later, from the local prefix, with blocks left to others."""
    align = engine.alignment
    local = any(group.kind is GroupKind.MAMBA for group in engine.groups)
    blocks = engine.num_gpu_blocks
    for reserved in (blocks, blocks // 2, blocks // 4, number % 3):
        yield Load("branch", 2 * align, local_prefix=local, reserved_blocks=reserved)
    yield Schedule("other")
    yield from (Loaded("branch"), Schedule("branch"), Schedule("other"))
    yield Evict("next", len(engine.groups) - 1, (0, 1, 2))
    yield Load("loading", align + 1, exactly=not local)
    # It ends while it loads: its blocks are freed when that is over.
    yield from (Finish("loading", sending=True), Finish("branch"), Lookup("looking"))
    yield from (Sent("loading"), Lookup("looking"))
    for external in (0, align):
        yield Schedule("last", external=external, local_prefix=local)
        yield Preempt("last")


def _fails(engine: EngineConfiguration, number: int) -> Iterator[Step]:
    """Loads that fail: later in part or in vain, and at once, with and without another try."""
    align = engine.alignment
    local = any(group.kind is GroupKind.MAMBA for group in engine.groups)
    yield from (Load("failing", 3 * align), Loaded("failing", (2 * align - 1, 0)[number % 2]))
    yield from (Lookup("again"), Schedule("failing"), Finish("failing"))
    loaded = 3 * align + 1
    for recompute in (True, False):
        yield Schedule(
            "long", external=loaded, exactly=not local, valid=align + 1, recompute=recompute
        )
        yield Schedule("long")
        yield from (Preempt("long"), Lookup("long"))
        yield Evict("long", 0, tuple(range(8)))
    yield from (Schedule("again"), Finish("again"))

"""Families of histories: what one request leaves in the cache, and what later ones hit of it.

For each engine of a small family one request runs to its end, in chunks of several sizes. Then
every kind of later request is looked up: a resend, extensions, a shorter prefix, and a sibling
that diverges in each of the blocks. Then blocks of the prefix are evicted one by one, with lookups
after each eviction, so that every single block, and growing sets of them from either end and from
the middle, have been missing. Finally a request that extends the prompt resumes from what is left,
reads it, and leaves its own blocks in the cache.

`conformance.judge.judged_replay` judges every lookup, and every block that was registered or left
out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Lookup,
    RequestInput,
    Schedule,
    Step,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.retention import SPARSE_KINDS

_FULL, _MAMBA = GroupKind.FULL_ATTENTION, GroupKind.MAMBA


def _window(block_size: int, window: int, eagle: bool = False) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, block_size, window=window, eagle=eagle)


LAYOUTS: tuple[tuple[Group, ...], ...] = (
    (Group(_FULL, 2),),
    (_window(2, 3),),
    (_window(2, 6),),
    (Group(GroupKind.CHUNKED_LOCAL, 2, chunk=4),),
    (Group(_MAMBA, 2),),
    (Group(_FULL, 2), _window(2, 4)),
    (Group(_FULL, 4), _window(2, 3)),
    (Group(_FULL, 6), _window(2, 3)),
    (Group(_FULL, 2), _window(4, 6)),
    (Group(_FULL, 4), _window(2, 5), _window(4, 9)),
    (Group(_FULL, 2), Group(_MAMBA, 2)),
    (Group(_FULL, 2), _window(2, 4), Group(_MAMBA, 2)),
    (Group(_FULL, 2), Group(GroupKind.CHUNKED_LOCAL, 2, chunk=8)),
)
"""Every kind alone; windows that end on a block edge and inside a block; runs shorter than a
segment, as long as one, and longer; blocks smaller and larger than those of full attention; three
groups."""


def engines() -> Iterator[EngineConfiguration]:
    """The engines of a family.

    Each layout without EAGLE, with it, and with the draft layer in each group that can have it;
    each of those dense and, where retention thins something out, with two intervals. Then each
    layout with hashes that look ahead, dense and sparse.
    """
    yield from _engines()
    for engine in _engines():
        if engine.use_eagle and not any(group.eagle for group in engine.groups):
            yield replace(engine, num_hash_lookahead_tokens=1)


def _engines() -> Iterator[EngineConfiguration]:
    for groups in LAYOUTS:
        for flagged, use_eagle in _flags(groups):
            size = math.gcd(*(group.block_size for group in groups))
            align = math.lcm(*(group.block_size for group in groups))
            sparse = any(group.kind in SPARSE_KINDS for group in groups)
            for interval in (None, 0, 2 * align) if sparse else (None,):
                yield EngineConfiguration(
                    flagged, 100, size, 8 * align, use_eagle=use_eagle, retention_interval=interval
                )


def _flags(groups: tuple[Group, ...]) -> Iterator[tuple[tuple[Group, ...], bool]]:
    yield groups, False
    # vLLM runs chunked local attention without EAGLE only.
    if any(group.kind is GroupKind.CHUNKED_LOCAL for group in groups):
        return
    yield groups, True
    for number, group in enumerate(groups) if len(groups) > 1 else ():
        if group.kind is not _MAMBA:
            flagged = replace(group, eagle=True)
            yield (*groups[:number], flagged, *groups[number + 1 :]), True


def families(engine: EngineConfiguration) -> Iterator[History]:
    """The histories of an engine.

    Prompts end on a boundary and off it, chunks are of several sizes, and blocks are evicted from
    the end, from the start, from the middle, and each one alone.
    """
    align = engine.alignment
    lengths = (4 * align, 4 * align + 1, 5 * align - 1)
    chunks = (None, engine.hash_block_size, align + 1)
    for length, (number, chunk) in product(lengths, enumerate(chunks)):
        blocks = _blocks(engine, length)
        middle = len(blocks) // 2
        orders = (blocks[::-1], blocks, blocks[middle:] + blocks[:middle])
        yield _history(engine, length, chunk, orders[(number + length) % len(orders)])
    for block in _blocks(engine, lengths[-1]):
        yield _history(engine, lengths[-1], None, [block])


def _blocks(engine: EngineConfiguration, length: int) -> list[tuple[int, int]]:
    """Every full block of a prompt, by group and position."""
    return [
        (number, block)
        for number, group in enumerate(engine.groups)
        for block in range(length // group.block_size)
    ]


def _history(
    engine: EngineConfiguration, length: int, chunk: int | None, evicted: Sequence[tuple[int, int]]
) -> History:
    size, align = engine.hash_block_size, engine.alignment
    prompt, output = tuple(range(1, length + 1)), (7001, 7002)
    other = tuple(range(8000, 8000 + 2 * align))
    requests = {
        "producer": RequestInput(prompt, output),
        "resend": RequestInput(prompt),
        "extension": RequestInput((*prompt, *output, 7003)),
        "turn": RequestInput((*prompt, 7004, 7005)),
    }
    for end in range(size, length, size):
        requests[f"shorter {end}"] = RequestInput(prompt[: end + 1])
        requests[f"sibling {end}"] = RequestInput((*prompt[:end], *other)[: engine.max_model_len])
    lookups = [Lookup(name) for name in requests if name != "producer"]
    # After evictions, looking up boundaries is enough: hits end there.
    fewer = [
        lookup
        for lookup in lookups
        if " " not in lookup.request or int(lookup.request.split()[1]) % align == 0
    ]
    # Mamba's chunks end on block edges and may take more steps; surplus steps are skipped.
    num_chunks = 1 if chunk is None else length // min(chunk, size) + 1
    steps: list[Step] = [Schedule("producer", chunk)] * (num_chunks + len(output) + 1)
    steps += [Finish("producer"), *lookups]
    for group, block in evicted:
        steps += [Evict("extension", group, (block,)), *fewer]
    steps += [Schedule("turn"), Schedule("turn"), Finish("turn"), *fewer]
    return History(engine, requests, tuple(steps))

"""Blocks that a manager hands out: to KV connectors, those that a number of tokens fill, and to
workers, those that they zero.

A worker gets a request's whole block table when the request is admitted or resumed, and after that
only the blocks that ``allocate_slots`` answers, which it appends. So these must be the blocks that
the manager has added, in its order. vLLM: ``_update_states`` in ``v1/worker/gpu_model_runner.py``.
"""

import math
from collections.abc import Iterator, Sequence

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.managers import Tables
from hitproof.spec.admission import blocks_between
from hitproof.spec.groups import GroupKind


class WorkerTables:
    """The tables of all requests that have been scheduled."""

    def __init__(self) -> None:
        self._tables: dict[str, Tables] = {}

    def scheduled(self, request: str, manager_tables: Tables, new: Tables) -> Tables:
        """The request's tables for this step, in which null blocks are as in the manager's.

        What the manager has given up is not read: that the worker still has its number does not
        count. A table is shorter or longer than the manager's where ``new`` is not what was added.
        """
        known = self._tables.get(request)
        if known is None:
            tables = manager_tables
        else:
            tables = tuple((*had, *more) for had, more in zip(known, new, strict=True))
        self._tables[request] = tables
        return tuple(
            tuple(
                0 if place < len(managers) and not managers[place] else block_id
                for place, block_id in enumerate(worker)
            )
            for worker, managers in zip(tables, manager_tables, strict=True)
        )

    def freed(self, request: str) -> None:
        """The request gave up its blocks."""
        self._tables.pop(request, None)


def cut(engine: EngineConfiguration, hit_length: int) -> int:
    """The last boundary of all groups' blocks before the end of a hit; both in tokens."""
    groups = [group for group in engine.groups if group.prefix_cacheable]
    size = math.lcm(*(group.block_size for group in groups))
    return max(hit_length - 1, 0) // size * size


def wrong_blocks(
    engine: EngineConfiguration, tables: Tables, num_tokens: int, handed: Tables | None
) -> Iterator[tuple[str, str]]:
    """For each group whose blocks are not those of the first tokens: the expected and actual ones.

    A Mamba table may be handed as a whole: the state that counts is not found by its place. What
    opts out of prefix caching holds no blocks of tokens.
    """
    if handed is None:
        return
    for number, (group, table) in enumerate(zip(engine.groups, tables, strict=True)):
        due = tuple(table[: -(-num_tokens // group.block_size)])
        whole = group.kind is GroupKind.MAMBA and tuple(handed[number]) == tuple(table)
        if group.prefix_cacheable and tuple(handed[number]) != due and not whole:
            of = f"for {num_tokens} tokens of group {number}"
            yield f"blocks {due} {of}", f"blocks {tuple(handed[number])}"


def wrongly_loaded(tables: Tables, hit: Tables, asked: Tables | None) -> Iterator[tuple[str, str]]:
    """The expected and the actual blocks that a load of a connector writes, where these differ.

    They are those of the request's ``tables`` that are not of its ``hit``, in their order.
    """
    if asked is None:
        return
    for number, (table, had, found) in enumerate(zip(tables, hit, asked, strict=True)):
        due = [b for place, b in enumerate(table) if b and (b,) != had[place : place + 1]]
        if list(found) != due:
            yield f"a load writes blocks {due} of group {number}", f"blocks {list(found)}"


def wrongly_zeroed(
    engine: EngineConfiguration,
    held: Tables,
    hit: Tables,
    tables: Tables,
    zeroed: Sequence[int],
    loaded: int = 0,
) -> Iterator[tuple[str, str]]:
    """The expected and the actual blocks that a worker zeroes after an allocation, if different.

    They are the new blocks of the request, whose tables were ``held`` before, and none of its
    ``hit``, nor of the first ``loaded`` tokens, which a load writes meanwhile. States need not be
    zeroed, nor what opts out of prefix caching. Of windows and chunks all or none are: releases
    differ.
    """
    new = []
    for group, table, *before in zip(engine.groups, tables, held, hit, strict=True):
        # A block can leave the window and come back in another place.
        had = {(place, block) for each in before for place, block in enumerate(each)}
        had |= set(enumerate(table[: blocks_between(0, loaded, group.block_size)]))
        came = {block for place, block in enumerate(table) if block and (place, block) not in had}
        new.append(came)
    yield from _others(engine, new, zeroed, "new blocks")


def wrongly_zeroed_again(
    engine: EngineConfiguration, tables: Tables, start: int, zeroed: Sequence[int]
) -> Iterator[tuple[str, str]]:
    """The same of the blocks that are zeroed again: those of a request from a token on."""
    rest = [
        {block for block in table[start // group.block_size :] if block}
        for group, table in zip(engine.groups, tables, strict=True)
    ]
    # The null block, which is not read, may be among them.
    yield from _others(
        engine, rest, [block for block in zeroed if block], f"blocks from token {start} on,"
    )


def _others(
    engine: EngineConfiguration, of_groups: Sequence[set[int]], zeroed: Sequence[int], which: str
) -> Iterator[tuple[str, str]]:
    """The expected and the actual zeroed blocks of each group, where these differ."""
    due = set[int]()
    for group, blocks in zip(engine.groups, of_groups, strict=True):
        always = group.kind is GroupKind.FULL_ATTENTION and group.prefix_cacheable
        if always or (group.kind is not GroupKind.MAMBA and len(blocks.intersection(zeroed)) > 1):
            due |= blocks
    once = len(set(zeroed)) == len(zeroed)
    if not (due <= set(zeroed) <= set().union(*of_groups) and once):
        yield (
            f"{which} {sorted(due)} are zeroed once, and no others",
            f"blocks {sorted(zeroed)} are",
        )

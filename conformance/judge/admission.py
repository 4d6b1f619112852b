"""Admission: whether a manager may refuse an allocation, and keeps what it promises.

The clauses are those of `spec.admission`. How many blocks an allocation takes differs a little
between releases, so the judge has bounds. No manager needs more than the blocks of all slots that
the request does not hold yet, those of its hit that are free, and copies of blocks in which the hit
ends. And none needs fewer, for a whole request, than what its last token reads.
"""

import math
from collections.abc import Container

from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.managers import Allocation, Hit, Observation, Tables
from hitproof.spec.admission import blocks_between, first_token_read
from hitproof.spec.groups import Group, GroupKind, whole_blocks


def most_needed(
    engine: EngineConfiguration,
    before: Observation,
    allocation: Allocation,
    held: Tables,
    computed: int,
    num_tokens: int,
    waits: bool,
) -> float:
    """The most blocks that an allocation takes from the free queue.

    A hit of a Mamba state, or of a part of a block, that is registered in this very step has to
    wait for the next one, however many are free; ``waits`` is whether there is one
    (`hits_fresh_block`).

    ``held`` are the tables of a running request. ``computed`` of its ``num_tokens`` tokens are
    computed, or hit and loaded.
    """
    lookahead = allocation.num_lookahead_tokens
    slots = min(computed + allocation.num_new_tokens + lookahead, engine.max_model_len)
    tables = held if allocation.hit is None else allocation.hit.tables
    hit = 0 if allocation.hit is None else allocation.hit.length
    if waits:
        return math.inf
    need = 0
    for group, table in zip(engine.groups, tables, strict=True):
        most = most_blocks(engine, group)
        new = max(0, blocks_between(0, slots, group.block_size) - len(table))
        if allocation.full_sequence_must_fit:
            whole = max(0, blocks_between(0, num_tokens, group.block_size) - len(table))
            new = max(new, min(whole, most))
        # Older releases keep every state.
        need += new + most + 1 if group.kind is GroupKind.MAMBA else new
        if allocation.hit is not None:
            need += sum(block != 0 and block not in before.ref_counts for block in table)
            need += hit % group.block_size != 0
    return need


def hits_fresh_block(
    engine: EngineConfiguration,
    hit: Hit,
    at_start: Observation,
    seen: Observation,
    handed_out: Container[int],
) -> bool:
    """Whether the last block of some table of a hit is copied, and got its key in this step.

    States are copied, and blocks that are hit in part, before the step computes anything.
    ``at_start`` is the observation at the start of the step. It may be another block's key, too,
    or the same key as before, where the block was evicted, handed out in this step, and computed
    again.
    """
    last = {
        (index, table[-1])
        for index, (group, table) in enumerate(zip(engine.groups, hit.tables, strict=True))
        if table and (group.kind is GroupKind.MAMBA or hit.length % group.block_size)
    }
    return bool(last) and any(
        (key[0], block) in last and (block in handed_out or ids != at_start.cached.get(key))
        for key, ids in seen.cached.items()
        for block in ids
    )


def least_needed(
    engine: EngineConfiguration, before: Observation, hit: Tables, num_tokens: int
) -> int:
    """The fewest free blocks with which a request of ``num_tokens`` tokens and a hit can end."""
    need = 0
    for group, table in zip(engine.groups, hit, strict=True):
        first = 0 if not group.prefix_cacheable else _first_block_read(group, num_tokens - 1)
        last = 1 if not group.prefix_cacheable else blocks_between(0, num_tokens, group.block_size)
        need += max(0, last - max(first, len(table)))
        need += sum(
            block != 0 and block not in before.ref_counts for block in dict.fromkeys(table[first:])
        )
    return need


def _first_block_read(group: Group, query: int) -> int:
    """The first block that a token reads; of states, the one that it writes."""
    states = group.kind is GroupKind.MAMBA
    first = query if states else first_token_read(query, group.window, group.chunk)
    return int(whole_blocks(first, group.block_size))


class Admitted:
    """The requests that were admitted because all of them fits, and what they were promised."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def allocated(self, request: str, allocation: Allocation, num_tokens: int, taken: int) -> None:
        """A request of ``num_tokens`` tokens took ``taken`` blocks from the free queue."""
        if taken > 0:
            self._tokens = {name: n for name, n in self._tokens.items() if name == request}
        if allocation.full_sequence_must_fit:
            self._tokens.setdefault(request, num_tokens)

    def taken_by_others(self) -> None:
        """Blocks were taken that are not a request's: what was promised may lack them."""
        self._tokens.clear()

    def freed(self, request: str) -> None:
        """The request gave up its blocks."""
        self._tokens.pop(request, None)

    def is_promised(self, request: str, end: int) -> bool:
        """Whether the request was promised slots for its tokens up to ``end``."""
        return end <= self._tokens.get(request, 0)

"""Whether a manager may refuse an allocation: only when too few blocks are free.

How many blocks an allocation takes differs a little between releases. The judge has a bound: no
manager needs more than the blocks of all slots that the request does not hold yet, those of its hit
that are free, and copies of blocks in which the hit ends.
"""

import math

from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.managers import Allocation, Observation, Tables
from hitproof.spec.groups import GroupKind


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

    A hit of a Mamba state that is registered in this very step has to wait for the next one,
    however many are free; ``waits`` is whether there is one (`hits_fresh_state`).

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
        new = max(0, math.ceil(slots / group.block_size) - len(table))
        if allocation.full_sequence_must_fit:
            whole = max(0, math.ceil(num_tokens / group.block_size) - len(table))
            new = max(new, min(whole, most))
        # Older releases keep every state.
        need += new + most + 1 if group.kind is GroupKind.MAMBA else new
        if allocation.hit is not None:
            need += sum(block != 0 and block not in before.ref_counts for block in table)
            need += hit % group.block_size != 0
    return need


def hits_fresh_state(
    engine: EngineConfiguration, hit: Tables, at_start: Observation, seen: Observation
) -> bool:
    """Whether the last Mamba block of some table of a hit got its key in this step.

    ``at_start`` is the observation at the start of the step. It may be another block's key, too.
    """
    last = {
        (index, table[-1])
        for index, (group, table) in enumerate(zip(engine.groups, hit, strict=True))
        if group.kind is GroupKind.MAMBA and table
    }
    return bool(last) and any(
        (key[0], block) in last and ids != at_start.cached.get(key)
        for key, ids in seen.cached.items()
        for block in ids
    )

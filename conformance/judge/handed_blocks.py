"""Blocks that a manager hands to KV connectors: those that a number of tokens fill."""

import math
from collections.abc import Iterator

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.managers import Tables
from hitproof.spec.groups import GroupKind


def cut(engine: EngineConfiguration, hit_length: int) -> int:
    """The last boundary of all groups' blocks before the end of a hit; both in tokens."""
    groups = [group for group in engine.groups if group.prefix_cacheable]
    size = math.lcm(*(group.block_size for group in groups))
    return max(hit_length - 1, 0) // size * size


def wrong_blocks(
    engine: EngineConfiguration, tables: Tables, num_tokens: int, handed: Tables | None
) -> Iterator[tuple[str, str]]:
    """For each group whose blocks are not those of the first tokens: which are due, and which not.

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

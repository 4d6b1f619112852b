"""Lookup of one group: the longest valid hit and its block table.

Each block is asked about at most once, and a scan stops as soon as the answer is fixed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spec.groups import BlockGeometry, GroupKind
from spec.hits import required_run, run_end


class Pool(Protocol):
    """The part of a block pool that lookup uses. vLLM: ``BlockPool``."""

    null_block: Any

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""


def find_longest_cache_hit(
    block_hashes: Sequence[bytes],
    max_blocks: int,
    kv_cache_group_ids: Sequence[int],
    block_pool: Pool,
    group: BlockGeometry,
) -> list[list[Any]]:
    """The block tables, one a group id, of the longest valid hit within ``max_blocks`` blocks.

    The hit length is the tables' length times the block size. Blocks outside the required run
    are null. vLLM: ``find_longest_cache_hit`` of ``FullAttentionManager`` and
    ``SlidingWindowManager``.
    """
    tables = [[block_pool.null_block] * max_blocks for _ in kv_cache_group_ids]

    def cached(block: int) -> bool:
        found = block_pool.get_cached_block(block_hashes[block], kv_cache_group_ids)
        if found is None:
            return False
        for table, cached_block in zip(tables, found, strict=True):
            table[block] = cached_block
        return True

    full = group.kind is GroupKind.FULL_ATTENTION
    boundary = (_scan_left_to_right if full else _scan_right_to_left)(cached, max_blocks, group)
    return [table[:boundary] for table in tables]


def _scan_left_to_right(cached: Callable[[int], bool], limit: int, group: BlockGeometry) -> int:
    """Every block counts: the first miss ends the prefix."""
    prefix = 0
    while prefix < limit and cached(prefix):
        prefix += 1
    boundary: int = max(prefix - group.lookahead, 0) // group.segment * group.segment
    return boundary


def _scan_right_to_left(cached: Callable[[int], bool], limit: int, group: BlockGeometry) -> int:
    """A miss at block i rules out every boundary whose required run contains i."""
    boundary: int = (limit - group.lookahead) // group.segment * group.segment
    i = run_end(group, boundary) - 1
    while boundary > 0 and i >= required_run(group, boundary).start:
        if cached(i):
            i -= 1
            continue
        while boundary > 0 and i in required_run(group, boundary):
            boundary -= group.segment
        i = run_end(group, boundary) - 1
    return max(boundary, 0)

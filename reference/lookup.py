"""Lookup of one group: the longest valid hit and its block table.

Each block is asked about at most once, and the lookup stops as soon as the answer is fixed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from reference.scan import Scan, SkippingScan, first_state, hit_found, is_done
from spec.groups import BlockGeometry


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
    scan: Scan | None = None,
) -> list[list[Any]]:
    """The block tables, one a group id, of the longest valid hit within ``max_blocks`` blocks.

    The hit length is the tables' length times the block size. Blocks outside the required run
    are null. ``scan`` decides which blocks are asked about, not what is returned; a
    `reference.scan.SkippingScan` by default. vLLM: ``find_longest_cache_hit`` of the manager of
    the group's kind.
    """
    scan = SkippingScan() if scan is None else scan
    tables = [[block_pool.null_block] * max_blocks for _ in kv_cache_group_ids]

    def cached(block: int) -> bool:
        found = block_pool.get_cached_block(block_hashes[block], kv_cache_group_ids)
        if found is None:
            return False
        for table, cached_block in zip(tables, found, strict=True):
            table[block] = cached_block
        return True

    state = first_state(group, max_blocks)
    while not is_done(state):
        hit = cached(scan.asks(state))
        state = scan.after_hit(state) if hit else scan.after_miss(group, state)
    return [table[: hit_found(state)] for table in tables]

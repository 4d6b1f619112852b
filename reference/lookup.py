"""Lookup in one group: the longest valid hit and its block table.

Each block is asked about at most once, and the lookup stops as soon as the answer is fixed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from hitproof.reference.scan import after_hit, after_miss, first_state, hit_found, is_done
from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import required_run, run_start


class Pool(Protocol):
    """The part of a block pool that lookup uses. vLLM: ``BlockPool``."""

    null_block: Any

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""


class Lookup:
    """The lookups of one group."""

    def __init__(self, group: BlockGeometry) -> None:
        self._group = group

    def __call__(
        self,
        block_hashes: Sequence[bytes],
        max_blocks: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: Pool,
    ) -> list[list[Any]]:
        """The block tables, one per group id, of the longest hit within ``max_blocks`` blocks.

        The hit length is the tables' length times the block size. Blocks outside the required
        run are null. vLLM: ``find_longest_cache_hit`` of the manager of the group's kind.
        """
        group, get_cached_block = self._group, block_pool.get_cached_block
        cached: dict[int, Sequence[Any]] = {}
        state = first_state(group, max_blocks)
        while not is_done(state):
            before = len(cached)
            for block in range(state.left, state.right):
                blocks = get_cached_block(block_hashes[block], kv_cache_group_ids)
                if blocks is None:
                    state = after_hit(state, len(cached) - before)
                    state = after_miss(group, state)
                    run = required_run(group, state.boundary)
                    cached = {block: each for block, each in cached.items() if block in run}
                    break
                cached[block] = blocks
            else:
                break
        hit = hit_found(state)
        if not hit:
            return [[] for _ in kv_cache_group_ids]
        start = max(run_start(group, hit), 0)
        held = [cached[block] for block in range(start, hit)]
        absent = [block_pool.null_block] * start
        return [
            absent + [blocks[member] for blocks in held]
            for member in range(len(kv_cache_group_ids))
        ]

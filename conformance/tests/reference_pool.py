"""The reference's block pool as the check of pools sees it: blocks by their numbers."""

from collections.abc import Sequence

from hitproof.conformance.subject.pools import Key, PoolSnapshot
from hitproof.reference.pool import BlockPool
from hitproof.reference.request import Request


class ReferencePool:
    """`conformance.subject.pools.Pool` on `reference.pool.BlockPool`."""

    def __init__(self, num_blocks: int) -> None:
        self._pool = BlockPool(num_blocks)

    def get_new_blocks(self, count: int) -> list[int]:
        return [block.block_id for block in self._pool.get_new_blocks(count)]

    def touch(self, blocks: Sequence[int]) -> None:
        self._pool.touch(self._pool.blocks[block] for block in blocks)

    def free_blocks(self, blocks: Sequence[int]) -> None:
        self._pool.free_blocks((self._pool.blocks[block] for block in blocks), True)

    def cache_full_block(self, block: int, key: Key) -> None:
        block_hash, group_id = key
        request = Request("", [0], 1)
        request.block_hashes = [block_hash]
        self._pool.cache_full_blocks(request, {0: self._pool.blocks[block]}, 1, group_id)

    def evict_blocks(self, blocks: Sequence[int]) -> None:
        self._pool.evict_blocks(blocks)

    def reset_prefix_cache(self) -> bool:
        return self._pool.reset_prefix_cache()

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        found = self._pool.get_cached_block(block_hash, groups)
        return None if found is None else [block.block_id for block in found]

    def snapshot(self) -> PoolSnapshot:
        """The pool's current state."""
        pool = self._pool
        return PoolSnapshot(
            null_block=pool.null_block.block_id,
            ref_counts=tuple(block.ref_cnt for block in pool.blocks),
            free_queue=tuple(pool.free),
            free_count=pool.num_free_blocks,
            carried=tuple(
                frozenset() if b.block_hash is None else frozenset({(b.block_hash, b.group_id)})
                for b in pool.blocks
            ),
            named=frozenset(
                ((block_hash, group_id), block.block_id)
                for group_id, block_hash, blocks in pool.cached_blocks()
                for block in blocks
            ),
        )

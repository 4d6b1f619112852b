"""The order in which free blocks are reused: the front of the queue first."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """One block of the pool. vLLM: ``KVCacheBlock``.

    Attributes:
        block_id: its place in the pool, from 0.
        ref_cnt: how many requests hold it; 0 when it is in the free queue. Not maintained for
            the null block.
        block_hash: its hash when it is cached, else None.
        group_id: the group under which it is cached; meaningless when it is not cached.
        is_null: whether it is the placeholder for absent blocks.
    """

    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None
    group_id: int = 0
    is_null: bool = False


class FreeBlockQueue:
    """Free blocks in the order of reuse; every operation takes constant time per block.

    vLLM: ``FreeKVCacheBlockQueue``.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        self._blocks = OrderedDict((block.block_id, block) for block in blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def popleft_n(self, count: int) -> list[KVCacheBlock]:
        """Take the first ``count`` blocks; the queue must hold at least that many."""
        return [self._blocks.popitem(last=False)[1] for _ in range(count)]

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out of the middle."""
        del self._blocks[block.block_id]

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Add blocks at the end, in order."""
        self._blocks.update((block.block_id, block) for block in blocks)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Add blocks in front, so that the first of them is reused first."""
        self.append_n(blocks)
        for block in reversed(blocks):
            self._blocks.move_to_end(block.block_id, last=False)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """Every free block, in the order of reuse."""
        return list(self._blocks.values())

"""The order in which free blocks are reused: the front of the queue first."""

from collections.abc import Sequence
from dataclasses import dataclass, field


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
        previous: the block before it in the free queue, while it is there.
        next: the block after it.
    """

    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None
    group_id: int = 0
    is_null: bool = False
    previous: "KVCacheBlock" = field(init=False, repr=False)
    next: "KVCacheBlock" = field(init=False, repr=False)


class FreeBlockQueue:
    """Free blocks in the order of reuse; every operation takes constant time per block.

    vLLM: ``FreeKVCacheBlockQueue``.
    """

    def __init__(self, blocks: Sequence[KVCacheBlock]) -> None:
        # The blocks form a ring, closed by a sentinel that is not in the pool.
        self._end = KVCacheBlock(-1)
        self._end.previous = self._end.next = self._end
        self._count = 0
        self.append_n(blocks)

    def __len__(self) -> int:
        return self._count

    def popleft_n(self, count: int) -> list[KVCacheBlock]:
        """Take the first ``count`` blocks; the queue must hold at least that many."""
        taken, block = [], self._end.next
        for _ in range(count):
            taken.append(block)
            block = block.next
        self._end.next, block.previous = block, self._end
        self._count -= count
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out of the middle."""
        block.previous.next, block.next.previous = block.next, block.previous
        self._count -= 1

    def append_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Add blocks at the end, in order."""
        self._insert(self._end.previous, blocks)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Add blocks in front, so that the first of them is reused first."""
        self._insert(self._end, blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """Every free block, in the order of reuse."""
        found, block = [], self._end.next
        while block is not self._end:
            found.append(block)
            block = block.next
        return found

    def _insert(self, last: KVCacheBlock, blocks: Sequence[KVCacheBlock]) -> None:
        """Put the blocks after ``last``, in order."""
        after = last.next
        for block in blocks:
            last.next, block.previous = block, last
            last = block
        last.next, after.previous = after, last
        self._count += len(blocks)

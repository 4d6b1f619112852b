"""The block pool: which blocks are free, and which are cached under what hash."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hitproof.reference.request import Request


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """One block of the pool. vLLM: ``KVCacheBlock``.

    Attributes:
        block_id: its place in the pool, from 0, which is that of the null block.
        ref_cnt: how many requests hold it; 0 when it is free, and always for the null block.
        block_hash: its hash when it is cached, else None.
        group_id: the group under which it is cached; meaningless when it is not cached.
    """

    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None
    group_id: int = 0

    @property
    def is_null(self) -> bool:
        """Whether it is the placeholder for absent blocks."""
        return not self.block_id


class BlockPool:
    """All blocks, shared by every group. vLLM: ``BlockPool``.

    A *cached* block has a hash and is found by lookup, whether a request holds it or it is free;
    it stays cached until it is reused. Several blocks may be cached under one hash, since block
    tables are append-only: a block that becomes full is never replaced by an equal one. Lookup
    returns the one that was cached first.

    Attributes:
        blocks: the blocks, by their ids.
        free: the free ones, in the order of reuse.
    """

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.free = OrderedDict((block.block_id, block) for block in self.blocks[1:])
        self._cached: defaultdict[int, dict[bytes, list[KVCacheBlock]]] = defaultdict(dict)

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""
        found = []
        for group_id in kv_cache_group_ids:
            blocks = self._cached[group_id].get(block_hash)
            if blocks is None:
                return None
            found.append(blocks[0])
        return found

    @property
    def num_free_blocks(self) -> int:
        """How many blocks can be allocated."""
        return len(self.free)

    @property
    def num_cached_keys(self) -> int:
        """How many keys (group and hash) lookups find."""
        return sum(map(len, self._cached.values()))

    def cached_blocks(self) -> Iterator[tuple[int, bytes, list[KVCacheBlock]]]:
        """The cached blocks by key (group and hash); first, the one that lookup returns."""
        for group_id, found in self._cached.items():
            for block_hash, blocks in found.items():
                yield group_id, block_hash, blocks

    def cache_full_blocks(
        self, request: Request, blocks: Mapping[int, KVCacheBlock], block_size: int, group_id: int
    ) -> None:
        """Register blocks of a request, by their places in its table."""
        hashes = request.hashes(block_size)
        for place, block in blocks.items():
            assert block.block_hash is None, f"block {block.block_id} is already cached"
            block.block_hash, block.group_id = hashes[place], group_id
            self._cached[group_id].setdefault(hashes[place], []).append(block)

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take the next free blocks for one request, evicting those that were cached.

        At least that many must be free.
        """
        taken = [self.free.popitem(last=False)[1] for _ in range(num_blocks)]
        for block in taken:
            self._evict(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add one holder to each block, which keeps it from being reused."""
        for block in blocks:
            if not block.is_null:
                self.free.pop(block.block_id, None)
                block.ref_cnt += 1

    def free_blocks(
        self, ordered_blocks: Iterable[KVCacheBlock], scratch_first: bool = True
    ) -> None:
        """Remove one holder from each block; those without a holder become free.

        They are reused in the order given. ``scratch_first`` puts those without a hash at the
        front of the queue, before all blocks that are free already.
        """
        scratch: list[int] = []
        for block in ordered_blocks:
            if block.ref_cnt:
                block.ref_cnt -= 1
                if not block.ref_cnt:
                    self.free[block.block_id] = block
                    if scratch_first and block.block_hash is None:
                        scratch.append(block.block_id)
        for block_id in reversed(scratch):
            self.free.move_to_end(block_id, last=False)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Make lookups stop finding these blocks; their holders keep them."""
        for block_id in block_ids:
            self._evict(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Uncache all blocks; returns False and does nothing while requests hold any."""
        if self.num_free_blocks != len(self.blocks) - 1:
            return False
        self._cached.clear()
        for block in self.blocks:
            block.block_hash = None
        return True

    def _evict(self, block: KVCacheBlock) -> None:
        if block.block_hash is not None:
            found = self._cached[block.group_id]
            found[block.block_hash].remove(block)
            if not found[block.block_hash]:
                del found[block.block_hash]
            block.block_hash = None

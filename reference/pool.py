"""The block pool: which blocks are free, and which are cached under what hash."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hitproof.reference.free_queue import FreeBlockQueue, KVCacheBlock
from hitproof.reference.hashing import block_hashes_of_size
from hitproof.reference.request import Request
from hitproof.spec.groups import ConfigurationError


class BlockPool:
    """All blocks, shared by every group. vLLM: ``BlockPool``.

    A *cached* block has a hash and is found by lookup, whether a request holds it or it is free;
    it stays cached until it is reused. Several blocks may be cached under one hash, since block
    tables are append-only: a block that becomes full is never replaced by an equal one. Lookup
    returns the one that was cached first.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ConfigurationError(
                f"a pool needs at least one block, for the null block; {num_blocks} is invalid"
            )
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self.null_block, *usable = self.blocks
        self.null_block.is_null = True
        self.free_block_queue = FreeBlockQueue(usable)
        self._first: defaultdict[int, dict[bytes, KVCacheBlock]] = defaultdict(dict)
        self._later: dict[tuple[int, bytes], list[KVCacheBlock]] = {}

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""
        found = []
        for group_id in kv_cache_group_ids:
            block = self._first[group_id].get(block_hash)
            if block is None:
                return None
            found.append(block)
        return found

    @property
    def num_cached_keys(self) -> int:
        """How many keys (group and hash) lookups find."""
        return sum(map(len, self._first.values()))

    def cached_blocks(self) -> Iterator[tuple[int, bytes, list[KVCacheBlock]]]:
        """The cached blocks by key (group and hash); first, the one that lookup returns."""
        for group_id, blocks in self._first.items():
            for block_hash, block in blocks.items():
                later = self._later.get((group_id, block_hash), ())
                yield group_id, block_hash, [block, *later]

    def cache_full_blocks(
        self,
        request: Request,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool],
    ) -> list[int]:
        """Register a request's blocks from ``num_cached_blocks`` up to ``num_full_blocks``.

        ``block_mask`` has one entry for each of them; blocks that it leaves out, and null
        blocks, are skipped. Returns the indices of the others.
        """
        hashes = block_hashes_of_size(request.block_hashes, request.hash_block_size, block_size)
        registered = [
            index
            for index, kept in zip(
                range(num_cached_blocks, num_full_blocks), block_mask, strict=True
            )
            if kept and not blocks[index].is_null
        ]
        for index in registered:
            self._insert(blocks[index], hashes[index], kv_cache_group_id)
        return registered

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take the next free blocks for one request, evicting those that were cached.

        Raises `ValueError` when fewer are free: callers check `num_free_blocks` first.
        """
        if num_blocks > self.num_free_blocks:
            raise ValueError(f"{num_blocks} blocks are requested, {self.num_free_blocks} are free")
        taken = self.free_block_queue.popleft_n(num_blocks)
        for block in taken:
            self._evict(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add one holder to each block, which keeps it from being reused."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(
        self, ordered_blocks: Iterable[KVCacheBlock], scratch_first: bool = True
    ) -> None:
        """Remove one holder from each block; those without a holder become free.

        They are reused in the order given. ``scratch_first`` puts those without a hash at the
        front of the queue, before all blocks that are free already.
        """
        freed: list[KVCacheBlock] = []
        scratch: list[KVCacheBlock] = []
        for block in ordered_blocks:
            if block.ref_cnt > 1:
                block.ref_cnt -= 1
            elif block.ref_cnt:  # The null block is never held.
                block.ref_cnt = 0
                if scratch_first and block.block_hash is None:
                    scratch.append(block)
                else:
                    freed.append(block)
        self.free_block_queue.prepend_n(scratch)
        self.free_block_queue.append_n(freed)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Make lookups stop finding these blocks; their holders keep them."""
        for block_id in block_ids:
            self._evict(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        """Uncache all blocks; returns False and does nothing while requests hold any."""
        if self.num_free_blocks != len(self.blocks) - 1:
            return False
        self._first.clear()
        self._later.clear()
        for block in self.blocks:
            block.block_hash = None
        return True

    @property
    def num_free_blocks(self) -> int:
        """How many blocks can be allocated."""
        return len(self.free_block_queue)

    def _insert(self, block: KVCacheBlock, block_hash: bytes, group_id: int) -> None:
        if block.block_hash is not None:
            raise ValueError(f"block {block.block_id} is already cached; free it before reuse")
        block.block_hash, block.group_id = block_hash, group_id
        first = self._first[group_id].setdefault(block_hash, block)
        if first is not block:
            self._later.setdefault((group_id, block_hash), []).append(block)

    def _evict(self, block: KVCacheBlock) -> None:
        if block.block_hash is None:
            return
        blocks, key = self._first[block.group_id], (block.group_id, block.block_hash)
        later = self._later.get(key, [])
        if blocks[block.block_hash] is not block:
            later.remove(block)
        elif later:
            blocks[block.block_hash] = later.pop(0)
        else:
            del blocks[block.block_hash]
        if not later:
            self._later.pop(key, None)
        block.block_hash = None

"""A small block pool that does all that `spec.pool` asks: what the broken pools start from."""

from collections.abc import Sequence

from hitproof.conformance.subject.pools import Key, PoolSnapshot


class PlainPool:
    """`conformance.subject.pools.Pool` with plain lists; block 0 is the null block."""

    def __init__(self, num_blocks: int) -> None:
        self.ref_counts = [0] * num_blocks
        self.free_queue = list(range(1, num_blocks))
        self.free_count = num_blocks - 1
        self.carried: list[set[Key]] = [set() for _ in range(num_blocks)]
        self.named: dict[Key, list[int]] = {}

    def get_new_blocks(self, count: int) -> list[int]:
        """The blocks that were freed first; their keys are gone."""
        blocks = self.free_queue[:count]
        for block in blocks:
            self._leave_queue(block)
            self._forget(block)
            self.ref_counts[block] += 1
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        """Unused blocks leave the free queue."""
        for block in blocks:
            if block:
                if self.ref_counts[block] == 0:
                    self._leave_queue(block)
                self.ref_counts[block] += 1

    def free_blocks(self, blocks: Sequence[int]) -> None:
        """The last holder puts a block into the free queue, keys and all.

        Blocks without a key join in front, the first one first.
        """
        scratch = 0
        for block in blocks:
            if block:
                self.ref_counts[block] -= 1
                if self.ref_counts[block] == 0:
                    self._join_queue(block)
                    if not self.carried[block] and self.free_queue[-1] == block:
                        self.free_queue.insert(scratch, self.free_queue.pop())
                        scratch += 1

    def cache_full_block(self, block: int, key: Key) -> None:
        """Several blocks may have one key; the first is found."""
        if block:
            self.carried[block].add(key)
            self.named.setdefault(key, []).append(block)

    def evict_blocks(self, blocks: Sequence[int]) -> None:
        """They are held as before."""
        for block in blocks:
            self._forget(block)

    def reset_prefix_cache(self) -> bool:
        """Refused as long as a block is held."""
        if any(self.ref_counts):
            return False
        self.evict_blocks(range(len(self.ref_counts)))
        return True

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        """The first block under each key."""
        found = [self.named.get((block_hash, group)) for group in groups]
        return [blocks[0] for blocks in found if blocks] if all(found) else None

    def snapshot(self) -> PoolSnapshot:
        """What it knows."""
        return PoolSnapshot(
            null_block=0,
            ref_counts=tuple(self.ref_counts),
            free_queue=tuple(self.free_queue),
            free_count=self.free_count,
            carried=tuple(map(frozenset, self.carried)),
            named=frozenset((key, block) for key, held in self.named.items() for block in held),
        )

    def _leave_queue(self, block: int) -> None:
        self.free_queue.remove(block)
        self.free_count -= 1

    def _join_queue(self, block: int) -> None:
        self.free_queue.append(block)
        self.free_count += 1

    def _forget(self, block: int) -> None:
        for key in self.carried[block]:
            self.named[key].remove(block)
            if not self.named[key]:
                del self.named[key]
        self.carried[block] = set()


class UnpinningPool(PlainPool):
    """One that can unpin blocks, which it puts last, and tells which of them are reused."""

    can_unpin = True

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.watched: set[int] = set()
        self.reused: list[int] = []

    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        """Freed ones come after all others."""
        self.free_blocks(blocks)
        for block in blocks:
            if self.ref_counts[block] == 0:
                self.free_queue.remove(block)
                self.free_queue.append(block)
        self.watched.update(blocks)

    def take_reused(self) -> Sequence[int]:
        """Those since the last time."""
        reused, self.reused = self.reused, []
        return reused

    def get_new_blocks(self, count: int) -> list[int]:
        """They are reused."""
        reused = super().get_new_blocks(count)
        self._report(reused)
        return reused

    def reset_prefix_cache(self) -> bool:
        """So are all."""
        done = super().reset_prefix_cache()
        if done:
            self._report([*self.watched])
        return done

    def _report(self, blocks: Sequence[int]) -> None:
        self.reused += [block for block in blocks if block in self.watched]
        self.watched.difference_update(blocks)

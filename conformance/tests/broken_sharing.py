"""The reference with one fault each in what something outside does with its blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hitproof.conformance.reference.managers import ReferenceManager
from hitproof.conformance.subject.managers import Allocation, Hit, Tables
from hitproof.conformance.tests.broken_managers import Wrapped


class FreesTooMuch(Wrapped):
    """Frees what a connector is to send."""

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        del num_computed_tokens
        self.inner.free(name)


class FreesOneMore(Wrapped):
    """Frees what the last token reads, as if there were one window more."""

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.inner.remove_skipped_blocks(name, num_computed_tokens + 8)


class FreesNothing(Wrapped):
    """Keeps what a connector need not send."""

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        pass


class TakesFromTheBack(Wrapped):
    """Hands out the free blocks that were used last."""

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        queue = self.pool.free_block_queue
        blocks = queue.get_all_free_blocks()
        for block in blocks:
            queue.remove(block)
        queue.append_n(blocks[::-1])
        return self.inner.take_free_blocks(count)


class KeepsOneBack(Wrapped):
    """Never hands out the last free block."""

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        free = self.pool.num_free_blocks
        return self.inner.take_free_blocks(min(free - 1, free if count is None else count))


class HoldsNothing(Wrapped):
    """Does not count who holds blocks from outside."""

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        self.inner._outside += block_ids


class ReleasesNothing(Wrapped):
    """Never gets back what is released."""

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        for number in block_ids:
            self.inner._outside.remove(number)


class ReleasesTwice(Wrapped):
    """Gives released blocks back once more, for a request that still holds them."""

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        self.inner.release_blocks(block_ids)
        self.pool.free_blocks([self.pool.blocks[n] for n in block_ids], scratch_first=False)


class ReleasesHeadFirst(Wrapped):
    """Queues released blocks so that the head of a prefix goes before its tail."""

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        for number in block_ids:
            self.inner.release_blocks([number])


class IgnoresReserved(Wrapped):
    """Leaves no blocks to others."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        return self.inner.allocate_slots(name, replace(allocation, reserved_blocks=0))


class ReservesTwice(Wrapped):
    """Leaves twice as many blocks to others as it should."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        twice = replace(allocation, reserved_blocks=2 * allocation.reserved_blocks)
        return self.inner.allocate_slots(name, twice)


class EvictsFirstOnly(Wrapped):
    """Of the blocks that a connector reports invalid it evicts one."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.inner.evict_blocks(sorted(block_ids)[:1])


class RegistersWhatFailed(Wrapped):
    """Registers all that a connector was to load, whatever failed."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        self._most: dict[str, int] = {}

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        if allocation.hit is not None:
            loaded = allocation.num_external_computed_tokens
            self._most[name] = allocation.hit.length + loaded
        return self.inner.allocate_slots(name, allocation)

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.inner.cache_blocks(name, max(num_computed_tokens, self._most.get(name, 0)))


class LongerPrefixes(Wrapped):
    """Reports one block more to connectors than there is."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool]:
        hit, flagged = self.inner.get_computed_blocks_for_connector(name, cap)
        align = self.inner._engine.alignment
        return replace(hit, length=hit.length + align), flagged


class ForgetsWhatIsFreed(Wrapped):
    """What a request gives up is found no more."""

    def free(self, name: str) -> None:
        tables = self.inner.observe().tables.get(name, ())
        self.inner.free(name)
        self.inner.evict_blocks(sorted({block for table in tables for block in table if block}))


class ForgetsTheNextFree(Wrapped):
    """With what it hands out, the pool forgets what the next free block holds."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        new = self.inner.allocate_slots(name, allocation)
        cached = [
            b.block_id for b in self.pool.free_block_queue.get_all_free_blocks() if b.block_hash
        ]
        self.inner.evict_blocks(cached[:1] if new else ())
        return new


class ForgetsTheHit(Wrapped):
    """Whoever hits a block takes its key away."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        new = self.inner.allocate_slots(name, allocation)
        if new is not None and allocation.hit is not None:
            self.inner.evict_blocks([b for table in allocation.hit.tables for b in table if b])
        return new

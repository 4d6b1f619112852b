"""Block pools of a subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

Key: TypeAlias = tuple[bytes, int]
"""What a cached block is found under: a block hash and the number of a group."""


@dataclass(frozen=True)
class PoolSnapshot:
    """All that a block pool knows at one moment. Blocks go by their numbers.

    Attributes:
        null_block: the null block.
        ref_counts: the reference count of each block.
        free_queue: the blocks in the free queue, the next to be handed out first.
        free_count: how many blocks the pool says are free.
        carried: the keys that each block carries.
        named: each entry of the cache, as the key and the block that it names.
    """

    null_block: int
    ref_counts: tuple[int, ...]
    free_queue: tuple[int, ...]
    free_count: int
    carried: tuple[frozenset[Key], ...]
    named: frozenset[tuple[Key, int]]


class Pool(Protocol):
    """A subject's block pool. Methods are called as vLLM's ``BlockPool`` names them."""

    def get_new_blocks(self, count: int) -> list[int]:
        """Hand out ``count`` blocks."""

    def touch(self, blocks: Sequence[int]) -> None:
        """Count one more holder of each block."""

    def free_blocks(self, blocks: Sequence[int]) -> None:
        """Count one holder less; the first block is to be handed out first."""

    def cache_full_block(self, block: int, key: Key) -> None:
        """Register one block (``cache_full_blocks`` of a request of one block)."""

    def evict_blocks(self, blocks: Sequence[int]) -> None:
        """Declare the content of the blocks invalid."""

    def reset_prefix_cache(self) -> bool:
        """Forget all keys, unless a block is held; whether it did."""

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        """The block found under the hash in each of the groups; None if one has none."""

    def snapshot(self) -> PoolSnapshot:
        """What the pool knows now."""


@runtime_checkable
class UnpinningPool(Pool, Protocol):
    """A pool that takes back blocks which are read on until it hands them out."""

    @property
    def can_unpin(self) -> bool:
        """Whether it does; not all releases do."""

    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        """Count one holder less; blocks that become free are handed out last."""

    def take_reused(self) -> Sequence[int]:
        """The unpinned blocks whose reuse was reported since the last call."""


class PoolSubject(Protocol):
    """Has a block pool."""

    def pool(self, num_blocks: int) -> Pool:
        """A new block pool of ``num_blocks`` blocks, the null block among them."""

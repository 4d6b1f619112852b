"""The free queue and the pool: what is reused when, and what lookup still finds."""

import pytest

from hitproof.reference.free_queue import FreeBlockQueue, KVCacheBlock
from hitproof.reference.pool import BlockPool
from hitproof.reference.tests.building import request
from hitproof.spec.groups import ConfigurationError


def ids(blocks: list[KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def queue_of(count: int) -> tuple[FreeBlockQueue, list[KVCacheBlock]]:
    blocks = [KVCacheBlock(block_id) for block_id in range(count)]
    return FreeBlockQueue(blocks), blocks


def test_queue_gives_the_front_and_takes_at_the_end() -> None:
    queue, blocks = queue_of(4)
    taken = queue.popleft_n(2)
    assert ids(taken) == [0, 1]
    queue.append_n([*reversed(taken)])
    assert ids(queue.get_all_free_blocks()) == [2, 3, 1, 0]
    queue.remove(blocks[3])
    assert ids(queue.get_all_free_blocks()) == [2, 1, 0]
    assert len(queue) == 3


def test_queue_puts_scratch_in_front_in_order() -> None:
    queue, blocks = queue_of(5)
    queue.popleft_n(3)
    queue.prepend_n([blocks[2], blocks[0]])
    assert ids(queue.get_all_free_blocks()) == [2, 0, 3, 4]
    assert ids(queue.popleft_n(4)) == [2, 0, 3, 4]
    assert queue.get_all_free_blocks() == []


def test_a_pool_without_room_for_the_null_block_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one block"):
        BlockPool(0)


def test_taking_more_than_is_free_is_refused() -> None:
    with pytest.raises(ValueError, match="3 blocks are requested, 2 are free"):
        BlockPool(3).get_new_blocks(3)


def cache(pool: BlockPool, blocks: list[KVCacheBlock], group: int = 0) -> list[bytes]:
    new = request("a", range(4 * len(blocks)))
    pool.cache_full_blocks(new, blocks, 0, len(blocks), 4, group, [True] * len(blocks))
    return new.block_hashes


def test_several_blocks_under_one_key_are_found_in_the_order_they_were_cached() -> None:
    pool = BlockPool(5)
    first, second, third = pool.get_new_blocks(3)
    for block in (first, second, third):
        (key,) = cache(pool, [block])
    assert pool.get_cached_block(key, [0]) == [first]
    pool.evict_blocks([second.block_id])
    assert pool.get_cached_block(key, [0]) == [first]
    pool.evict_blocks([first.block_id])
    assert pool.get_cached_block(key, [0]) == [third]
    pool.evict_blocks([third.block_id])
    assert pool.get_cached_block(key, [0]) is None
    assert [*pool.cached_blocks()] == []


def test_a_cached_block_is_not_cached_again() -> None:
    pool = BlockPool(3)
    blocks = pool.get_new_blocks(1)
    cache(pool, blocks)
    with pytest.raises(ValueError, match="block 1 is already cached"):
        cache(pool, blocks)

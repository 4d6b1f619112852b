"""The free queue and the pool: what is reused when, and what lookup still finds."""

import pytest

from hitproof.reference.events import AllBlocksCleared, BlockRemoved, BlockStored
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


def test_null_block_is_never_free_and_never_touched() -> None:
    pool = BlockPool(3)
    assert ids(pool.free_block_queue.get_all_free_blocks()) == [1, 2]
    pool.touch([pool.null_block])
    pool.free_blocks([pool.null_block], scratch_first=True)
    assert pool.num_free_blocks == 2
    assert pool.null_block.ref_cnt == 0


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


def test_a_key_is_of_one_group_and_all_groups_asked_about_must_have_it() -> None:
    pool = BlockPool(5)
    one, two = pool.get_new_blocks(2)
    (key,) = cache(pool, [one], 0)
    assert pool.get_cached_block(key, [0]) == [one]
    assert pool.get_cached_block(key, [0, 1]) is None
    cache(pool, [two], 1)
    assert pool.get_cached_block(key, [0, 1]) == [one, two]


def test_a_free_block_stays_cached_until_it_is_reused() -> None:
    pool = BlockPool(3, enable_events=True)
    blocks = pool.get_new_blocks(2)
    keys = cache(pool, blocks)
    pool.free_blocks(reversed(blocks), scratch_first=True)
    assert pool.get_cached_block(keys[1], [0]) == [blocks[1]]
    pool.touch([blocks[1]])
    assert pool.num_free_blocks == 1
    assert pool.get_new_blocks(1) == [blocks[0]]
    assert pool.get_cached_block(keys[0], [0]) is None
    stored, removed = pool.take_events()
    assert isinstance(stored, BlockStored)
    assert removed == BlockRemoved([keys[0]], 0)


def test_a_block_that_someone_else_holds_is_not_freed() -> None:
    pool = BlockPool(3)
    (block,) = pool.get_new_blocks(1)
    pool.touch([block])
    pool.free_blocks([block], scratch_first=False)
    assert (block.ref_cnt, pool.num_free_blocks) == (1, 1)


def test_scratch_goes_in_front_only_when_asked() -> None:
    for scratch_first, expected in ((True, [2, 4, 1, 3]), (False, [4, 3, 2, 1])):
        pool = BlockPool(5)
        blocks = pool.get_new_blocks(4)
        new = request("a", range(16))
        pool.cache_full_blocks(new, blocks, 0, 4, 4, 0, [True, False, True, False])
        order = [blocks[1], blocks[3], blocks[0], blocks[2]] if scratch_first else blocks[::-1]
        pool.free_blocks(order, scratch_first)
        assert ids(pool.free_block_queue.get_all_free_blocks()) == expected


def test_a_cached_block_is_not_cached_again() -> None:
    pool = BlockPool(3)
    blocks = pool.get_new_blocks(1)
    cache(pool, blocks)
    with pytest.raises(ValueError, match="block 1 is already cached"):
        cache(pool, blocks)


def test_reset_is_refused_while_blocks_are_held() -> None:
    pool = BlockPool(3, enable_events=True)
    blocks = pool.get_new_blocks(1)
    (key,) = cache(pool, blocks)
    assert not pool.reset_prefix_cache()
    assert pool.get_cached_block(key, [0]) == blocks
    pool.free_blocks(blocks, scratch_first=False)
    pool.take_events()
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(key, [0]) is None
    assert blocks[0].block_hash is None
    assert pool.take_events() == [AllBlocksCleared()]
    assert pool.take_events() == []


def test_usage_leaves_the_null_block_out() -> None:
    pool = BlockPool(5)
    assert pool.usage == 0
    pool.get_new_blocks(1)
    assert pool.usage == 0.25
    assert BlockPool(1).usage == 0

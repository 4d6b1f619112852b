"""The pool: what is reused when, and what lookup still finds."""

import pytest

from hitproof.reference.pool import BlockPool, KVCacheBlock
from hitproof.reference.tests.building import request


def test_blocks_without_a_hash_are_reused_first_and_others_last() -> None:
    pool = BlockPool(6)
    blocks = pool.get_new_blocks(4)
    cache(pool, blocks[1:2])
    pool.touch(blocks[3:])
    pool.free_blocks(reversed(blocks))
    assert [*pool.free] == [3, 1, 5, 2]
    pool.free_blocks(blocks[3:], scratch_first=False)
    assert [*pool.free] == [3, 1, 5, 2, 4]


def cache(pool: BlockPool, blocks: list[KVCacheBlock], group: int = 0) -> list[bytes]:
    new = request("a", range(4 * len(blocks)))
    pool.cache_full_blocks(new, dict(enumerate(blocks)), 4, group)
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
    with pytest.raises(AssertionError, match="block 1 is already cached"):
        cache(pool, blocks)

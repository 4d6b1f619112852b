"""The scan against the spec, for every cache state of small requests."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hitproof.reference.lookup import Lookup
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.hits import longest_valid_hit, required_run

BLOCKS = 7


class CountingPool:
    """A pool with a fixed set of cached blocks, which notes what it was asked."""

    null_block = None

    def __init__(self, cached: Sequence[int]) -> None:
        self.cached = frozenset(cached)
        self.asked: list[int] = []

    def holds(self, group: int, block: int) -> bool:
        del group
        return block in self.cached

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: Sequence[int]) -> Any:
        block = int(block_hash)
        self.asked.append(block)
        return [block] * len(kv_cache_group_ids) if block in self.cached else None


def groups() -> Iterator[Group]:
    for eagle in (False, True):
        yield Group(GroupKind.FULL_ATTENTION, 2, eagle=eagle)
        yield Group(GroupKind.MAMBA, 2, eagle=eagle)
        for size in (1, 3, 4, 7):
            yield Group(GroupKind.SLIDING_WINDOW, 2, window=size, eagle=eagle)
            yield Group(GroupKind.CHUNKED_LOCAL, 2, chunk=size, eagle=eagle)


def keys(count: int) -> list[bytes]:
    return [b"%d" % block for block in range(count)]


@pytest.mark.parametrize("segment", [1, 2, 3])
@pytest.mark.parametrize("group", [*groups()], ids=str)
def test_scan_returns_the_longest_valid_hit(group: Group, segment: int) -> None:
    align = segment * group.block_size
    shape = geometry(group, align)
    for size in range(BLOCKS + 1):
        for cached in itertools.combinations(range(BLOCKS), size):
            pool = CountingPool(cached)
            (table,) = Lookup(shape)(keys(BLOCKS), BLOCKS, [0], pool)
            limit = BLOCKS * group.block_size
            expected = longest_valid_hit([group], align, limit, limit, pool.holds)
            assert len(table) * group.block_size == expected
            run = required_run(shape, len(table))
            assert all(table[block] == block for block in run if block < len(table))
            assert all(table[b] in (b, None) for b in range(len(table)))
            assert len(set(pool.asked)) == len(pool.asked)


def probes(shape: BlockGeometry, count: int) -> int:
    pool = CountingPool(())
    Lookup(shape)(keys(count), count, [0], pool)
    return len(pool.asked)


@pytest.mark.parametrize("segment", [1, 2, 8])
@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("tail", [1, 2, 7, 64])
def test_the_scan_asks_once_a_run_of_an_empty_cache(
    tail: int, lookahead: int, segment: int
) -> None:
    shape = BlockGeometry(GroupKind.SLIDING_WINDOW, segment, tail, lookahead)
    for count in (0, 1, 63, 64, 1000):
        most = -(-count // max(tail + lookahead, segment))
        assert probes(shape, count) <= most


def test_the_scan_goes_through_full_attention_once() -> None:
    shape = BlockGeometry(GroupKind.FULL_ATTENTION, 1, 0, 0)
    assert probes(shape, 100) == 1
    pool = CountingPool(range(10))
    (table,) = Lookup(shape)(keys(100), 100, [0], pool)
    assert table == [*range(10)]
    assert pool.asked == [*range(11)]

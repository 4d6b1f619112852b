"""What the reference's lookup asks a pool: no block twice, and no more than it needs.

That it returns the longest valid hit: test_scan, and `check_lookup` in test_checks.
"""

from collections.abc import Sequence

from hitproof.reference.lookup import Lookup
from hitproof.spec.groups import Group, GroupKind, geometry

MEMBERS = (3, 5)
"""Group ids that share the lookup."""


class CountingPool:
    """A pool that holds some blocks and refuses to be asked about one twice."""

    null_block = "null"

    def __init__(self, cached: frozenset[int]) -> None:
        self._cached = cached
        self.asked: list[int] = []

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[str] | None:
        block = int(block_hash)
        assert block not in self.asked, f"block {block} is asked about twice"
        self.asked.append(block)
        if block not in self._cached:
            return None
        return [f"{member}:{block}" for member in kv_cache_group_ids]


def test_full_attention_stops_at_the_first_miss() -> None:
    pool = CountingPool(frozenset({0, 1, 3, 4}))
    shape = geometry(Group(GroupKind.FULL_ATTENTION, 1), 1)
    Lookup(shape)([b"%d" % block for block in range(5)], 5, MEMBERS, pool)
    assert pool.asked == [0, 1, 2]


def test_sliding_window_asks_about_its_tail_alone_when_all_is_cached() -> None:
    pool = CountingPool(frozenset(range(9)))
    shape = geometry(Group(GroupKind.SLIDING_WINDOW, 1, 3), 1)
    Lookup(shape)([b"%d" % block for block in range(9)], 9, MEMBERS, pool)
    assert pool.asked == [7, 8]


def test_a_miss_skips_a_whole_run() -> None:
    pool = CountingPool(frozenset())
    shape = geometry(Group(GroupKind.SLIDING_WINDOW, 1, 5), 1)
    Lookup(shape)([b"%d" % block for block in range(40)], 40, MEMBERS, pool)
    assert pool.asked == list(range(36, -1, -4))

"""The reference's lookup returns what the spec says, and asks no block twice."""

from collections.abc import Sequence
from itertools import chain, combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.reference.lookup import Lookup
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import longest_valid_hit, required_run

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


def agrees(group: Group, segment: int, limit: int, cached: frozenset[int]) -> None:
    """Assert that lookup serves the longest valid hit, and the blocks it requires."""
    pool = CountingPool(cached)
    shape = geometry(group, segment * group.block_size)
    keys = [b"%d" % block for block in range(limit + 2)]
    tables = Lookup(shape)(keys, limit, MEMBERS, pool)
    tokens = limit * group.block_size
    longest = longest_valid_hit(
        [group], segment * group.block_size, tokens, tokens, lambda _, block: block in cached
    )
    boundary = longest // group.block_size
    assert [len(table) for table in tables] == [boundary, boundary]
    required = required_run(shape, boundary)
    for member, table in zip(MEMBERS, tables, strict=True):
        for block, found in enumerate(table):
            assert found == f"{member}:{block}" or (found == "null" and block not in required)
    assert all(0 <= block < limit for block in pool.asked)


def test_lookup_returns_the_longest_valid_hit_on_small_caches() -> None:
    shapes = (
        (GroupKind.FULL_ATTENTION, None),
        *((GroupKind.SLIDING_WINDOW, w) for w in range(1, 5)),
    )
    for (kind, window), eagle, segment in product(shapes, (False, True), (1, 2, 3)):
        for limit in range(6):
            sizes = range(limit + 1)
            states = chain.from_iterable(combinations(range(limit), n) for n in sizes)
            for cached in states:
                agrees(Group(kind, 1, window, eagle), segment, limit, frozenset(cached))


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from((GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW)),
    block_size=st.integers(1, 5),
    window=st.integers(1, 40),
    eagle=st.booleans(),
    segment=st.integers(1, 6),
    limit=st.integers(0, 40),
    missing=st.frozensets(st.integers(0, 40), max_size=4),
)
def test_lookup_returns_the_longest_valid_hit(
    kind: GroupKind,
    block_size: int,
    window: int,
    eagle: bool,
    segment: int,
    limit: int,
    missing: frozenset[int],
) -> None:
    group = Group(kind, block_size, window if kind is GroupKind.SLIDING_WINDOW else None, eagle)
    agrees(group, segment, limit, frozenset(range(limit)) - missing)


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


@given(st.lists(st.frozensets(st.integers(0, 19)), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_what_a_lookup_keeps_does_not_change_later_ones(caches: list[frozenset[int]]) -> None:
    shape = geometry(Group(GroupKind.SLIDING_WINDOW, 1, window=4, eagle=True), 2)
    keys = [b"%d" % block for block in range(20)]
    kept, forgetful = Lookup(shape), Lookup(shape)
    forgetful.MOST_STEPS = 2
    for cached in caches:
        limit = 10 + len(cached) % 10
        fresh = Lookup(shape)(keys, limit, MEMBERS, CountingPool(cached))
        assert kept(keys, limit, MEMBERS, CountingPool(cached)) == fresh
        assert forgetful(keys, limit, MEMBERS, CountingPool(cached)) == fresh

"""The fixed point of the groups' lookups against the spec, for every cache state."""

import itertools
from functools import partial

import pytest

from hitproof.reference.joint import find_longest_common_hit
from hitproof.reference.lookup import Lookup
from hitproof.spec.groups import Group, GroupKind, alignment, geometry, share_eagle
from hitproof.spec.hits import longest_valid_hit

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA

LAYOUTS = [
    (Group(FULL, 2), Group(SLIDING, 1, window=3)),
    (Group(FULL, 1), Group(CHUNKED, 1, chunk=2), Group(MAMBA, 1)),
    (Group(SLIDING, 1, window=3), Group(SLIDING, 1, window=2), Group(MAMBA, 2)),
    (Group(CHUNKED, 2, chunk=3), Group(SLIDING, 1, window=4)),
]


class OneGroupPool:
    """What is cached of one group in a joint cache state."""

    null_block = None

    def __init__(self, cached: frozenset[tuple[int, int]], group: int) -> None:
        self._cached, self._group = cached, group

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: object) -> list[int] | None:
        del kv_cache_group_ids
        block = int(block_hash)
        return [block] if (self._group, block) in self._cached else None


def group_lookup(group: Group, align: int, horizon: int, pool: OneGroupPool, candidate: int) -> int:
    shape, size = geometry(group, align), group.block_size
    limit = min(candidate // size + shape.lookahead, horizon // size)
    keys = [b"%d" % block for block in range(limit)]
    (table,) = Lookup(shape)(keys, limit, [0], pool)
    return len(table) * size


@pytest.mark.parametrize("use_eagle", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_fixed_point_is_the_longest_common_hit(layout: tuple[Group, ...], use_eagle: bool) -> None:
    groups = share_eagle(layout, use_eagle)
    align, horizon = alignment(groups), 4
    cap = horizon - 1
    blocks = [(g, b) for g, group in enumerate(groups) for b in range(horizon // group.block_size)]
    for size in range(len(blocks) + 1):
        for held in map(frozenset, itertools.combinations(blocks, size)):
            lookups = [
                partial(group_lookup, group, align, horizon, OneGroupPool(held, g))
                for g, group in enumerate(groups)
            ]
            expected = longest_valid_hit(groups, align, cap, horizon, partial(_is_in, held))
            assert find_longest_common_hit(lookups, cap) == expected


def _is_in(held: frozenset[tuple[int, int]], group: int, block: int) -> bool:
    return (group, block) in held


def test_no_group_is_no_common_hit() -> None:
    with pytest.raises(ValueError, match="at least one group"):
        find_longest_common_hit([], 4)


def test_a_group_is_not_asked_again_for_its_own_hit() -> None:
    asked: list[tuple[str, int]] = []

    def lookup(name: str, hits: tuple[int, ...], candidate: int) -> int:
        asked.append((name, candidate))
        return max(hit for hit in hits if hit <= candidate)

    full, window = partial(lookup, "full", (0, 2, 4)), partial(lookup, "window", (0, 2))
    assert find_longest_common_hit([full], 5) == 4
    assert asked == [("full", 5)]
    asked.clear()
    assert find_longest_common_hit([full, window], 5) == 2
    assert asked == [("full", 5), ("window", 4), ("full", 2)]

"""Tiers, counted token by token."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise, product

from hitproof.spec.groups import Group, alignment, geometry
from hitproof.spec.terms import Blocks
from hitproof.spec.tests.token_level import (
    FULL,
    MAMBA,
    SLIDING,
    needed_blocks,
    reachable_blocks,
    serves,
    small_groups,
)
from hitproof.spec.tiers import is_available, is_loaded, is_stored, longest_tier_hit

WINDOW = Group(SLIDING, 1, 2, eagle=True)


def subsets(size: int) -> list[set[int]]:
    return [set(s) for n in range(size + 1) for s in combinations(range(size), n)]


def held_in(held: Sequence[set[int]]) -> Callable[[int, int], bool]:
    return lambda group, block: block in held[group]


def test_steps_store_the_reachable_blocks_that_they_fill() -> None:
    for group, segment in product(small_groups(2, 4), (1, 2, 3)):
        align = segment * group.block_size
        shape, bound = geometry(group, align), 4 * segment
        reachable = reachable_blocks(group, align, bound)
        for ends in ((0, bound), (0, segment, bound), (0, 1, 2, bound), (1, 3, 4)):
            stored = {
                block
                for start, end in pairwise(ends)
                for block in range(bound)
                if is_stored(shape, block, start, end)
            }
            assert stored == {block for block in reachable if ends[0] <= block < ends[-1]}


def test_steps_store_what_another_policy_promises() -> None:
    shape = geometry(WINDOW, 2)

    def promised(group: object, block: Blocks) -> bool:
        assert group == shape
        return bool(block % 3 == 0)

    stored = partial(is_stored, shape, start=2, end=8, promised=promised)
    assert [block for block in range(12) if stored(block)] == [3, 6]


def test_a_block_is_available_where_it_is_stored_or_local() -> None:
    available = partial(is_available, held_in([{0}, {1}]), held_in([{2}, set()]))
    assert [(g, b) for g, b in product(range(2), range(3)) if available(g, b)] == [
        *((0, 0), (0, 2), (1, 1))
    ]


def test_the_longest_hit_of_what_is_stored_or_local() -> None:
    for groups in ((Group(FULL, 1), WINDOW), (Group(FULL, 2, eagle=True), Group(MAMBA, 1))):
        for stored, local in product(product(subsets(3), repeat=2), repeat=2):
            if sum(map(len, local)) > 2:
                continue
            both = [one | other for one, other in zip(stored, local, strict=True)]
            for cap, horizon in ((2, 3), (3, 3)):
                found = longest_tier_hit(
                    groups, alignment(groups), cap, horizon, held_in(stored), held_in(local)
                )
                lengths = range(cap + 1)
                assert found == max(
                    n for n in lengths if serves(groups, alignment(groups), n, cap, horizon, both)
                )


def test_what_is_read_and_not_local_is_loaded() -> None:
    for group, boundary in product(small_groups(2, 4), range(1, 5)):
        read = {b for b in needed_blocks(group, boundary * group.block_size) if b < boundary}
        shape = geometry(group, group.block_size)
        for local in (set[int](), {0}, {0, 1}, {boundary - 1}, read):
            loaded = {
                block
                for block in range(-1, boundary + 2)
                if is_loaded(shape, block, boundary, local.__contains__)
            }
            assert loaded == read - local

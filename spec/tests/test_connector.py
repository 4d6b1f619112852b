"""Local prefixes, counted token by token."""

from collections.abc import Callable, Sequence
from itertools import combinations, product

from hitproof.spec.connector import (
    is_fully_loaded,
    longest_local_prefix,
    may_diverge,
    valid_local_boundary,
)
from hitproof.spec.groups import BlockGeometry, Group, alignment, geometry
from hitproof.spec.tests.token_level import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    lookahead_blocks,
    needed_blocks,
    serves,
    small_groups,
)

STATES = Group(MAMBA, 1)
WINDOW = Group(SLIDING, 1, 2)


def subsets(size: int) -> list[set[int]]:
    return [set(s) for n in range(size + 1) for s in combinations(range(size), n)]


def local_prefix(
    groups: Sequence[Group], cap: int, horizon: int, cached: Sequence[set[int]]
) -> int:
    """The longest one, where full attention stands beside Mamba: states are not asked for."""
    kept = [index for index, group in enumerate(groups) if group.kind is not MAMBA]
    others, held = [groups[index] for index in kept], [cached[index] for index in kept]
    align = alignment(groups)
    return max(n for n in range(cap + 1) if serves(others, align, n, cap, horizon, held))


def held_in(cached: Sequence[set[int]]) -> Callable[[int, int], bool]:
    return lambda group, block: block in cached[group]


def test_only_states_are_loaded_wherever_a_load_starts() -> None:
    assert [kind for kind in (FULL, SLIDING, CHUNKED, MAMBA) if is_fully_loaded(kind)] == [MAMBA]


def test_what_may_diverge_has_full_attention_beside_mamba() -> None:
    full, opted_out = Group(FULL, 1), Group(MAMBA, 1, prefix_cacheable=False)
    assert may_diverge((full, STATES))
    assert may_diverge((STATES, WINDOW, full))
    for groups in ((full,), (STATES,), (WINDOW, STATES), (full, WINDOW), (full, opted_out)):
        assert not may_diverge(groups)


def test_a_local_prefix_needs_what_its_group_needs_but_no_state() -> None:
    for group, cap, boundary in product(small_groups(2, 3), range(6), range(1, 7)):
        needed = needed_blocks(group, boundary * group.block_size)
        shape = geometry(group, group.block_size)
        for held, horizon in product(
            (needed, needed - {max(needed, default=0)}, set[int]()), (cap, cap + 1)
        ):
            reach = boundary <= cap and boundary + lookahead_blocks(group) <= horizon
            expected = reach and (group.kind is MAMBA or needed <= held)
            valid = valid_local_boundary(shape, boundary, cap, horizon, held.__contains__)
            assert valid is expected


def test_a_lookahead_counts_to_the_horizon_and_no_further() -> None:
    for group in (BlockGeometry(MAMBA, 1, 0, 1), BlockGeometry(FULL, 1, 0, 1)):
        assert valid_local_boundary(group, 2, 2, 3, lambda _: True)
        assert not valid_local_boundary(group, 2, 3, 2, lambda _: True)


def test_the_longest_local_prefix() -> None:
    for groups in (
        (Group(FULL, 1), STATES),
        (Group(FULL, 1, eagle=True), STATES),
        (Group(FULL, 2), STATES),
        (Group(FULL, 1), Group(SLIDING, 1, 2), Group(MAMBA, 2)),
    ):
        for cached in product(subsets(3), repeat=len(groups)):
            for cap, horizon in ((2, 3), (3, 3), (3, 4)):
                found = longest_local_prefix(
                    groups, alignment(groups), cap, horizon, held_in(cached)
                )
                assert found == local_prefix(groups, cap, horizon, cached)


def test_elsewhere_it_is_the_hit_that_all_groups_share() -> None:
    groups = (Group(SLIDING, 1, 2, eagle=True), STATES)
    for cached in product(subsets(4), repeat=2):
        for cap, horizon in ((2, 3), (3, 3), (3, 4)):
            found = longest_local_prefix(groups, 1, cap, horizon, held_in(cached))
            assert found == max(
                n for n in range(cap + 1) if serves(groups, 1, n, cap, horizon, cached)
            )

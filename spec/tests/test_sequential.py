"""Joint hits when each group drops its lookahead block on its own."""

from collections.abc import Callable, Sequence
from itertools import combinations, product

from hitproof.spec.groups import Group, alignment, geometry
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.sequential import (
    longest_joint_hit,
    one_pass_suffices,
    valid_without_margin,
)
from hitproof.spec.tests.token_level import (
    FULL,
    MAMBA,
    SLIDING,
    needed_blocks,
    serves,
    small_groups,
)

CANDIDATE = LookaheadHorizon.CANDIDATE


def everything(_group: int, _block: int) -> bool:
    return True


def sequential_lookup(groups: Sequence[Group], num_tokens: int, cached: Sequence[set[int]]) -> int:
    """Each group's longest hit within what the one before it left, counted token by token."""
    align, candidate = alignment(groups), num_tokens - 1
    full_first = sorted(range(len(groups)), key=lambda index: groups[index].kind is not FULL)
    for index in full_first:
        group, held = groups[index], cached[index]
        candidate = max(
            length
            for length in range(candidate + 1)
            if serves([group], align, length, candidate, candidate, [held])
        )
    return candidate


def test_a_turn_serves_what_ends_within_the_candidate() -> None:
    for group, candidate, boundary in product(small_groups(2, 3), range(6), range(1, 7)):
        needed = needed_blocks(group, boundary * group.block_size)
        shape = geometry(group, group.block_size)
        for held in (needed, needed - {max(needed, default=0)}, {*range(9)}):
            fits = boundary <= candidate and max(needed | {boundary - 1}) < candidate
            expected = needed <= held and fits
            assert valid_without_margin(shape, boundary, candidate, held.__contains__) is expected


def subsets(size: int) -> list[set[int]]:
    return [set(s) for n in range(size + 1) for s in combinations(range(size), n)]


def test_each_group_has_its_turn() -> None:
    for groups in (
        (Group(SLIDING, 1, 2, eagle=True), Group(FULL, 1, eagle=True)),
        (Group(FULL, 2, eagle=True), Group(SLIDING, 1, 2, eagle=True)),
        (Group(FULL, 1, eagle=True), Group(MAMBA, 1, eagle=True)),
        (Group(FULL, 1), Group(SLIDING, 1, 3)),
    ):
        for cached in product(subsets(4), repeat=2):

            def held(group: int, block: int, cached: Sequence[set[int]] = cached) -> bool:
                return block in cached[group]

            for num_tokens in range(1, 6):
                align = alignment(groups)
                hit = longest_joint_hit(groups, align, num_tokens, CANDIDATE, held)
                assert hit == sequential_lookup(groups, num_tokens, cached)
                cap = num_tokens - 1
                assert hit <= longest_valid_hit(groups, align, cap, cap, held)
                lengths = range(hit + 1)
                sets = list(cached)
                assert hit in [n for n in lengths if serves(groups, align, n, cap, cap, sets)]


def test_groups_that_are_equal_have_one_turn() -> None:
    window, full = Group(SLIDING, 1, 2, eagle=True), Group(FULL, 1, eagle=True)
    for members in (1, 2, 3):
        groups = (*[window] * members, full)
        assert longest_joint_hit(groups, 1, 9, CANDIDATE, everything) == 6

    def missing(group: int, block: int) -> bool:
        return not (group == 1 and block == 6)

    assert longest_joint_hit((window, window, full), 1, 9, CANDIDATE, missing) == 5


def test_where_turns_had_to_be_repeated_the_longest_valid_hit_is_due() -> None:
    full, window = Group(FULL, 1, eagle=True), Group(SLIDING, 1, 2, eagle=True)
    other = Group(SLIDING, 1, 3, eagle=True)
    for groups in ((window, other), (full, window, other), (window, window), (full,)):
        assert not one_pass_suffices(groups)
        assert longest_joint_hit(groups, 1, 9, CANDIDATE, everything) == 7
    assert one_pass_suffices((window, full, window))
    opted_out = Group(SLIDING, 1, 3, prefix_cacheable=False)
    assert one_pass_suffices((window, full, opted_out))
    assert not one_pass_suffices((full, opted_out))


def test_groups_that_opt_out_have_no_turn() -> None:
    groups = (Group(FULL, 1, prefix_cacheable=False), Group(SLIDING, 1, 2), Group(FULL, 1))
    assert longest_joint_hit(groups, 1, 9, CANDIDATE, lambda g, _: g != 0) == 8


def test_with_a_horizon_that_stays_it_is_the_longest_valid_hit() -> None:
    groups = (Group(FULL, 2, eagle=True), Group(SLIDING, 2, 3, eagle=True))
    hits: Callable[[LookaheadHorizon], int] = lambda policy: longest_joint_hit(  # noqa: E731
        groups, 2, 8, policy, everything
    )
    assert hits(LookaheadHorizon.HASHED) == 6
    assert hits(LookaheadHorizon.CAPPED) == 4
    assert hits(CANDIDATE) == 2

"""Required runs and valid hits, against what the tokens after the hit read."""

from itertools import chain, combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.spec.groups import Group, alignment, geometry
from hitproof.spec.hits import (
    has_required_run,
    in_required_run,
    longest_valid_hit,
    required_run,
    run_end,
    run_start,
    valid_boundary,
    valid_hit,
    within_reach,
)
from hitproof.spec.tests.token_level import (
    FULL,
    SLIDING,
    Asked,
    needed_blocks,
    serves,
    small_groups,
)


def subsets(blocks: range) -> list[set[int]]:
    sizes = range(len(blocks) + 1)
    return [set(s) for s in chain.from_iterable(combinations(blocks, n) for n in sizes)]


def test_required_run_is_what_is_read() -> None:
    for group, boundary in product(small_groups(), range(1, 7)):
        needed = needed_blocks(group, boundary * group.block_size)
        shape = geometry(group, group.block_size)
        assert set(required_run(shape, boundary)) == needed
        assert {b for b in range(-3, 12) if in_required_run(shape, b, boundary)} == needed
        assert set(range(max(run_start(shape, boundary), 0), run_end(shape, boundary))) == needed


def test_a_run_is_cached_when_each_needed_block_is() -> None:
    for group, boundary in product(small_groups(2, 5), (1, 2, 3)):
        needed = needed_blocks(group, boundary * group.block_size)
        shape = geometry(group, group.block_size)
        for held in subsets(range(5)):
            assert has_required_run(shape, boundary, held.__contains__) is (needed <= held)


def test_only_needed_blocks_are_asked_about() -> None:
    for group, boundary in product(small_groups(), range(1, 7)):
        asked = Asked()
        shape = geometry(group, group.block_size)
        assert has_required_run(shape, boundary, asked)
        assert set(asked.blocks) == needed_blocks(group, boundary * group.block_size)


def test_reach_ends_at_the_cap_and_at_the_horizon() -> None:
    for eagle, boundary, cap, horizon in product((0, 1), *[range(5)] * 3):
        shape = geometry(Group(FULL, 1, None, bool(eagle)), 1)
        last_block_looked_at = boundary - 1 + eagle
        reach = boundary <= cap and last_block_looked_at < horizon
        assert within_reach(shape, boundary, cap, horizon) is reach
        for held in ({0, 1, 2, 3, 4}, {0, 1, 2, 4}):
            needed = needed_blocks(Group(FULL, 1, None, bool(eagle)), boundary)
            if boundary:
                assert valid_boundary(shape, boundary, cap, horizon, held.__contains__) is (
                    reach and needed <= held
                )


def agrees(
    groups: tuple[Group, ...], aligned: int, cap: int, horizon: int, cached: list[set[int]]
) -> None:
    """Assert that the spec serves the same hits as the tokens say."""

    def holds(group: int, block: int) -> bool:
        return block in cached[group]

    valid = [
        length
        for length in range(-aligned, cap + 2 * aligned + 1)
        if serves(groups, aligned, length, cap, horizon, cached)
    ]
    assert valid == [
        length
        for length in range(-aligned, cap + 2 * aligned + 1)
        if valid_hit(groups, aligned, length, cap, horizon, holds)
    ]
    assert longest_valid_hit(groups, aligned, cap, horizon, holds) == valid[-1]


def test_one_group_serves_what_it_can() -> None:
    for group, segment in product(small_groups(2, 4), (1, 2)):
        for cap, ahead, held in product((0, 3, 4, 5), (0, 1, 2), subsets(range(4))):
            agrees((group,), segment * group.block_size, cap, cap + ahead, [held])


def test_several_groups_serve_what_all_can() -> None:
    for eagle, other_eagle in product((False, True), repeat=2):
        groups = (Group(SLIDING, 1, 3, eagle), Group(FULL, 2, None, other_eagle))
        for cap, ahead in product((3, 4), (0, 2)):
            for held, other_held in product(subsets(range(4)), subsets(range(3))):
                agrees(groups, 2, cap, cap + ahead, [held, other_held])


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_groups_serve_what_all_can(data: st.DataObject) -> None:
    sliding = st.builds(Group, st.just(SLIDING), st.integers(1, 6), st.integers(1, 20))
    full = st.builds(Group, st.just(FULL), st.integers(1, 6))
    unflagged = data.draw(st.lists(st.one_of(sliding, full), min_size=1, max_size=3))
    groups = tuple(
        Group(g.kind, g.block_size, g.window, data.draw(st.booleans())) for g in unflagged
    )
    aligned = alignment(groups) * data.draw(st.integers(1, 2))
    cap = data.draw(st.integers(0, 2 * aligned + 3))
    horizon = cap + data.draw(st.integers(0, aligned))
    blocks = [range((cap + 2 * aligned) // group.block_size + 1) for group in groups]
    missing = [data.draw(st.sets(st.sampled_from(own), max_size=2)) for own in blocks]
    cached = [set(own) - lost for own, lost in zip(blocks, missing, strict=True)]
    agrees(groups, aligned, cap, horizon, cached)


def test_groups_that_opt_out_require_nothing() -> None:
    opted_out = Group(SLIDING, 2, 5, prefix_cacheable=False)
    agrees((Group(FULL, 2), opted_out), 2, 4, 4, [{0, 1}, set()])
    assert alignment((Group(FULL, 2), Group(FULL, 3, prefix_cacheable=False))) == 2


def test_no_hit_when_nothing_may_be_served() -> None:
    assert longest_valid_hit([Group(FULL, 1)], 1, -1, 4, lambda *_: True) == 0

"""The mask, against every boundary tried in turn."""

from itertools import product

from hitproof.spec.groups import geometry
from hitproof.spec.mask import in_mask, in_stored_mask, is_due, next_boundary
from hitproof.spec.tests.token_level import (
    lookahead_blocks,
    needed_blocks,
    reachable_blocks,
    small_groups,
)


def test_mask_is_what_some_boundary_needs() -> None:
    for group, segment in product(small_groups(), range(1, 5)):
        aligned = segment * group.block_size
        shape = geometry(group, aligned)
        reachable = reachable_blocks(group, aligned, 12)
        assert {block for block in range(-3, 12) if in_mask(shape, block)} == reachable


def test_next_boundary_is_the_first_whose_run_ends_later() -> None:
    for group, segment in product(small_groups(1, 1), range(1, 5)):
        shape = geometry(group, segment)
        for block in range(12):
            first = next(
                boundary
                for boundary in range(segment, 99, segment)
                if block < boundary + lookahead_blocks(group)
            )
            assert next_boundary(shape, block) == first


def test_the_end_of_a_stored_request_is_one_more_boundary() -> None:
    for group, segment in product(small_groups(2, 5), range(1, 4)):
        aligned = segment * group.block_size
        shape = geometry(group, aligned)
        reachable = reachable_blocks(group, aligned, 10)
        for end in range(-1, 10):
            resumed = set()
            if end > 0 and not lookahead_blocks(group):
                resumed = needed_blocks(group, end * group.block_size)
            stored = {block for block in range(-3, 10) if in_stored_mask(shape, block, end)}
            assert stored == reachable | resumed


def test_blocks_are_due_with_the_first_hit_that_needs_them() -> None:
    for group, segment in product(small_groups(2, 5), range(1, 4)):
        aligned = segment * group.block_size
        shape = geometry(group, aligned)
        for num_final in range(9):
            reach = (num_final - lookahead_blocks(group)) * group.block_size
            hits = [needed_blocks(group, end) for end in range(aligned, reach + 1, aligned)]
            due = {block for block in range(-3, 12) if is_due(shape, block, num_final)}
            assert due == set().union(*hits)

"""The mask, against every boundary tried in turn."""

from itertools import product

from spec.groups import geometry
from spec.mask import in_mask, next_boundary
from spec.tests.token_level import lookahead_blocks, reachable_blocks, small_groups


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

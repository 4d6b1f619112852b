"""Groups, their alignment and their geometry, against definitions that count."""

from collections.abc import Sequence
from itertools import combinations_with_replacement, product

import pytest

from hitproof.spec.groups import (
    ConfigurationError,
    Group,
    GroupKind,
    alignment,
    geometry,
    share_eagle,
)
from hitproof.spec.tests.token_level import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    needed_blocks,
    small_groups,
)


def test_each_kind_of_group_is_written_out_token_by_token() -> None:
    assert {group.kind for group in small_groups()} == set(GroupKind)


def test_impossible_groups_are_refused() -> None:
    for kind, block_size, window in (
        (FULL, 0, None),
        (FULL, -1, None),
        (SLIDING, 0, 4),
        (SLIDING, 4, None),
        (SLIDING, 4, 0),
        (SLIDING, 4, -1),
        (FULL, 4, 4),
        (FULL, 4, 0),
        (MAMBA, 4, 4),
    ):
        with pytest.raises(ConfigurationError):
            Group(kind, block_size, window)
    for kind, window, chunk in (
        (CHUNKED, None, None),
        (CHUNKED, None, 0),
        (CHUNKED, 4, 4),
        (SLIDING, 4, 4),
        (FULL, None, 4),
    ):
        with pytest.raises(ConfigurationError):
            Group(kind, 4, window, chunk=chunk)


def test_draft_layers_that_look_at_no_token_past_their_own_are_refused() -> None:
    for prefill_lookahead in (-1, 0):
        with pytest.raises(ConfigurationError):
            Group(FULL, 4, prefill_lookahead=prefill_lookahead)


def test_smallest_groups_are_possible() -> None:
    assert Group(FULL, 1).window is None
    assert Group(SLIDING, 1, 1).window == 1


def test_no_group_is_an_eagle_group_unless_it_is_said() -> None:
    assert Group(FULL, 1).eagle is False


def test_alignment_is_the_first_common_block_edge() -> None:
    for sizes in combinations_with_replacement(range(1, 7), 3):
        groups = [Group(FULL, size) for size in sizes]
        first = next(a for a in range(1, 999) if all(a % size == 0 for size in sizes))
        assert alignment(groups) == first


def must_drop(groups: Sequence[Group], use_eagle: bool, index: int) -> bool:
    """Whether a group drops a block: some group looked up with it may be the draft layers'."""
    group = groups[index]
    together = [
        other
        for other in groups
        if (other.kind, other.block_size, other.window)
        == (group.kind, group.block_size, group.window)
    ]
    flags = [other.eagle for other in groups]
    return use_eagle and (True not in flags or True in [other.eagle for other in together])


def test_eagle_is_shared_by_groups_that_are_looked_up_together() -> None:
    shapes = ((FULL, 2, None), (SLIDING, 2, 4), (SLIDING, 2, 5), (SLIDING, 4, 4))
    flagged = [Group(*shape, eagle) for shape, eagle in product(shapes, (False, True))]
    for groups in (*product(flagged, repeat=2), *product(flagged[:4], repeat=3)):
        for use_eagle in (False, True):
            shared = share_eagle(groups, use_eagle)
            assert [(g.kind, g.block_size, g.window) for g in shared] == [
                (g.kind, g.block_size, g.window) for g in groups
            ]
            assert [group.eagle for group in shared] == [
                must_drop(groups, use_eagle, index) for index in range(len(groups))
            ]
            assert share_eagle(shared, use_eagle) == shared


def test_geometry_counts_blocks() -> None:
    for group, segment in product(small_groups(), range(1, 4)):
        far = 20 * group.block_size
        shape = geometry(group, segment * group.block_size)
        assert (shape.kind, shape.segment) == (group.kind, segment)
        if group.kind is SLIDING:
            assert shape.tail + shape.lookahead == len(needed_blocks(group, far))
        assert type(shape.lookahead) is int
        assert shape.lookahead == len([b for b in needed_blocks(group, far) if b >= 20])


def test_geometry_counts_the_blocks_that_draft_layers_look_ahead() -> None:
    """What several modules look ahead may span several blocks, or lie in one."""
    for modules, blocks in ((1, 1), (4, 1), (5, 2), (9, 3)):
        group = Group(GroupKind.FULL_ATTENTION, 4, eagle=True, prefill_lookahead=modules)
        assert geometry(group, 12).lookahead == blocks


def test_alignment_of_large_blocks_is_not_searched_for() -> None:
    """Block sizes without a common divisor have an alignment that no counting reaches."""
    sizes = (2**31 - 1, 2**61 - 1)
    groups = tuple(Group(GroupKind.FULL_ATTENTION, block_size=size) for size in sizes)
    assert alignment(groups) == sizes[0] * sizes[1]


def test_groups_of_which_none_takes_part_have_no_alignment() -> None:
    out = Group(FULL, 2, prefix_cacheable=False)
    assert alignment((out, Group(SLIDING, 3, 5))) == 3
    with pytest.raises(ConfigurationError, match="at least one group"):
        alignment((out, out))


def test_geometry_refuses_an_alignment_off_the_block_edges() -> None:
    for group, tokens in product((Group(FULL, 1), Group(SLIDING, 3, 5)), range(-3, 10)):
        if tokens in range(group.block_size, 10, group.block_size):
            assert geometry(group, tokens).segment * group.block_size == tokens
        else:
            with pytest.raises(ConfigurationError):
                geometry(group, tokens)

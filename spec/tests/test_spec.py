"""The spec on ints, against the words it stands for, by brute force."""

import itertools
from collections.abc import Iterator

import pytest

from hitproof.spec.attention import attends, reads_state
from hitproof.spec.groups import (
    BlockGeometry,
    ConfigurationError,
    Group,
    GroupKind,
    alignment,
    geometry,
    share_eagle,
)
from hitproof.spec.hits import longest_valid_hit, required_run, valid_hit
from hitproof.spec.mask import in_mask

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA

BLOCKS = 14


def groups() -> Iterator[Group]:
    for block_size, eagle in itertools.product((1, 2, 3), (False, True)):
        yield Group(FULL, block_size, eagle=eagle)
        yield Group(MAMBA, block_size, eagle=eagle)
        for size in (1, 2, 4, 5, 6, 9):
            yield Group(SLIDING, block_size, window=size, eagle=eagle)
            yield Group(CHUNKED, block_size, chunk=size, eagle=eagle)


SHAPES = [
    pytest.param(group, geometry(group, segment * group.block_size), id=f"{group} P={segment}")
    for group in groups()
    for segment in (1, 2, 3)
]


def read_blocks(group: Group, boundary: int) -> set[int]:
    """The blocks that a request which resumes at ``boundary`` (in blocks) reads."""
    size, length = group.block_size, boundary * group.block_size
    if group.kind is MAMBA:
        return {b for b in range(boundary) if reads_state(length, (b + 1) * size - 1)}
    return {
        token // size
        for query in range(length, length + 12)
        for token in range(length)
        if attends(query, token, group.window, group.chunk)
    }


@pytest.mark.parametrize(("group", "shape"), SHAPES)
def test_required_run_is_what_is_read_and_the_lookahead_block(
    group: Group, shape: BlockGeometry
) -> None:
    for boundary in range(1, BLOCKS):
        looked_at = {boundary} if group.eagle and group.kind is not MAMBA else set()
        assert set(required_run(shape, boundary)) == read_blocks(group, boundary) | looked_at


@pytest.mark.parametrize(("group", "shape"), SHAPES)
def test_mask_is_the_union_of_the_required_runs(group: Group, shape: BlockGeometry) -> None:
    del group
    # A block's run can start a window, a chunk or a segment later at most.
    boundaries = range(shape.segment, BLOCKS + 2 * shape.segment + 10, shape.segment)
    reachable = {block for boundary in boundaries for block in required_run(shape, boundary)}
    assert {b for b in range(BLOCKS) if in_mask(shape, b)} == reachable & set(range(BLOCKS))


def test_same_chunk_is_what_local_attention_sees() -> None:
    for chunk, query, token in itertools.product((1, 3, 4), range(12), range(12)):
        same = query // chunk == token // chunk
        assert attends(query, token, None, chunk) is (token <= query and same)


def test_chunked_local_needs_nothing_where_a_chunk_starts() -> None:
    shape = geometry(Group(CHUNKED, 4, chunk=8), 4)
    assert [list(required_run(shape, boundary)) for boundary in range(1, 5)] == [[0], [], [2], []]
    assert [in_mask(shape, block) for block in range(4)] == [True, False, True, False]


def test_chunk_that_starts_inside_a_block_needs_that_block() -> None:
    shape = geometry(Group(CHUNKED, 3, chunk=8), 3)
    assert [list(required_run(shape, boundary)) for boundary in (2, 3, 4, 8)] == [
        [0, 1],
        [2],
        [2, 3],
        [],
    ]


def test_mamba_needs_one_state_and_never_looks_ahead() -> None:
    shape = geometry(Group(MAMBA, 4, eagle=True), 8)
    assert (shape.segment, shape.lookahead) == (2, 0)
    assert list(required_run(shape, 4)) == [3]
    assert [in_mask(shape, block) for block in range(6)] == [False, True] * 3


def test_groups_that_opt_out_require_nothing() -> None:
    ring = Group(FULL, 5, prefix_cacheable=False)
    both = (Group(FULL, 2), ring)
    assert alignment(both) == 2
    assert valid_hit(both, 2, 4, 4, 4, lambda group, _: group == 0)
    assert longest_valid_hit(both, 2, 7, 7, lambda group, _: group == 0) == 6
    assert not valid_hit(both, 2, 4, 4, 4, lambda group, _: group == 1)
    with pytest.raises(ConfigurationError, match="at least one group"):
        alignment((ring,))


def test_groups_of_one_layout_share_the_eagle_flag() -> None:
    a, b = Group(CHUNKED, 2, chunk=4), Group(CHUNKED, 2, chunk=8)
    flagged = Group(CHUNKED, 2, chunk=4, eagle=True)
    assert [group.eagle for group in share_eagle((a, b, flagged), True)] == [True, False, True]
    assert [group.eagle for group in share_eagle((a, b), True)] == [True, True]
    assert not any(group.eagle for group in share_eagle((a, b, flagged), False))


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (CHUNKED, {}),
        (CHUNKED, {"chunk": 0}),
        (CHUNKED, {"chunk": 4, "window": 4}),
        (SLIDING, {}),
        (SLIDING, {"window": 4, "chunk": 4}),
        (MAMBA, {"window": 4}),
        (FULL, {"chunk": 4}),
    ],
)
def test_sizes_that_do_not_belong_to_the_kind_are_refused(
    kind: GroupKind, sizes: dict[str, int]
) -> None:
    with pytest.raises(ConfigurationError, match=r"window|chunk"):
        Group(kind, 4, sizes.get("window"), False, sizes.get("chunk"))

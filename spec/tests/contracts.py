"""Contracts of the spec on ints, for CrossHair: it looks for ints that break an assertion.

Assertions before the first other statement are premises.
"""

from hitproof.spec.attention import attends, tail_blocks
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.hits import (
    has_required_run,
    in_required_run,
    longest_valid_hit,
    required_run,
    valid_boundary,
    valid_hit,
    within_reach,
)
from hitproof.spec.mask import in_mask, next_boundary
from hitproof.spec.terms import ceil_div

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW


def _shape(full: bool, segment: int, tail: int, eagle: bool) -> BlockGeometry:
    return BlockGeometry(FULL if full else SLIDING, segment, tail, int(eagle))


def a_window_is_the_last_tokens(query: int, token: int, window: int) -> None:
    """A token reads itself and the window - 1 tokens before it."""
    assert 1 <= window
    assert attends(query, token, window) == (query - window + 1 <= token <= query)


def full_attention_reads_all_before(query: int, token: int) -> None:
    """Full attention reads a token unless it comes later."""
    assert isinstance(query, int)
    assert attends(query, token, None) == (not token > query)


def ceil_div_is_least(dividend: int, divisor: int, other: int) -> None:
    """The quotient rounded up covers the dividend, and no smaller one does."""
    assert 1 <= divisor
    quotient = ceil_div(dividend, divisor)
    assert dividend <= quotient * divisor
    assert quotient <= other or other * divisor < dividend


def a_tail_covers_its_window(window: int, block_size: int) -> None:
    """The tail holds the window's other tokens, and one block less does not."""
    assert 1 <= window
    assert 1 <= block_size
    tail = tail_blocks(window, block_size)
    assert (tail - 1) * block_size < window - 1 <= tail * block_size


def the_range_is_the_run(full: bool, tail: int, eagle: bool, block: int, boundary: int) -> None:
    """The two ways to state a required run agree."""
    assert 0 <= tail
    assert 1 <= boundary
    shape = _shape(full, 1, tail, eagle)
    assert in_required_run(shape, block, boundary) == (block in required_run(shape, boundary))


def a_run_lacks_its_missing_block(
    full: bool, tail: int, eagle: bool, missing: int, boundary: int
) -> None:
    """A run with one block missing is cached just when the block is not in it."""
    assert 0 <= tail
    assert 1 <= boundary <= 3
    shape = _shape(full, 1, tail, eagle)
    held = has_required_run(shape, boundary, lambda block: block != missing)
    assert held == (not in_required_run(shape, missing, boundary))


def reach_is_within_the_cap(eagle: bool, boundary: int, cap: int, horizon: int, tail: int) -> None:
    """What is within reach ends at or before the cap, its lookahead block before the horizon."""
    assert 1 <= boundary
    reach = within_reach(_shape(False, 1, tail, eagle), boundary, cap, horizon)
    assert reach == (boundary <= cap and boundary + (1 if eagle else 0) <= horizon)


def nothing_beyond_reach_is_valid(
    full: bool, tail: int, eagle: bool, boundary: int, cap: int
) -> None:
    """However much is cached, a hit is valid just when it is within reach."""
    assert 0 <= tail
    assert 1 <= boundary <= 3
    shape = _shape(full, 1, tail, eagle)
    valid = valid_boundary(shape, boundary, cap, cap, lambda _: True)
    assert valid == within_reach(shape, boundary, cap, cap)


def the_next_boundary_is_the_first(segment: int, tail: int, eagle: bool, block: int) -> None:
    """It is a boundary, its run ends after the block, and that of the one before does not."""
    assert 1 <= segment
    assert 0 <= block
    shape = _shape(False, segment, tail, eagle)
    boundary = next_boundary(shape, block)
    assert boundary >= segment
    assert boundary % segment == 0
    assert block < boundary + shape.lookahead
    assert boundary == segment or block >= boundary - segment + shape.lookahead


def the_mask_of_full_attention_is_everything(segment: int, eagle: bool, block: int) -> None:
    """Full attention needs each block for some hit."""
    assert 1 <= segment
    assert 0 <= block
    assert in_mask(_shape(True, segment, 0, eagle), block)


def a_mask_grows_with_the_tail(segment: int, tail: int, eagle: bool, block: int) -> None:
    """What a mask keeps, that of a longer tail keeps, too."""
    assert 1 <= segment
    assert 0 <= tail
    kept = in_mask(_shape(False, segment, tail, eagle), block)
    assert not kept or in_mask(_shape(False, segment, tail + 1, eagle), block)


def geometry_divides(block_size: int, segment: int, window: int, eagle: bool) -> None:
    """The geometry has the segment of its alignment, and a lookahead of one block or none."""
    assert 1 <= block_size
    assert 1 <= segment
    assert 1 <= window
    shape = geometry(Group(SLIDING, block_size, window, eagle), segment * block_size)
    assert shape.segment == segment
    assert shape.lookahead == (1 if eagle else 0)


def the_longest_hit_is_valid_and_longest(
    held: list[bool], window: int, eagle: bool, cap: int, other: int
) -> None:
    """What lookup must return is valid, and nothing longer is."""
    assert 1 <= window
    assert len(held) <= 3
    assert 0 <= cap <= 3
    group = Group(SLIDING, 1, window, eagle)

    def cached(_: int, block: int) -> bool:
        return block < len(held) and held[block]

    longest = longest_valid_hit([group], 1, cap, cap, cached)
    assert valid_hit([group], 1, longest, cap, cap, cached)
    if longest < other <= cap:
        assert not valid_hit([group], 1, other, cap, cap, cached)

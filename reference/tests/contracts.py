"""Contracts of the reference's pure functions, for CrossHair. As in `spec.tests.contracts`."""

from hitproof.reference.groups import num_skipped_tokens
from hitproof.reference.hashing import MultiModalFeature, extra_keys
from hitproof.reference.scan import PlainScan, Scan, SkippingScan, first_state, hit_found, is_done
from hitproof.spec.attention import attends
from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import has_required_run, required_run


def _hit(scan: Scan, held: list[bool], group: BlockGeometry) -> int:
    """The hit, in blocks, that the scan finds."""
    state = first_state(group, len(held))
    while not is_done(state):
        hit = held[scan.asks(state)]
        state = scan.after_hit(state) if hit else scan.after_miss(group, state)
    return int(hit_found(state))


def scan_from_the_left_ends_at_a_full_prefix(held: list[bool], segment: int, eagle: bool) -> None:
    """All blocks before the hit are cached, and the scan is cut at a boundary."""
    assert len(held) <= 3
    assert 1 <= segment <= 3
    group = BlockGeometry(GroupKind.FULL_ATTENTION, segment, 0, int(eagle))
    boundary = _hit(SkippingScan(), held, group)
    assert boundary % segment == 0
    assert boundary == 0 or all(held[block] for block in required_run(group, boundary))


def scan_from_the_left_misses_no_hit(held: list[bool], eagle: bool, other: int) -> None:
    """No longer prefix is cached."""
    assert len(held) <= 3
    group = BlockGeometry(GroupKind.FULL_ATTENTION, 1, 0, int(eagle))
    boundary = _hit(SkippingScan(), held, group)
    if boundary < other <= len(held) - group.lookahead:
        assert not has_required_run(group, other, held.__getitem__)


def scan_from_the_right_ends_at_a_valid_hit(
    held: list[bool], segment: int, tail: int, eagle: bool
) -> None:
    """The hit has its required run, and ends on a boundary within the limit."""
    assert len(held) <= 3
    assert 1 <= segment <= 3
    assert 0 <= tail
    group = BlockGeometry(GroupKind.SLIDING_WINDOW, segment, tail, int(eagle))
    boundary = _hit(PlainScan(), held, group)
    assert boundary % segment == 0
    assert 0 <= boundary <= len(held)
    assert boundary == 0 or all(held[block] for block in required_run(group, boundary))


def scan_from_the_right_misses_no_hit(held: list[bool], tail: int, eagle: bool, other: int) -> None:
    """No longer hit has its required run."""
    assert len(held) <= 3
    assert 0 <= tail
    group = BlockGeometry(GroupKind.SLIDING_WINDOW, 1, tail, int(eagle))
    boundary = _hit(PlainScan(), held, group)
    if boundary < other <= len(held) - group.lookahead:
        assert not has_required_run(group, other, held.__getitem__)


def skipped_tokens_are_read_by_nobody(computed: int, window: int, token: int, later: int) -> None:
    """Once tokens are skipped, no later query attends to one of them."""
    assert window >= 1
    assert 0 <= computed <= later
    group = Group(GroupKind.SLIDING_WINDOW, 1, window)
    if 0 <= token < num_skipped_tokens(group, computed):
        assert not attends(later, token, window)


def tokens_that_are_kept_are_read(computed: int, chunk: int) -> None:
    """The next query attends to the first token that is not skipped."""
    assert 1 <= chunk <= 4
    assert computed >= 0
    group = Group(GroupKind.CHUNKED_LOCAL, 1, chunk=chunk)
    first = num_skipped_tokens(group, computed)
    assert attends(computed, first, None, chunk)
    assert first == 0 or not attends(computed, first - 1, None, chunk)


def an_item_counts_where_it_has_a_token(start: int, size: int, offset: int, length: int) -> None:
    """A multimodal item is in a block's extra keys exactly when they overlap."""
    assert start >= 0
    assert 1 <= size <= 3
    assert offset >= 0
    assert 1 <= length <= 3
    item = MultiModalFeature("item", offset, length)
    overlap = max(start, offset) < min(start + size, offset + length)
    assert bool(extra_keys(start, start + size, None, [item], None).items) == overlap

"""The clauses on admission, on ints: against each token that a step reads and writes."""

from collections.abc import Iterator
from itertools import product

from hitproof.spec import admission
from hitproof.spec.attention import attends
from hitproof.spec.groups import Group, GroupKind

RANGES: list[tuple[int | None, int | None]] = [
    (None, None),
    *((window, None) for window in (1, 2, 5, 9)),
    *((None, chunk) for chunk in (1, 3, 4, 6)),
]


def test_the_first_token_read_is_the_first_that_is_attended_to() -> None:
    for query, (window, chunk) in product(range(20), RANGES):
        read = [token for token in range(20) if attends(query, token, window, chunk)]
        assert admission.first_token_read(query, window, chunk) == read[0]


def test_the_blocks_between_hold_just_these_tokens() -> None:
    for first, tokens, size in product(range(9), range(1, 9), (1, 2, 3, 4)):
        blocks = {token // size for token in range(first, first + tokens)}
        assert admission.blocks_between(first, first + tokens, size) == len(blocks)
        assert len(blocks) <= admission.most_between(tokens, size)
        assert admission.most_between(tokens, size) == -(-tokens // size) + 1


def steps(group: Group, step: int, num_tokens: int) -> Iterator[int]:
    """How many blocks each step of up to ``step`` tokens reads and writes."""
    for start in range(num_tokens):
        for end in range(start + 1, min(start + step, num_tokens) + 1):
            first = admission.first_token_read(start, group.window, group.chunk)
            yield admission.blocks_between(first, end, group.block_size)


def test_no_step_takes_more_than_the_most_at_once() -> None:
    for (window, chunk), size, step in product(RANGES, (1, 2, 3, 4), (1, 2, 3, 8)):
        kind = GroupKind.FULL_ATTENTION
        if window is not None:
            kind = GroupKind.SLIDING_WINDOW
        elif chunk is not None:
            kind = GroupKind.CHUNKED_LOCAL
        group = Group(kind, size, window, chunk=chunk)
        for num_tokens in (1, 7, 24):
            taken = max(steps(group, step, num_tokens))
            most = admission.blocks_at_once(group, step, num_tokens)
            assert taken <= most
            # One block is for where the tokens begin, and one where a chunk is counted in full.
            assert most <= min(taken + 2, -(-num_tokens // size) + 1)


def test_the_most_at_once_of_each_kind() -> None:
    most = admission.blocks_at_once
    assert most(Group(GroupKind.FULL_ATTENTION, 4), 8, 30) == 8
    assert most(Group(GroupKind.SLIDING_WINDOW, 4, 9), 8, 1000) == 5
    assert most(Group(GroupKind.SLIDING_WINDOW, 4, 9), 8, 12) == 4
    assert most(Group(GroupKind.SLIDING_WINDOW, 4, 9, prefill_lookahead=2), 8, 1000) == 6
    assert most(Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8), 8, 1000) == 4
    assert most(Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8, prefill_lookahead=2), 8, 1000) == 4
    assert most(Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8), 9, 1000) == 5
    assert most(Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8), 8, 11) == 3
    assert most(Group(GroupKind.CHUNKED_LOCAL, 4, chunk=6), 2, 1000) == 3
    assert most(Group(GroupKind.MAMBA, 4), 8, 1000) == 2
    assert most(Group(GroupKind.MAMBA, 4), 8, 1000, drafts=3, exports=1) == 6
    assert admission.states_at_once(3, 1) == 6
    assert admission.states_at_once(3) == 5


def test_tokens_at_once_are_those_before_a_step_and_its_own() -> None:
    assert admission.tokens_at_once(5, 4) == 8
    assert admission.tokens_at_once(5, 0, 4) == 9


def test_which_answers_are_right() -> None:
    for granted, least, more, free, reserved in product(
        (True, False), range(4), range(3), range(6), range(3)
    ):
        most = least + more
        right = admission.is_answered_right(granted, least, most, free, reserved)
        if granted:
            assert right is (least <= free)
        else:
            assert right is (most > free - reserved)
    assert admission.fits(2, 2)
    assert not admission.fits(2, 2, 1)
    assert admission.is_answered_right(False, 0, 2, 1)
    assert not admission.is_answered_right(False, 0, 2, 2)

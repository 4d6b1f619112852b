"""What attention reads, against the set of tokens written out."""

from itertools import product

from hitproof.spec.attention import attends, reads_state, replay_start, tail_blocks
from hitproof.spec.tests.token_level import SLIDING, needed_blocks, read_by, small_groups


def test_attends_to_the_last_tokens() -> None:
    for query, token, window in product(range(8), range(10), (None, *range(1, 10))):
        assert attends(query, token, window) is (token in read_by(query, window))


def test_tail_is_the_number_of_blocks_read_far_from_the_start() -> None:
    for group in small_groups():
        if group.kind is SLIDING and not group.eagle:
            assert group.window is not None
            read = needed_blocks(group, 20 * group.block_size)
            assert tail_blocks(group.window, group.block_size) == len(read)


def test_attends_to_its_own_chunk_up_to_itself() -> None:
    for query, token, chunk in product(range(12), range(14), range(1, 6)):
        assert attends(query, token, None, chunk) is (token in read_by(query, None, chunk))


def test_the_state_that_is_read_is_that_of_the_last_token() -> None:
    for length, token in product(range(1, 6), range(8)):
        assert reads_state(length, token) is (token + 1 == length)


def test_what_later_tokens_read_of_a_hit_is_computed_again() -> None:
    for window, hit in product(range(1, 7), range(10)):
        read = {
            token
            for query in range(hit, hit + 9)
            for token in range(hit)
            if attends(query, token, window)
        }
        assert set(range(replay_start(hit, window), hit)) == read

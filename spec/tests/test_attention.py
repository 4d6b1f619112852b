"""What attention reads, against the set of tokens written out."""

from itertools import product

from spec.attention import attends, tail_blocks
from spec.tests.token_level import SLIDING, needed_blocks, read_by, small_groups


def test_attends_to_the_last_tokens() -> None:
    for query, token, window in product(range(8), range(10), (None, *range(1, 10))):
        assert attends(query, token, window) is (token in read_by(query, window))


def test_tail_is_the_number_of_blocks_read_far_from_the_start() -> None:
    for group in small_groups():
        if group.kind is SLIDING and not group.eagle:
            assert group.window is not None
            read = needed_blocks(group, 20 * group.block_size)
            assert tail_blocks(group.window, group.block_size) == len(read)

"""Block hashes: equal exactly when what the layers compute is equal."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from hitproof.reference.request import Request, block_hashes_of_size, hash_block_tokens
from hitproof.reference.tests.building import request


def test_only_full_blocks_are_hashed_and_decoding_hashes_more() -> None:
    new = request("a", range(7))
    assert len(new.block_hashes) == 1
    new.append_output_token_ids(7)
    assert new.block_hashes == request("b", range(8)).block_hashes
    new.append_output_token_ids(*range(8, 21))
    assert new.block_hashes == request("c", range(21)).block_hashes
    assert new.num_prompt_tokens == 7


def test_hashes_that_look_ahead_cover_what_follows_and_wait_for_it() -> None:
    def ahead(tokens: Iterable[int]) -> Request:
        return Request("a", tokens, 4, num_hash_lookahead_tokens=1)

    new = ahead(range(8))
    assert len(new.block_hashes) == 1
    new.append_output_token_ids(8)
    assert new.block_hashes == ahead(range(9)).block_hashes
    other = ahead([*range(8), 9])
    assert other.block_hashes[0] == new.block_hashes[0]
    assert other.block_hashes[1] != new.block_hashes[1]
    assert new.block_hashes[0] != request("b", range(8)).block_hashes[0]


def test_coarse_blocks_are_hashed_as_their_last_unit() -> None:
    units = request("a", range(23)).block_hashes
    assert block_hashes_of_size(units, 4, 8) == [units[1], units[3]]
    assert block_hashes_of_size(units, 4, 4) is units


keys = st.none() | st.tuples(st.none() | st.text(max_size=3), st.text(max_size=3))
tokens = st.lists(st.integers(0, 3), max_size=3)


@given(st.tuples(tokens, keys), st.tuples(tokens, keys))
def test_different_inputs_have_different_hashes(
    one: tuple[list[int], object], other: tuple[list[int], object]
) -> None:
    assert (hash_block_tokens(None, *one) == hash_block_tokens(None, *other)) == (one == other)

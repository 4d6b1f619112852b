"""Block hashes: equal exactly when what the layers compute is equal."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitproof.reference.request import (
    ExtraKeys,
    MultiModalFeature,
    Request,
    block_hashes_of_size,
    extra_keys,
    hash_block_tokens,
)
from hitproof.reference.tests.building import request

ITEMS = [MultiModalFeature("a", 2, 3), MultiModalFeature("b", 6, 5)]


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


@pytest.mark.parametrize(
    ("start", "end", "items"),
    [
        (0, 2, ()),
        (0, 4, (("a", 2),)),
        (4, 8, (("a", -2), ("b", 2))),
        (8, 12, (("b", -2),)),
        (11, 15, ()),
    ],
)
def test_every_item_in_a_block_counts(start: int, end: int, items: Any) -> None:
    assert extra_keys(start, end, None, ITEMS, None).items == items


def test_salt_is_in_the_first_block_only_and_lora_in_every_one() -> None:
    assert extra_keys(0, 4, "x", [], "s") == ExtraKeys("x", (), "s")
    assert extra_keys(4, 8, "x", [], "s") == ExtraKeys("x")


def test_coarse_blocks_are_hashed_as_their_last_unit() -> None:
    units = request("a", range(23)).block_hashes
    assert block_hashes_of_size(units, 4, 8) == [units[1], units[3]]
    assert block_hashes_of_size(units, 4, 4) is units


keys = st.builds(
    ExtraKeys,
    st.none() | st.text(max_size=3),
    st.lists(st.tuples(st.text(max_size=2), st.integers(-3, 3)), max_size=2).map(tuple),
    st.none() | st.text(max_size=3),
)
tokens = st.lists(st.integers(0, 3), max_size=3)


@given(st.tuples(tokens, keys), st.tuples(tokens, keys))
def test_different_inputs_have_different_hashes(
    one: tuple[list[int], ExtraKeys], other: tuple[list[int], ExtraKeys]
) -> None:
    assert (hash_block_tokens(None, *one) == hash_block_tokens(None, *other)) == (one == other)

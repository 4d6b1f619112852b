"""Sharing on ints: what two requests that agree on some tokens have in common."""

from itertools import product

from hitproof.spec.sharing import covered_tokens, is_chained, is_determined


def entry(tokens: tuple[int, ...], token: int, lookahead_tokens: int) -> tuple[int, ...]:
    """What a layer keeps for a token: something of all that it takes in."""
    return tokens[: token + 1 + lookahead_tokens]


def test_entries_are_determined_by_what_they_take_in() -> None:
    length = 5
    for token, ahead, agreed in product(range(4), range(3), range(length + 1)):
        if token + ahead >= length:
            continue
        mine = (0,) * length
        theirs = [mine[:agreed] + rest for rest in product((0, 1), repeat=length - agreed)]
        same = all(entry(mine, token, ahead) == entry(other, token, ahead) for other in theirs)
        assert is_determined(token, ahead, agreed) is same


def test_a_hash_vouches_for_all_up_to_the_end_of_its_block() -> None:
    assert [covered_tokens(block, 4) for block in range(3)] == [4, 8, 12]
    assert [covered_tokens(block, 4, 1) for block in range(3)] == [5, 9, 13]
    assert covered_tokens(2, 1, 2) == 5


def test_the_last_entry_of_a_draft_layer_is_left_open_by_its_own_hash() -> None:
    assert is_determined(3, 0, covered_tokens(0, 4))
    assert not is_determined(3, 1, covered_tokens(0, 4))
    assert is_determined(2, 1, covered_tokens(0, 4))
    assert is_determined(3, 1, covered_tokens(1, 4))
    assert is_determined(3, 1, covered_tokens(0, 4, 1))


def test_chained_hashes_are_equal_as_long_as_all_tokens_are() -> None:
    for hashes, tokens in product(product((False, True), repeat=3), repeat=2):
        chained = all(is_chained(b, hashes.__getitem__, tokens.__getitem__) for b in range(3))
        assert chained is all(hashes[b] is all(tokens[: b + 1]) for b in range(3))

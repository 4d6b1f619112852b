"""What requests hold in groups that look back a limited way: windows, chunks, states, encoders."""

import pytest

from hitproof.reference.groups import num_skipped_tokens
from hitproof.reference.tests.building import CHUNKED, FULL, MAMBA, SLIDING, manager, request
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.groups import Group

WINDOW = Group(SLIDING, 4, window=6)
CHUNK = Group(CHUNKED, 4, chunk=8)
STATES = Group(MAMBA, 4)


@pytest.mark.parametrize(
    "group", [Group(FULL, 4), WINDOW, Group(SLIDING, 4, window=1), CHUNK], ids=str
)
def test_skipped_tokens_are_those_that_nobody_attends_to_any_more(group: Group) -> None:
    for computed in range(30):
        read = [
            token
            for token in range(computed)
            if any(
                attends(query, token, group.window, group.chunk) for query in range(computed, 60)
            )
        ]
        assert read == [*range(num_skipped_tokens(group, computed), computed)]


def test_a_mamba_layer_reads_the_last_state_only() -> None:
    for computed in range(1, 20):
        (read,) = (token for token in range(computed) if reads_state(computed, token))
        assert num_skipped_tokens(STATES, computed) == read


def test_external_tokens_of_a_mamba_group_are_counted() -> None:
    kv = manager(STATES, num_blocks=2)
    new = request("a", range(16))
    # One block for the state that is loaded, and one for the state after it.
    assert kv.allocate_slots(new, 8, num_external_computed_tokens=8) is None
    kv = manager(STATES, num_blocks=3)
    assert kv.allocate_slots(new, 8, num_external_computed_tokens=8) is not None
    assert kv.get_block_ids("a") == ((0, 1, 0, 2),)

"""What requests hold in groups that look back a limited way: windows, chunks, states, encoders."""

import pytest

from hitproof.reference.configuration import CrossAttention
from hitproof.reference.groups import num_skipped_tokens
from hitproof.reference.tests.building import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    finish,
    manager,
    prefill,
    request,
)
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.groups import ConfigurationError, Group

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
    assert kv.get_block_ids("a") == ([0, 1, 0, 2],)


def test_cross_attention_takes_blocks_for_the_encoder_once() -> None:
    kv = manager(Group(FULL, 4), CrossAttention(8), enable_caching=False)
    running = request("a", range(6))
    assert kv.allocate_slots(running, 6, num_encoder_tokens=20) is not None
    assert kv.get_block_ids("a") == ([1, 2], [3, 4, 5])
    running.num_computed_tokens = 6
    running.append_output_token_ids(6, 7, 8)
    assert kv.allocate_slots(running, 3) is not None
    assert kv.get_block_ids("a") == ([1, 2, 6], [3, 4, 5])
    assert kv.get_num_common_prefix_blocks("a") == [0, 0]
    finish(kv, running)
    assert kv.usage == 0


def test_cross_attention_ignores_what_a_connector_loads() -> None:
    kv = manager(Group(FULL, 4), CrossAttention(8), enable_caching=False)
    new = request("a", range(8))
    added = kv.allocate_slots(new, 4, num_external_computed_tokens=4, num_encoder_tokens=8)
    assert added is not None
    assert kv.get_block_ids("a") == ([1, 2], [3])


def test_cross_attention_with_caching_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="turn caching off"):
        manager(Group(FULL, 4), CrossAttention(4))


def test_only_full_attention_has_a_common_prefix() -> None:
    kv = manager(Group(FULL, 4), WINDOW, CHUNK)
    prefill(kv, request("a", range(9)))
    assert kv.get_num_common_prefix_blocks("a") == [3, 0, 0]

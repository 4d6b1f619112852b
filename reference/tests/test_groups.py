"""What requests hold in groups that look back a limited way: windows, chunks, states, encoders."""

import pytest

from hitproof.reference.configuration import CrossAttention
from hitproof.reference.groups import num_skipped_tokens
from hitproof.reference.policies import VLLM_0_23, FreeOrder, Policies
from hitproof.reference.tests.building import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    cached_ids,
    decode,
    finish,
    free_ids,
    hit,
    manager,
    prefill,
    request,
    step,
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


def test_blocks_that_leave_the_window_become_null_and_free() -> None:
    kv = manager(WINDOW, num_blocks=11)
    running = request("a", range(20))
    assert step(kv, running, 8)
    assert kv.get_block_ids("a") == ([1, 2],)
    assert step(kv, running, 8)
    # Tokens from 3 on are still read after 8 tokens, so block 1 stays.
    assert kv.get_block_ids("a") == ([1, 2, 3, 4],)
    assert step(kv, running, 4)
    assert kv.get_block_ids("a") == ([0, 0, 3, 4, 5],)
    assert free_ids(kv) == [6, 7, 8, 9, 10, 2, 1]


def test_a_window_hits_on_its_tail_alone() -> None:
    kv = manager(WINDOW)
    first = request("a", range(17))
    prefill(kv, first)
    kv.evict_blocks([1, 2])
    blocks, found = kv.get_computed_blocks(request("b", range(17)))
    assert (found, blocks.get_block_ids()) == (16, ([0, 0, 3, 4],))
    kv.evict_blocks([3])
    assert hit(kv, range(17)) == 0


def test_a_window_falls_back_to_an_earlier_run() -> None:
    kv = manager(WINDOW)
    prefill(kv, request("a", range(21)))
    kv.evict_blocks([4])
    assert kv.get_computed_blocks(request("b", range(21)))[0].get_block_ids() == ([0, 2, 3],)


def test_a_hit_in_the_window_alone_is_held() -> None:
    kv = manager(WINDOW, num_blocks=11)
    first = request("a", range(16))
    prefill(kv, first)
    finish(kv, first)
    second = request("b", range(17))
    prefill(kv, second)
    # The tail is touched first, and then scratch that was never used is taken.
    assert kv.get_block_ids("b") == ([0, 0, 3, 4, 5],)
    assert [kv.block_pool.blocks[i].ref_cnt for i in range(1, 6)] == [0, 0, 1, 1, 1]


def test_a_window_with_eagle_needs_one_block_more() -> None:
    kv = manager(Group(SLIDING, 4, window=6), use_eagle=True)
    prefill(kv, request("a", range(21)))
    blocks, found = kv.get_computed_blocks(request("b", range(21)))
    assert (found, blocks.get_block_ids()) == (16, ([0, 0, 3, 4],))
    kv.evict_blocks([5])
    assert hit(kv, range(21)) == 12


def test_a_window_of_one_token_reads_nothing_before_it() -> None:
    kv = manager(Group(SLIDING, 4, window=1))
    assert hit(kv, range(9)) == 8


def test_scratch_of_a_window_is_reused_first() -> None:
    # A segment of 16 tokens: only the last two blocks before a boundary are reachable.
    groups = (Group(FULL, 16), WINDOW)
    kv = manager(*groups, num_blocks=21)
    running = request("a", range(32))
    assert step(kv, running, 16)
    assert kv.get_block_ids("a") == ([1], [2, 3, 4, 5])
    assert cached_ids(kv, 1) == {4, 5}
    assert step(kv, running, 16)
    # Scratch that has left the window is reused at once, the last of it first.
    assert kv.get_block_ids("a") == ([1, 3], [0, 0, 4, 5, 2, 6, 7, 8])


@pytest.mark.parametrize("order", FreeOrder)
def test_where_freed_blocks_join_the_queue(order: FreeOrder) -> None:
    kv = manager(Group(FULL, 8), Group(SLIDING, 4, window=2), policies=Policies(free_order=order))
    running = request("a", range(14))
    prefill(kv, running)
    assert kv.get_block_ids("a") == ([1, 2], [3, 4, 5, 6])
    assert (cached_ids(kv, 0), cached_ids(kv, 1)) == ({1}, {4})
    finish(kv, running)
    unused = [*range(7, 41)]
    assert (
        free_ids(kv)
        == {
            FreeOrder.APPENDED: [*unused, 2, 1, 6, 5, 4, 3],
            FreeOrder.WINDOW_SCRATCH_FIRST: [6, 5, 3, *unused, 2, 1, 4],
            FreeOrder.SCRATCH_FIRST: [6, 5, 3, 2, *unused, 1, 4],
        }[order]
    )


def test_chunks_that_are_over_become_null_and_free() -> None:
    kv = manager(CHUNK, num_blocks=11)
    running = request("a", range(20))
    assert step(kv, running, 12)
    assert step(kv, running, 8)
    # No hit reaches the last block of a chunk, so it is scratch and reused at once.
    assert kv.get_block_ids("a") == ([0, 0, 3, 2, 4],)


def test_a_hit_at_the_start_of_a_chunk_needs_nothing() -> None:
    kv = manager(CHUNK)
    blocks, found = kv.get_computed_blocks(request("a", range(20)))
    assert (found, blocks.get_block_ids()) == (16, ([0] * 4,))
    assert hit(kv, range(16)) == 8
    assert hit(kv, range(8)) == 0


def test_a_chunk_hits_on_its_own_blocks() -> None:
    kv = manager(CHUNK)
    prefill(kv, request("a", range(14)))
    blocks, found = kv.get_computed_blocks(request("b", range(15)))
    assert (found, blocks.get_block_ids()) == (12, ([0, 0, 1],))


def test_a_mamba_step_keeps_one_state_and_nulls_between() -> None:
    kv = manager(STATES)
    running = request("a", range(40))
    assert step(kv, running, 12)
    assert kv.get_block_ids("a") == ([0, 0, 1],)
    assert cached_ids(kv) == {1}
    assert step(kv, running, 12)
    # The state before is read by this step, and freed in the next.
    assert kv.get_block_ids("a") == ([0, 0, 1, 0, 0, 2],)
    assert step(kv, running, 16)
    assert kv.get_block_ids("a") == ([0, 0, 0, 0, 0, 2, 0, 0, 0, 3],)
    assert decode(kv, running, 40)
    assert kv.get_block_ids("a") == ([0] * 9 + [3, 4],)
    assert cached_ids(kv) == {1, 2, 3}


def test_a_mamba_hit_is_the_state_at_its_end() -> None:
    kv = manager(STATES)
    first = request("a", range(24))
    assert step(kv, first, 12)
    assert step(kv, first, 12)
    kv.new_step_starts()
    blocks, found = kv.get_computed_blocks(request("b", range(24)))
    assert (found, blocks.get_block_ids()) == (12, ([0, 0, 1],))
    assert hit(kv, range(25)) == 24
    assert hit(kv, range(12)) == 0


def test_a_state_that_this_step_computes_is_not_read_in_it() -> None:
    kv = manager(STATES)
    first = request("a", range(12))
    assert step(kv, first, 12)
    second = request("b", range(20))
    blocks, found = kv.get_computed_blocks(second)
    assert found == 12
    assert kv.allocate_slots(second, 8, found, blocks) is None
    kv.new_step_starts()
    assert kv.allocate_slots(second, 8, found, blocks) is not None
    assert kv.get_block_ids("b") == ([0, 0, 1, 0, 2],)


@pytest.mark.parametrize(("keeps", "first"), [(True, 1), (False, 0)])
def test_draft_blocks_of_a_mamba_group_move_on_with_the_state(keeps: bool, first: int) -> None:
    policies = Policies(keeps_states_of_drafts=keeps)
    kv = manager(STATES, num_speculative=2, policies=policies)
    running = request("a", range(8))
    assert step(kv, running, 8)
    assert kv.get_block_ids("a") == ([0, 1, 2, 3],)
    running.num_computed_tokens = 8
    running.append_output_token_ids(8)
    # Lookahead tokens need no state of their own.
    assert kv.allocate_slots(running, 1, num_lookahead_tokens=2) is not None
    assert kv.get_block_ids("a") == ([0, 1, 2, 3, 4],)
    running.num_computed_tokens = 9
    running.append_output_token_ids(*range(9, 24))
    assert step(kv, running, 15)
    # The states of rejected drafts are worth nothing: their blocks go to the end.
    assert kv.get_block_ids("a") == ([0, first, 2, 0, 0, 3, 4, 5],)
    finish(kv, running)
    assert kv.usage == 0


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
    kv = manager(Group(FULL, 4), WINDOW, CHUNK, policies=VLLM_0_23)
    prefill(kv, request("a", range(9)))
    assert kv.get_num_common_prefix_blocks("a") == [3, 0, 0]

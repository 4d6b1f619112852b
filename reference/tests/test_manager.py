"""One full-attention group: prefill, decode, eviction, keys, statistics, common prefixes."""

from typing import Any

import pytest

from hitproof.reference.hashing import LoRA, MultiModalFeature
from hitproof.reference.manager import PrefixCacheStats
from hitproof.reference.tests.building import (
    FULL,
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
from hitproof.spec.groups import ConfigurationError, Group


def test_prefill_shares_full_blocks_and_recomputes_the_rest() -> None:
    kv = manager(num_blocks=11)
    first = request("a", range(14))
    found, new = prefill(kv, first)
    assert (found, new.get_block_ids()) == (0, ([1, 2, 3, 4],))
    assert cached_ids(kv) == {1, 2, 3}
    second = request("b", [*range(12), 99, 98])
    found, new = prefill(kv, second)
    assert (found, new.get_block_ids()) == (12, ([5],))
    assert kv.get_block_ids("b") == ([1, 2, 3, 5],)
    assert [kv.block_pool.blocks[i].ref_cnt for i in (1, 4, 5)] == [2, 1, 1]


def test_finished_requests_leave_their_blocks_cached_the_tail_reused_first() -> None:
    kv = manager(num_blocks=11)
    first, second = request("a", range(14)), request("b", [*range(12), 99, 98])
    prefill(kv, first)
    prefill(kv, second)
    finish(kv, first)
    assert free_ids(kv) == [4, 6, 7, 8, 9, 10]
    finish(kv, second)
    assert free_ids(kv) == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]
    assert hit(kv, range(13)) == 12
    assert cached_ids(kv) == {1, 2, 3}


def test_the_last_token_is_always_recomputed() -> None:
    kv = manager()
    prefill(kv, request("a", range(12)))
    assert hit(kv, range(12)) == 8
    assert hit(kv, range(13)) == 12


def test_decode_fills_blocks_and_registers_them_when_full() -> None:
    kv = manager()
    running = request("a", range(6))
    prefill(kv, running)
    assert kv.get_block_ids("a") == ([1, 2],)
    assert cached_ids(kv) == {1}
    assert decode(kv, running, 6)
    assert cached_ids(kv) == {1}
    assert decode(kv, running, 7)
    assert cached_ids(kv) == {1, 2}
    assert decode(kv, running, 8, 9)
    assert kv.get_block_ids("a") == ([1, 2, 3],)
    assert hit(kv, range(9)) == 8


def test_chunked_prefill_registers_as_it_goes() -> None:
    kv = manager()
    running = request("a", range(20))
    for done, cached in ((6, 1), (3, 2), (11, 5)):
        assert step(kv, running, done)
        assert len(cached_ids(kv)) == cached


def test_draft_tokens_get_slots_and_are_not_registered() -> None:
    kv = manager()
    running = request("a", range(6))
    assert kv.allocate_slots(running, 10, num_lookahead_tokens=3) is not None
    assert kv.get_block_ids("a") == ([1, 2, 3, 4],)
    assert cached_ids(kv) == {1}
    running.num_computed_tokens = 6
    assert decode(kv, running, 6)
    assert kv.get_block_ids("a") == ([1, 2, 3, 4],)


def test_slots_stop_at_the_longest_sequence_the_model_takes() -> None:
    kv = manager(max_model_len=8)
    running = request("a", range(7))
    assert kv.allocate_slots(running, 7, num_lookahead_tokens=9) is not None
    assert kv.get_block_ids("a") == ([1, 2],)


def test_eviction_takes_the_least_recently_used_and_tails_before_prefixes() -> None:
    kv = manager(num_blocks=9)
    old, new = request("old", range(12)), request("new", range(100, 112))
    prefill(kv, old)
    prefill(kv, new)
    finish(kv, old, new)
    assert free_ids(kv) == [7, 8, 3, 2, 1, 6, 5, 4]
    prefill(kv, request("next", range(200, 214)))
    assert cached_ids(kv) == {1, 4, 5, 6, 7, 8, 3}
    assert hit(kv, range(13)) == 4
    assert hit(kv, range(100, 113)) == 12


def test_a_hit_is_taken_out_of_the_free_queue_before_anything_is_evicted() -> None:
    kv = manager(num_blocks=5)
    first = request("a", range(12))
    prefill(kv, first)
    finish(kv, first)
    found, new = prefill(kv, request("b", [*range(8), 50, 51, 52, 53, 54, 55]))
    assert (found, new.get_block_ids()) == (8, ([4, 3],))
    assert hit(kv, range(13)) == 8


def test_a_reused_block_is_found_under_its_new_hash_only() -> None:
    kv = manager(num_blocks=2)
    first = request("a", range(4))
    prefill(kv, first)
    finish(kv, first)
    prefill(kv, request("b", range(10, 14)))
    assert hit(kv, range(5)) == 0
    assert hit(kv, range(10, 15)) == 4


def test_equal_blocks_are_kept_apart() -> None:
    kv = manager()
    first, second = request("a", range(4)), request("b", range(4))
    prefill(kv, first)
    assert prefill(kv, second)[0] == 0
    assert cached_ids(kv) == {1, 2}
    finish(kv, first)
    kv.evict_blocks([1])
    assert kv.get_computed_blocks(request("c", range(5)))[0].get_block_ids() == ([2],)


def test_a_step_that_does_not_fit_changes_no_table() -> None:
    kv = manager(num_blocks=4)
    running = request("a", range(8))
    prefill(kv, running)
    assert not decode(kv, running, *range(8, 20))
    assert kv.get_block_ids("a") == ([1, 2],)
    assert free_ids(kv) == [3]


def test_free_hit_blocks_count_as_taken() -> None:
    kv = manager(num_blocks=5)
    first = request("a", range(12))
    prefill(kv, first)
    finish(kv, first)
    again = request("b", range(21))
    blocks, found = kv.get_computed_blocks(again)
    assert found == 12
    # Three of the four free blocks are the hit itself, so one block is left for nine tokens.
    assert kv.allocate_slots(again, 9, found, blocks) is None
    assert kv.allocate_slots(again, 4, found, blocks) is not None


def test_reserved_blocks_are_left_for_others() -> None:
    kv = manager(num_blocks=5)
    assert kv.allocate_slots(request("a", range(12)), 12, reserved_blocks=2) is None
    assert kv.allocate_slots(request("a", range(12)), 12, reserved_blocks=1) is not None


def test_a_preempted_request_hits_what_it_left() -> None:
    kv = manager()
    running = request("a", range(10))
    prefill(kv, running)
    assert decode(kv, running, 10, 11, 12)
    finish(kv, running)
    assert prefill(kv, running)[0] == 12
    assert kv.get_block_ids("a") == ([1, 2, 3, 4],)


def test_without_caching_nothing_is_shared_or_registered() -> None:
    kv = manager(enable_caching=False)
    first = request("a", range(12))
    assert prefill(kv, first)[0] == 0
    assert prefill(kv, request("b", range(12)))[0] == 0
    assert cached_ids(kv) == set()
    assert kv.get_num_common_prefix_blocks("a") == [0]
    assert decode(kv, first, 1)


def test_delayed_blocks_are_registered_later() -> None:
    kv = manager()
    new = request("a", range(9))
    assert kv.allocate_slots(new, 9, delay_cache_blocks=True) is not None
    assert cached_ids(kv) == set()
    kv.cache_blocks(new, 9)
    assert cached_ids(kv) == {1, 2}


def test_tokens_that_a_connector_loads_get_blocks_and_are_registered() -> None:
    kv = manager()
    prefill(kv, request("a", range(8)))
    new = request("b", range(20))
    blocks, found = kv.get_computed_blocks(new)
    added = kv.allocate_slots(
        new, 0, found, blocks, num_external_computed_tokens=8, delay_cache_blocks=True
    )
    assert added is not None
    assert added.get_block_ids() == ([],)
    assert kv.get_block_ids("b") == ([1, 2, 3, 4],)
    new.num_computed_tokens = 16
    assert step(kv, new, 4)
    assert kv.get_block_ids("b") == ([1, 2, 3, 4, 5],)
    assert cached_ids(kv) == {1, 2, 3, 4, 5}


def test_a_step_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one new token"):
        manager().allocate_slots(request("a", range(4)), 0)


def test_a_request_hashed_otherwise_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use one hash block size"):
        manager().get_computed_blocks(request("a", range(4), hash_block_size=2))


def test_requests_that_need_every_logit_read_no_cache_but_fill_it() -> None:
    kv = manager(log_stats=True)
    first = request("a", range(9), skip_reading_prefix_cache=True)
    assert prefill(kv, first)[0] == 0
    assert prefill(kv, request("b", range(9), skip_reading_prefix_cache=True))[0] == 0
    assert kv.make_prefix_cache_stats() == PrefixCacheStats()
    assert hit(kv, range(9)) == 8


def test_reset_forgets_everything_once_nothing_runs() -> None:
    kv = manager(log_stats=True)
    running = request("a", range(9))
    prefill(kv, running)
    assert not kv.reset_prefix_cache()
    finish(kv, running)
    assert kv.reset_prefix_cache()
    assert hit(kv, range(9)) == 0
    stats = kv.make_prefix_cache_stats()
    assert stats is not None
    assert stats.reset


def test_statistics_count_tokens_and_keep_preempted_requests_apart() -> None:
    kv = manager(log_stats=True)
    first = request("a", range(9))
    prefill(kv, first)
    prefill(kv, request("b", range(10)))
    finish(kv, first)
    first.num_preemptions = 1
    prefill(kv, first)
    assert kv.make_prefix_cache_stats() == PrefixCacheStats(
        requests=2, queries=19, hits=8, preempted_requests=1, preempted_queries=9, preempted_hits=8
    )
    assert kv.make_prefix_cache_stats() == PrefixCacheStats()
    assert manager().make_prefix_cache_stats() is None


def test_usage_is_the_share_of_blocks_held() -> None:
    kv = manager(num_blocks=5)
    running = request("a", range(8))
    prefill(kv, running)
    assert kv.usage == 0.5
    finish(kv, running)
    assert kv.usage == 0


def test_common_prefix_is_what_every_request_with_blocks_holds() -> None:
    kv = manager()
    first, second = request("a", range(12)), request("b", [*range(8), 50, 51])
    prefill(kv, first)
    assert kv.get_num_common_prefix_blocks("a") == [3]
    prefill(kv, second)
    assert kv.get_num_common_prefix_blocks("a") == [2]
    assert kv.get_num_common_prefix_blocks("b") == [2]
    prefill(kv, request("c", range(70, 74)))
    assert kv.get_num_common_prefix_blocks("a") == [0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"cache_salt": "tenant 1"}, {"cache_salt": "tenant 2"}),
        ({"cache_salt": "tenant 1"}, {}),
        ({"lora_request": LoRA("sql")}, {"lora_request": LoRA("poems")}),
        ({"lora_request": LoRA("sql")}, {}),
        ({"lora_request": LoRA("x")}, {"cache_salt": "x"}),
        ({"mm_features": [MultiModalFeature("cat", 1, 2)]}, {}),
        (
            {"mm_features": [MultiModalFeature("cat", 1, 2)]},
            {"mm_features": [MultiModalFeature("cat", 0, 2)]},
        ),
    ],
)
def test_requests_share_only_with_their_own_kind(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    kv = manager()
    prefill(kv, request("a", range(13), **one))
    assert hit(kv, range(13), **one) == 12
    assert hit(kv, range(13), **other) == 0


def test_blocks_before_a_multimodal_item_are_shared() -> None:
    kv = manager()
    prefill(kv, request("a", range(13), mm_features=[MultiModalFeature("cat", 6, 4)]))
    assert hit(kv, range(13), mm_features=[MultiModalFeature("dog", 6, 4)]) == 4
    assert hit(kv, range(13), mm_features=[MultiModalFeature("cat", 6, 4)]) == 12


def test_eagle_drops_the_last_matched_block() -> None:
    kv = manager(use_eagle=True)
    prefill(kv, request("a", range(13)))
    assert hit(kv, range(13)) == 8
    # The lookahead block must be matched within the cap, too.
    assert hit(kv, range(12)) == 4
    assert hit(kv, range(6)) == 0


def test_eagle_needs_the_next_block_under_the_same_hash() -> None:
    kv = manager(use_eagle=True)
    prefill(kv, request("a", range(12)))
    assert hit(kv, [*range(8), 50, 51, 52, 53, 54]) == 4


def test_evicted_blocks_are_found_no_more_and_stay_with_their_request() -> None:
    kv = manager()
    running = request("a", range(9))
    prefill(kv, running)
    kv.evict_blocks([2])
    assert hit(kv, range(9)) == 4
    assert kv.get_block_ids("a") == ([1, 2, 3],)


def test_a_group_that_opts_out_asks_nothing_of_hits() -> None:
    ring = Group(FULL, 4, prefix_cacheable=False)
    kv = manager(Group(FULL, 4), ring)
    prefill(kv, request("a", range(9)))
    found, new = prefill(kv, request("b", range(9)))
    assert found == 8
    assert [len(table) for table in new.blocks] == [1, 3]
    assert cached_ids(kv, 1) == set()

"""One full-attention group: prefill, decode, eviction, keys."""

from hitproof.reference.tests.building import FULL, cached_ids, decode, manager, prefill, request
from hitproof.spec.groups import Group


def test_slots_stop_at_the_longest_sequence_the_model_takes() -> None:
    kv = manager(max_model_len=8)
    running = request("a", range(7))
    assert kv.allocate_slots(running, 7, num_lookahead_tokens=9) is not None
    assert kv.get_block_ids("a") == ((1, 2),)


def test_reserved_blocks_are_left_for_others() -> None:
    kv = manager(num_blocks=5)
    assert kv.allocate_slots(request("a", range(12)), 12, reserved_blocks=2) is None
    assert kv.allocate_slots(request("a", range(12)), 12, reserved_blocks=1) is not None


def test_without_caching_nothing_is_shared_or_registered() -> None:
    kv = manager(enable_caching=False)
    first = request("a", range(12))
    assert prefill(kv, first)[0] == 0
    assert prefill(kv, request("b", range(12)))[0] == 0
    assert cached_ids(kv) == set()
    assert decode(kv, first, 1)


def test_a_group_that_opts_out_asks_nothing_of_hits() -> None:
    ring = Group(FULL, 4, prefix_cacheable=False)
    kv = manager(Group(FULL, 4), ring)
    prefill(kv, request("a", range(9)))
    found, new = prefill(kv, request("b", range(9)))
    assert found == 8
    assert [len(table) for table in new] == [1, 3]
    assert cached_ids(kv, 1) == set()

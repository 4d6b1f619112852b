"""Events: enough for a consumer to know at any time what is cached."""

from hitproof.reference.events import AllBlocksCleared, BlockRemoved, BlockStored, KVCacheEvent
from hitproof.reference.hashing import LoRA, MultiModalFeature
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.tests.building import (
    CHUNKED,
    FULL,
    SLIDING,
    decode,
    finish,
    manager,
    prefill,
    request,
    step,
)
from hitproof.spec.groups import Group


def stored(kv: KVCacheManager) -> list[BlockStored]:
    events = kv.take_events()
    found = [event for event in events if isinstance(event, BlockStored)]
    assert len(found) == len(events)
    return found


def test_stored_blocks_come_with_their_parent_and_tokens() -> None:
    kv = manager(enable_kv_cache_events=True)
    running = request("a", range(10))
    prefill(kv, running)
    (event,) = stored(kv)
    assert event == BlockStored(
        block_hashes=running.block_hashes,
        parent_block_hash=None,
        token_ids=[*range(8)],
        block_size=4,
        lora_id=None,
        lora_name=None,
        extra_keys=[None, None],
        group_idx=0,
        kv_cache_spec_kind="full_attention",
    )
    decode(kv, running, 10, 11)
    (event,) = stored(kv)
    assert event.block_hashes == running.block_hashes[2:]
    assert event.parent_block_hash == running.block_hashes[1]
    assert event.token_ids == [8, 9, 10, 11]
    assert kv.take_events() == []


def test_no_events_unless_asked_for() -> None:
    kv = manager()
    prefill(kv, request("a", range(10)))
    assert kv.take_events() == []


def test_stored_blocks_name_what_they_depend_on() -> None:
    kv = manager(enable_kv_cache_events=True)
    items = [MultiModalFeature("cat", 2, 4)]
    new = request("a", range(8), lora_request=LoRA("sql", 7), mm_features=items, cache_salt="s")
    prefill(kv, new)
    (event,) = stored(kv)
    assert (event.lora_id, event.lora_name) == (7, "sql")
    assert event.extra_keys == [("sql", ("cat", 2), "s"), ("sql", ("cat", -2))]


def test_groups_are_told_apart() -> None:
    kv = manager(
        Group(FULL, 4),
        Group(SLIDING, 4, window=6),
        Group(CHUNKED, 4, chunk=16),
        enable_kv_cache_events=True,
    )
    prefill(kv, request("a", range(8)))
    events = stored(kv)
    assert [event.group_idx for event in events] == [0, 1, 2]
    assert [(event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window) for event in events] == [
        ("full_attention", None),
        ("sliding_window", 6),
        ("chunked_local_attention", None),
    ]


def test_an_event_names_only_what_was_registered() -> None:
    kv = manager(Group(FULL, 8), Group(SLIDING, 4, window=2), enable_kv_cache_events=True)
    new = request("a", range(16))
    prefill(kv, new)
    full, window = stored(kv)
    assert full.block_hashes == [new.block_hashes[1], new.block_hashes[3]]
    assert (full.block_size, window.block_size) == (8, 4)
    assert window.block_hashes == [new.block_hashes[1], new.block_hashes[3]]
    assert window.extra_keys == [None, None]
    assert window.token_ids == [*range(16)]


def test_reuse_removes_what_was_cached() -> None:
    kv = manager(num_blocks=3, enable_kv_cache_events=True)
    first = request("a", range(8))
    prefill(kv, first)
    finish(kv, first)
    kv.take_events()
    second = request("b", range(50, 54))
    prefill(kv, second)
    removed, added = kv.take_events()
    assert removed == BlockRemoved([first.block_hashes[1]], 0)
    assert isinstance(added, BlockStored)


def test_reset_clears_all() -> None:
    kv = manager(enable_kv_cache_events=True)
    first = request("a", range(8))
    prefill(kv, first)
    finish(kv, first)
    kv.take_events()
    assert kv.reset_prefix_cache()
    assert kv.take_events() == [AllBlocksCleared()]


def replayed(events: list[KVCacheEvent], known: set[tuple[int, bytes]]) -> set[tuple[int, bytes]]:
    for event in events:
        match event:
            case BlockStored(group_idx=group, block_hashes=hashes):
                known |= {(group, block_hash) for block_hash in hashes}
            case BlockRemoved(group_idx=group, block_hashes=hashes):
                known -= {(group, block_hash) for block_hash in hashes}
            case AllBlocksCleared():
                known = set()
    return known


def test_a_consumer_knows_what_is_cached() -> None:
    kv = manager(
        Group(FULL, 8), Group(SLIDING, 4, window=6), num_blocks=12, enable_kv_cache_events=True
    )
    known: set[tuple[int, bytes]] = set()
    for start in range(0, 60, 10):
        new = request(f"{start}", range(start, start + 18))
        while new.num_computed_tokens < 18:
            assert step(kv, new, 6)
        finish(kv, new)
        known = replayed(kv.take_events(), known)
        assert known == {(group, key) for group, key, _ in kv.block_pool.cached_blocks()}

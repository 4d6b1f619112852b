"""Events: enough for a consumer to know at any time what is cached."""

from hitproof.reference.events import BlockStored
from hitproof.reference.hashing import LoRA, MultiModalFeature
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.tests.building import decode, manager, prefill, request


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

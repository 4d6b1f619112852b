"""Releases as the reference emulates them, and what it has beside the spec: events, statistics."""

from functools import partial
from typing import Any

import pytest

from hitproof.conformance.emulation.managers import EmulatedManager
from hitproof.conformance.emulation.releases import (
    VLLM_0_20,
    VLLM_0_22,
    VLLM_0_23,
    VLLM_0_24,
    VLLM_0_30,
    VLLM_0_32,
    FreeOrder,
    Policies,
)
from hitproof.conformance.reference.managers import Extras, WatchedPool
from hitproof.conformance.subject.managers import Stored
from hitproof.reference.manager import KVCacheManager
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
    num_held,
    prefill,
    request,
    step,
)
from hitproof.spec.groups import Group
from hitproof.spec.releases.horizons import LookaheadHorizon


def emulated(policies: Policies, *groups: Group, **options: Any) -> KVCacheManager:
    return manager(*groups, made=partial(EmulatedManager, policies), **options)


@pytest.mark.parametrize(
    ("policies", "use_eagle", "resent", "extended"),
    [
        (VLLM_0_23, False, 32, 32),
        (VLLM_0_24, True, 0, 32),
        (VLLM_0_30, False, 32, 32),
        (VLLM_0_30, True, 24, 32),
        (VLLM_0_32, True, 32, 32),
        (Policies(), False, 32, 40),
        (Policies(), True, 32, 32),
    ],
)
def test_what_releases_keep_of_a_prompt_of_whole_segments(
    policies: Policies, use_eagle: bool, resent: int, extended: int
) -> None:
    groups = Group(FULL, 8), Group(SLIDING, 2, window=4)
    options: dict[str, Any] = {"hash_block_size": 2, "retention_interval": 0}
    kv = emulated(policies, *groups, num_blocks=400, use_eagle=use_eagle, **options)
    prompt = request("a", range(40), hash_block_size=2)
    while prompt.num_computed_tokens < 40:
        assert step(kv, prompt, 5)
    finish(kv, prompt)
    assert hit(kv, range(40), hash_block_size=2) == resent
    assert hit(kv, [*range(40), 900, 901], hash_block_size=2) == extended


def test_blocks_wait_for_their_boundary_from_0_22_on() -> None:
    for policies, kept in ((VLLM_0_20, 11), (VLLM_0_22, 10)):
        kv = emulated(policies, Group(FULL, 4), Group(FULL, 2), hash_block_size=2)
        new = request("a", range(23), hash_block_size=2)
        assert step(kv, new, 23)
        assert len(cached_ids(kv, 1)) == kept


def test_mamba_is_thinned_out_from_0_24_on() -> None:
    for policies, kept in ((VLLM_0_23, 4), (VLLM_0_24, 1), (VLLM_0_32, 1), (Policies(), 2)):
        kv = emulated(policies, Group(FULL, 4), Group(MAMBA, 4), retention_interval=0)
        new = request("a", range(16))
        while new.num_computed_tokens < 16:
            assert step(kv, new, 4)
        assert len(cached_ids(kv, 1)) == kept


@pytest.mark.parametrize("order", FreeOrder)
def test_where_freed_blocks_join_the_queue(order: FreeOrder) -> None:
    kv = emulated(Policies(free_order=order), Group(FULL, 8), Group(SLIDING, 4, window=2))
    running = request("a", range(14))
    prefill(kv, running)
    assert kv.get_block_ids("a") == ((1, 2), (3, 4, 5, 6))
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


@pytest.mark.parametrize(("keeps", "first"), [(True, 1), (False, 0)])
def test_draft_blocks_of_a_mamba_group_move_on_with_the_state(keeps: bool, first: int) -> None:
    policies = Policies(keeps_states_of_drafts=keeps)
    kv = emulated(policies, Group(MAMBA, 4), num_speculative_blocks=2)
    running = request("a", range(8))
    assert step(kv, running, 8)
    assert kv.get_block_ids("a") == ((0, 1, 2, 3),)
    running.num_computed_tokens = 8
    running.append_output_token_ids(8)
    # Lookahead tokens need no state of their own.
    assert kv.allocate_slots(running, 1, num_lookahead_tokens=2) is not None
    assert kv.get_block_ids("a") == ((0, 1, 2, 3, 4),)
    running.num_computed_tokens = 9
    running.append_output_token_ids(*range(9, 24))
    assert step(kv, running, 15)
    # The states of rejected drafts are worth nothing: their blocks go to the end.
    assert kv.get_block_ids("a") == ((0, first, 2, 0, 0, 3, 4, 5),)
    finish(kv, running)
    assert num_held(kv) == 0


@pytest.mark.parametrize(
    ("horizon", "expected"), [(LookaheadHorizon.CAPPED, 4), (LookaheadHorizon.HASHED, 8)]
)
def test_how_far_the_lookahead_block_may_lie(horizon: LookaheadHorizon, expected: int) -> None:
    window = Group(SLIDING, 4, window=6)
    kv = emulated(Policies(horizon=horizon), Group(FULL, 4), window, use_eagle=True)
    prefill(kv, request("a", range(12)))
    assert hit(kv, range(12)) == expected


def test_releases_that_thin_out_windows_alone_register_every_chunk_block() -> None:
    for policies, expected in ((Policies(), 1), (VLLM_0_23, 2)):
        kv = emulated(policies, Group(CHUNKED, 4, chunk=8))
        assert step(kv, request("a", range(9)), 9)
        assert len(cached_ids(kv)) == expected


# --- events


def watched() -> tuple[KVCacheManager, WatchedPool]:
    pool = WatchedPool(41)
    return manager(pool=pool), pool


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
    assert Extras(None, (("a", 2, 3), ("b", 6, 5))).of(start, end).items == items


def test_salt_is_in_the_first_block_only_and_lora_in_every_one() -> None:
    extras = Extras("x", (), "s")
    assert (extras.of(0, 4), extras.of(4, 8)) == (extras, Extras("x"))


def test_stored_blocks_come_with_their_parent_and_tokens() -> None:
    kv, pool = watched()
    running = request("a", range(10), extra_keys=Extras().of)
    prefill(kv, running)
    stored = partial(Stored, group=0, block_size=4, lora_name=None)
    (first, second) = running.block_hashes
    tokens = tuple(range(8))
    assert pool.take_events() == (
        stored(keys=(first, second), parent=None, token_ids=tokens, extra_keys=(None, None)),
    )
    decode(kv, running, 10, 11)
    third = running.block_hashes[2]
    assert pool.take_events() == (
        stored(keys=(third,), parent=second, token_ids=(8, 9, 10, 11), extra_keys=(None,)),
    )
    assert pool.take_events() == ()


def test_stored_blocks_name_what_they_depend_on() -> None:
    kv, pool = watched()
    extras = Extras("sql", (("cat", 2, 4),), "s")
    new = request("a", range(8), extra_keys=extras.of)
    prefill(kv, new)
    (event,) = pool.take_events()
    assert isinstance(event, Stored)
    assert event.lora_name == "sql"
    assert event.extra_keys == (("sql", ("cat", 2), "s"), ("sql", ("cat", -2)))

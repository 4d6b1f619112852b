"""Several groups over one pool: the common hit, EAGLE, and allocation in two phases."""

import itertools
from typing import Any

import pytest

from hitproof.reference.coordinator import KVCacheCoordinator
from hitproof.reference.policies import VLLM_0_23, Policies
from hitproof.reference.tests.building import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    cached_ids,
    finish,
    free_ids,
    hit,
    manager,
    prefill,
    request,
    step,
)
from hitproof.spec.groups import ConfigurationError, Group, alignment
from hitproof.spec.releases.horizons import LookaheadHorizon

WINDOW = Group(SLIDING, 4, window=6)
KINDS = (Group(FULL, 4), WINDOW, Group(SLIDING, 2, window=4), Group(MAMBA, 8), Group(FULL, 8))
COMBINATIONS = [
    groups for count in (2, 3) for groups in itertools.combinations_with_replacement(KINDS, count)
]


def test_a_hybrid_hit_is_the_longest_that_both_groups_have() -> None:
    kv = manager(Group(FULL, 4), WINDOW)
    prefill(kv, request("a", range(17)))
    assert kv.get_block_ids("a") == ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    blocks, found = kv.get_computed_blocks(request("b", range(17)))
    assert (found, blocks.get_block_ids()) == (16, ([1, 2, 3, 4], [0, 0, 8, 9]))
    kv.evict_blocks([9])
    blocks, found = kv.get_computed_blocks(request("b", range(17)))
    assert (found, blocks.get_block_ids()) == (12, ([1, 2, 3], [0, 7, 8]))
    kv.evict_blocks([2])
    assert hit(kv, range(17)) == 4


def test_groups_that_disagree_settle_on_a_common_boundary() -> None:
    kv = manager(Group(FULL, 4), WINDOW, Group(SLIDING, 4, window=9))
    prefill(kv, request("a", range(25)))
    assert kv.get_block_ids("a")[2] == [15, 16, 17, 18, 19, 20, 21]
    # The wider window lacks block 4 of its own, so hits of 20 and 24 tokens are out; 16 is in.
    kv.evict_blocks([19])
    assert hit(kv, range(25)) == 16
    # The narrower one lacks the end of its tail at 16.
    kv.evict_blocks([11])
    assert hit(kv, range(25)) == 12


def test_equal_groups_hit_together() -> None:
    kv = manager(Group(FULL, 4), WINDOW, WINDOW)
    prefill(kv, request("a", range(13)))
    blocks, found = kv.get_computed_blocks(request("b", range(13)))
    assert (found, blocks.get_block_ids()) == (12, ([1, 2, 3], [0, 6, 7], [0, 10, 11]))
    kv.evict_blocks([11])
    blocks, found = kv.get_computed_blocks(request("b", range(13)))
    assert (found, blocks.get_block_ids()) == (8, ([1, 2], [5, 6], [9, 10]))


@pytest.mark.parametrize("use_eagle", [False, True])
@pytest.mark.parametrize("groups", COMBINATIONS, ids=str)
def test_any_combination_hits_its_last_boundary(groups: tuple[Group, ...], use_eagle: bool) -> None:
    kv = manager(*groups, num_blocks=200, hash_block_size=2, use_eagle=use_eagle)
    align = alignment(groups)
    first = request("a", range(41), hash_block_size=2)
    while first.num_computed_tokens < 41:  # as the scheduler does it for Mamba
        assert step(kv, first, min(align, 41 - first.num_computed_tokens))
    kv.new_step_starts()
    dropping = [group.block_size for group in groups if group.kind is not MAMBA]
    lookahead = max(dropping, default=0) if use_eagle else 0
    found = hit(kv, range(41), hash_block_size=2)
    assert found == (40 - lookahead) // align * align
    finish(kv, first)
    assert kv.usage == 0


def test_a_draft_layer_in_one_group_drops_a_block_there_alone() -> None:
    flagged = (Group(FULL, 4, eagle=True), WINDOW)
    kv = manager(*flagged, use_eagle=True)
    prefill(kv, request("a", range(13)))
    blocks, found = kv.get_computed_blocks(request("b", range(13)))
    assert (found, blocks.get_block_ids()) == (8, ([1, 2], [5, 6]))
    kv.evict_blocks([7])  # past the hit; only full attention looks ahead
    assert hit(kv, range(13)) == 8
    kv.evict_blocks([3])
    assert hit(kv, range(13)) == 4


@pytest.mark.parametrize(
    ("horizon", "expected"), [(LookaheadHorizon.CAPPED, 4), (LookaheadHorizon.HASHED, 8)]
)
def test_how_far_the_lookahead_block_may_lie(horizon: LookaheadHorizon, expected: int) -> None:
    kv = manager(Group(FULL, 4), WINDOW, use_eagle=True, policies=Policies(horizon=horizon))
    prefill(kv, request("a", range(12)))
    assert hit(kv, range(12)) == expected


def test_blocks_of_different_sizes_share_one_hash_size() -> None:
    kv = manager(Group(FULL, 8), Group(SLIDING, 2, window=4), hash_block_size=2)
    prefill(kv, request("a", range(20), hash_block_size=2))
    assert kv.get_block_ids("a")[0] == [1, 2, 3]
    blocks, found = kv.get_computed_blocks(request("b", range(20), hash_block_size=2))
    assert (found, [len(table) for table in blocks.blocks]) == (16, [2, 8])
    # What no boundary reaches is not registered: two blocks a segment of four are.
    assert len(cached_ids(kv, 1)) == 4


def test_mamba_hits_where_the_scheduler_ended_a_chunk() -> None:
    kv = manager(Group(FULL, 4), Group(MAMBA, 4))
    first = request("a", range(30))
    assert step(kv, first, 8)
    assert step(kv, first, 16)
    kv.new_step_starts()
    assert hit(kv, range(30)) == 24
    assert hit(kv, range(24)) == 8
    assert hit(kv, range(8)) == 0


def test_mamba_with_eagle_never_goes_past_the_candidate() -> None:
    kv = manager(Group(FULL, 4), Group(MAMBA, 4), use_eagle=True)
    first = request("a", range(16))
    assert step(kv, first, 12)
    assert step(kv, first, 4)
    kv.new_step_starts()
    # Full attention can serve 8 tokens; the states end at 12 and 16.
    assert hit(kv, range(13)) == 0
    assert hit(kv, range(17)) == 12


def test_full_and_chunked_local() -> None:
    kv = manager(Group(FULL, 4), Group(CHUNKED, 4, chunk=8))
    prefill(kv, request("a", range(14)))
    blocks, found = kv.get_computed_blocks(request("b", range(14)))
    assert (found, blocks.get_block_ids()) == (12, ([1, 2, 3], [0, 0, 7]))


def take_hits_and_load_more() -> tuple[list[int], ...]:
    """A hit in two groups whose free blocks come first in the queue, and tokens to load."""
    kv = manager(Group(FULL, 4), WINDOW, num_blocks=11)
    hit_later, other = request("a", range(9)), request("b", range(100, 112))
    for each in (hit_later, other):
        prefill(kv, each)
        finish(kv, each)
    assert free_ids(kv) == [2, 1, 5, 4, 7, 3, 6, 10, 9, 8]
    new = request("c", range(20))
    blocks, found = kv.get_computed_blocks(new)
    assert (found, blocks.get_block_ids()) == (8, ([1, 2], [4, 5]))
    assert kv.allocate_slots(new, 0, found, blocks, num_external_computed_tokens=4) is not None
    return kv.get_block_ids("c")


def test_every_hit_is_touched_before_any_block_is_taken() -> None:
    # Block 4 is out of the window once the loaded tokens count, so it may be taken.
    assert take_hits_and_load_more() == ([1, 2, 4], [0, 5, 7])


def test_taking_blocks_for_one_group_first_would_take_the_hit_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = KVCacheCoordinator.allocate_new_computed_blocks

    def one_by_one(self: KVCacheCoordinator, name: str, hit: Any, *lengths: int) -> None:
        managers = self.single_type_managers
        for index, each in enumerate(managers):
            self.single_type_managers = (each,)
            together(self, name, hit[index : index + 1], *lengths)
        self.single_type_managers = managers

    monkeypatch.setattr(KVCacheCoordinator, "allocate_new_computed_blocks", one_by_one)
    full, window = take_hits_and_load_more()
    assert full[2] == window[1] == 5


def test_registration_waits_for_the_boundary() -> None:
    kv = manager(Group(FULL, 8), Group(SLIDING, 2, window=4), hash_block_size=2)
    running = request("a", range(30), hash_block_size=2)
    assert step(kv, running, 7)
    assert not cached_ids(kv, 0) | cached_ids(kv, 1)
    assert step(kv, running, 1)
    assert (len(cached_ids(kv, 0)), len(cached_ids(kv, 1))) == (1, 2)


def test_releases_that_thin_out_windows_alone_register_every_chunk_block() -> None:
    for policies, expected in ((Policies(), 1), (VLLM_0_23, 2)):
        kv = manager(Group(CHUNKED, 4, chunk=8), policies=policies)
        assert step(kv, request("a", range(9)), 9)
        assert len(cached_ids(kv)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheduler_block_size": 6}, "must be a multiple of every block size; 4 does not"),
        ({"hash_block_size": 3, "scheduler_block_size": 12}, "must divide every group's block"),
        ({"retention_interval": 6}, "a retention interval must be a multiple of the alignment"),
        ({"num_blocks": 0}, "at least one block"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        manager(Group(FULL, 4), WINDOW, **options)


def test_caching_takes_a_group_that_caches() -> None:
    with pytest.raises(ConfigurationError, match="at least one group"):
        manager(Group(FULL, 4, prefix_cacheable=False))

"""The reference's tier keeps the clauses of `spec.tiers`, over histories of steps."""

from itertools import pairwise

import pytest

from hitproof.reference.hashing import block_hashes_of_size
from hitproof.reference.pool import BlockPool
from hitproof.reference.tier import Tier
from hitproof.spec.groups import Group, GroupKind, alignment, share_eagle
from hitproof.spec.hits import longest_valid_hit

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
UNIT = 2
HASHES = [b"%d" % unit for unit in range(24)]
TOKENS = UNIT * len(HASHES)

MODELS = {
    "full": (Group(FULL, 4),),
    "window": (Group(FULL, 4), Group(SLIDING, 2, 5)),
    "drafts": (Group(FULL, 8, eagle=True), Group(SLIDING, 2, 9), Group(MAMBA, 4)),
    "drafts in the window": (Group(SLIDING, 2, 4, eagle=True), Group(FULL, 4)),
    "all draft": (Group(FULL, 4), Group(SLIDING, 2, 6)),
    "scratch": (Group(FULL, 4), Group(SLIDING, 2, 5, prefix_cacheable=False)),
}
STEPS = ((0, 48), (0, 8, 16, 48), (0, 16, 24, 32, 40, 48))


def tier_of(name: str) -> tuple[Tier, tuple[Group, ...], int]:
    groups = share_eagle(MODELS[name], "draft" in name)
    align = alignment(groups)
    return Tier(groups, align, UNIT), groups, align


@pytest.mark.parametrize("steps", STEPS, ids=len)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_stored_in_steps_is_served_as_if_all_were_stored(
    name: str, steps: tuple[int, ...]
) -> None:
    tier, groups, align = tier_of(name)
    for start, end in pairwise(steps):
        tier.store(HASHES, start, end)
    for cap in range(0, TOKENS, UNIT):
        found = tier.find_longest_hit(HASHES, cap, TOKENS, BlockPool(1))
        assert found == longest_valid_hit(groups, align, cap, TOKENS, lambda *_: True)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_asked_for_is_stored_and_decides(name: str) -> None:
    tier, groups, align = tier_of(name)
    tier.store(HASHES, 0, TOKENS)
    every = set(tier.stored)
    for length in range(align, TOKENS + 1, align):
        whole = tier.find_longest_hit(HASHES, length, length, BlockPool(1))
        asked = {
            (number, block_hash)
            for number, mask in enumerate(tier.lookup_mask(length))
            for block_hash, each in zip(
                block_hashes_of_size(HASHES, UNIT, groups[number].block_size), mask, strict=False
            )
            if each
        }
        assert asked <= every
        tier.stored = asked
        assert tier.find_longest_hit(HASHES, length, length, BlockPool(1)) == whole
        tier.stored = every


@pytest.mark.parametrize("name", MODELS)
def test_a_load_completes_what_is_local(name: str) -> None:
    tier, groups, _ = tier_of(name)
    nothing = [set[int]() for _ in groups]
    whole = tier.load_mask(32, nothing)
    for number, mask in enumerate(whole):
        local = [set[int]() for _ in groups]
        local[number] = {block for block, each in enumerate(mask) if each}
        rest = tier.load_mask(32, local)
        assert not any(rest[number])
        assert rest[:number] + rest[number + 1 :] == whole[:number] + whole[number + 1 :]


def test_a_hit_rests_on_stored_and_local_blocks_together() -> None:
    tier, groups, align = tier_of("window")
    tier.store(HASHES, 16, TOKENS)
    assert tier.find_longest_hit(HASHES, TOKENS, TOKENS, BlockPool(1)) == 0

    class Local:
        null_block = None

        def get_cached_block(self, block_hash: bytes, _: object) -> list[bytes] | None:
            return [block_hash] if block_hash in local else None

    local = set(block_hashes_of_size(HASHES[:8], UNIT, groups[0].block_size))
    assert tier.find_longest_hit(HASHES, TOKENS, TOKENS, Local()) == TOKENS // align * align

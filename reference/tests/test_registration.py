"""What the producer registers: the mask, sparse retention, junctions."""

from dataclasses import replace

import pytest

from hitproof.reference.manager import KVCacheManager
from hitproof.reference.registration import Registration
from hitproof.reference.releases import (
    VLLM_0_20,
    VLLM_0_22,
    VLLM_0_23,
    VLLM_0_24,
    VLLM_0_30,
    VLLM_0_32,
    Policies,
)
from hitproof.reference.tests.building import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    cached_ids,
    finish,
    hit,
    manager,
    request,
    step,
)
from hitproof.spec.groups import Group, alignment, geometry, share_eagle
from hitproof.spec.hits import required_run
from hitproof.spec.retention import in_retained_mask

FINE = Group(SLIDING, 2, window=4)
GROUPS = (Group(FULL, 8), FINE)


def build(
    interval: int | None, policies: Policies | None = None, **options: bool
) -> KVCacheManager:
    return manager(
        *GROUPS,
        num_blocks=400,
        hash_block_size=2,
        retention_interval=interval,
        policies=policies,
        **options,
    )


def compute(kv: KVCacheManager, num_tokens: int, name: str = "a", chunk: int = 5) -> None:
    new = request(name, range(num_tokens), hash_block_size=2)
    while new.num_computed_tokens < num_tokens:
        assert step(kv, new, min(chunk, num_tokens - new.num_computed_tokens))
    finish(kv, new)


def hits(kv: KVCacheManager, num_tokens: int) -> int:
    return hit(kv, range(num_tokens), hash_block_size=2)


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
    kv = build(0, policies, use_eagle=use_eagle)
    compute(kv, 40)
    assert hits(kv, 40) == resent
    assert hit(kv, [*range(40), 900, 901], hash_block_size=2) == extended


def test_blocks_wait_for_their_boundary_from_0_22_on() -> None:
    for policies, kept in ((VLLM_0_20, 11), (VLLM_0_22, 10)):
        kv = manager(Group(FULL, 4), Group(FULL, 2), hash_block_size=2, policies=policies)
        new = request("a", range(23), hash_block_size=2)
        assert step(kv, new, 23)
        assert len(cached_ids(kv, 1)) == kept


def test_mamba_is_thinned_out_from_0_24_on() -> None:
    for policies, kept in ((VLLM_0_23, 4), (VLLM_0_24, 1), (VLLM_0_32, 1), (Policies(), 2)):
        kv = manager(Group(FULL, 4), Group(MAMBA, 4), retention_interval=0, policies=policies)
        new = request("a", range(16))
        while new.num_computed_tokens < 16:
            assert step(kv, new, 4)
        assert len(cached_ids(kv, 1)) == kept


@pytest.mark.parametrize("use_eagle", [False, True])
@pytest.mark.parametrize(
    "group",
    [FINE, Group(SLIDING, 2, window=9), Group(CHUNKED, 2, chunk=6), Group(MAMBA, 2)],
    ids=str,
)
def test_dense_retention_registers_the_union_of_required_runs(
    group: Group, use_eagle: bool
) -> None:
    groups = share_eagle((Group(FULL, 8), group), use_eagle)
    align = alignment(groups)
    registration = Registration(groups, align, None, Policies())
    new = request("a", range(8), hash_block_size=2)
    shape = geometry(groups[1], align)
    reachable = {block for boundary in range(4, 60, 4) for block in required_run(shape, boundary)}
    mask = registration.mask(groups[1], new.registered)
    assert {block for block, kept in enumerate(mask(0, 50)) if kept} == {
        block for block in reachable if block < 50
    }
    assert mask(7, 31) == mask(0, 50)[7:31]


def test_nothing_is_registered_past_the_lookahead_block() -> None:
    groups = share_eagle(GROUPS, use_eagle=True)
    registration = Registration(groups, 8, None, Policies())
    full, fine = groups
    assert [registration.num_tokens(fine, count) for count in (7, 8, 9, 10, 15, 16)] == [
        0, 8, 9, 10, 10, 16,
    ]  # fmt: skip
    assert registration.num_tokens(full, 15) == 15
    assert registration.num_tokens(replace(full, eagle=False), 15) == 8


@pytest.mark.parametrize("use_eagle", [False, True])
@pytest.mark.parametrize("interval", [0, 8, 24])
@pytest.mark.parametrize("group", [FINE, Group(SLIDING, 2, window=30), Group(MAMBA, 2)], ids=str)
def test_sparse_retention_registers_the_retained_mask(
    group: Group, interval: int, use_eagle: bool
) -> None:
    groups = share_eagle((Group(FULL, 8), group), use_eagle)
    registration = Registration(groups, 8, interval, VLLM_0_24)
    new = request("a", range(75), hash_block_size=2)
    shape = geometry(groups[1], 8)
    mask = registration.mask(groups[1], new.registered)
    kept = [bool(in_retained_mask(shape, b, [36], interval // 2 or None)) for b in range(50)]
    assert mask(0, 50) == kept
    assert [*mask(0, 13), *mask(13, 31)] == kept[:31]

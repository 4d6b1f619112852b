"""What the producer registers: the mask, sparse retention, junctions."""

from dataclasses import replace

import pytest

from hitproof.reference.registration import Registration
from hitproof.reference.tests.building import CHUNKED, FULL, MAMBA, SLIDING
from hitproof.spec.groups import Group, alignment, geometry, share_eagle
from hitproof.spec.hits import required_run
from hitproof.spec.retention import in_retained_mask

FINE = Group(SLIDING, 2, window=4)
GROUPS = (Group(FULL, 8), FINE)


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
    registration = Registration(groups, align, None)
    shape = geometry(groups[1], align)
    reachable = {block for boundary in range(4, 60, 4) for block in required_run(shape, boundary)}
    mask = registration.mask(groups[1], 8, 0, 0)
    assert {block for block, kept in enumerate(mask(0, 50)) if kept} == {
        block for block in reachable if block < 50
    }
    assert mask(7, 31) == mask(0, 50)[7:31]


def test_nothing_is_registered_past_the_lookahead_block() -> None:
    groups = share_eagle(GROUPS, use_eagle=True)
    registration = Registration(groups, 8, None)
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
    registration = Registration(groups, 8, interval)
    shape = geometry(groups[1], 8)
    mask = registration.mask(groups[1], 75, 0, 0)
    kept = [
        bool(in_retained_mask(shape, b, [32 if use_eagle else 36], interval // 2 or None))
        for b in range(50)
    ]
    assert mask(0, 50) == kept
    assert [*mask(0, 13), *mask(13, 31)] == kept[:31]

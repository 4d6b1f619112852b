"""Several groups over one pool: the common hit, EAGLE, and allocation in two phases."""

import itertools

import pytest

from hitproof.reference.tests.building import (
    FULL,
    MAMBA,
    SLIDING,
    finish,
    hit,
    manager,
    num_held,
    request,
    step,
)
from hitproof.spec.groups import ConfigurationError, Group, alignment

WINDOW = Group(SLIDING, 4, window=6)
KINDS = (Group(FULL, 4), WINDOW, Group(SLIDING, 2, window=4), Group(MAMBA, 8), Group(FULL, 8))
COMBINATIONS = [
    groups for count in (2, 3) for groups in itertools.combinations_with_replacement(KINDS, count)
]


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
    assert num_held(kv) == 0


def test_an_interval_that_misses_boundaries_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be a multiple of the alignment"):
        manager(Group(FULL, 4), WINDOW, retention_interval=6)


def test_caching_takes_a_group_that_caches() -> None:
    with pytest.raises(ConfigurationError, match="at least one group"):
        manager(Group(FULL, 4, prefix_cacheable=False))

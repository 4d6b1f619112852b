"""Fine-grained hits, against what each token after the hit reads and which entry backs it."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations, product

from hitproof.spec.groups import Group
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.fine import (
    FineTail,
    HitGranularity,
    at_hash_units,
    block_of,
    hit_alignment,
    is_fine_grained,
    is_held,
    longest_fine_hit,
    tail_boundary,
    valid_fine_hit,
    witness_entries,
    witness_unit,
)
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.tests.token_level import CHUNKED, FULL, MAMBA, SLIDING, serves_finely

UNITS = 3
"""Hash units in the longest request tried."""

LAYOUTS: tuple[tuple[tuple[Group, ...], int], ...] = (
    ((Group(FULL, 1), Group(MAMBA, 2)), 1),
    ((Group(FULL, 2), Group(MAMBA, 2)), 1),
    ((Group(FULL, 2, eagle=True), Group(MAMBA, 2)), 1),
    ((Group(FULL, 3, eagle=True), Group(MAMBA, 2, eagle=True)), 1),
    ((Group(FULL, 4), Group(MAMBA, 4)), 2),
    ((Group(FULL, 4, eagle=True), Group(MAMBA, 6)), 2),
    ((Group(FULL, 6), Group(MAMBA, 4)), 2),
    ((Group(SLIDING, 2, 4), Group(MAMBA, 4)), 2),
    ((Group(SLIDING, 1, 3, eagle=True), Group(MAMBA, 4)), 1),
)


def subsets(size: int) -> list[set[int]]:
    return [set(s) for n in range(size + 1) for s in combinations(range(size), n)]


def entered(cached: Sequence[set[int]], index: int, unit: int) -> bool:
    return unit in cached[index]


def test_a_fine_grained_hit_is_one_that_entries_vouch_for() -> None:
    for groups, unit in LAYOUTS:
        entries_vouch_for_hits(groups, unit)


def entries_vouch_for_hits(groups: tuple[Group, ...], unit: int) -> None:
    far = UNITS * unit
    assert is_fine_grained(groups, unit)
    for cached in product(subsets(UNITS), repeat=2):
        prefixes = [{(entry + 1) * unit for entry in held} for held in cached]
        for cap, peek in ((far, far), (far - 1, far - 1), (far - 2, far)):
            found = partial(entered, cached)
            served = [
                length
                for length in range(far + 2)
                if serves_finely(groups, unit, length, cap, peek, prefixes)
            ]
            assert served == [
                length
                for length in range(far + 2)
                if valid_fine_hit(groups, unit, length, cap, peek, found)
            ]
            assert longest_fine_hit(groups, unit, cap, peek, found) == max(served)


def test_witness_entries_are_those_that_suffice_alone() -> None:
    for kind, units, unit, reach in product((FULL, MAMBA), (1, 2, 3), range(7), range(16)):
        found = {
            entry
            for entry in range(12)
            if is_held(kind, unit, units, reach // 2, {entry}.__contains__)
        }
        assert set(witness_entries(Group(kind, 2 * units), 2, unit, reach)) == found


def test_where_only_whole_blocks_are_entered_hits_are_the_aligned_ones() -> None:
    for groups, unit in LAYOUTS[:7]:
        hits_are_the_aligned_ones(groups, unit)


def hits_are_the_aligned_ones(groups: tuple[Group, ...], unit: int) -> None:
    """Fine-grained lookup loses none of them, and finds others only on edges of Mamba blocks."""
    align, far = hit_alignment(groups, unit, HitGranularity.ALIGNED), 12 * unit
    sizes = [group.block_size // unit for group in groups]
    for blocks in product(subsets(3), repeat=2):
        cached = [
            {block * size + size - 1 for block in held}
            for held, size in zip(blocks, sizes, strict=True)
        ]

        def in_blocks(index: int, block: int) -> bool:
            return block in blocks[index]  # noqa: B023

        aligned = longest_valid_hit(groups, align, far, far, in_blocks)
        fine = longest_fine_hit(groups, unit, far, far, partial(entered, cached))
        assert fine >= aligned
        assert fine % groups[1].block_size == 0
        if fine % align == 0:
            assert fine == aligned


def test_units_and_blocks() -> None:
    for units, unit in product(range(1, 5), range(12)):
        block = block_of(unit, units)
        assert unit in range(block * units, (block + 1) * units)
    for units, block in product(range(1, 5), range(4)):
        held = range(block * units, (block + 1) * units)
        assert witness_unit(FULL, block, units) == held[0]
        assert witness_unit(MAMBA, block, units) == held[-1]


def test_a_group_seen_in_hash_units_is_the_same_but_for_its_blocks() -> None:
    group = Group(SLIDING, 4, 7, eagle=True)
    assert at_hash_units(group, 2) == Group(SLIDING, 2, 7, eagle=True)


def test_where_hits_may_end_inside_a_block() -> None:
    full, states, opted_out = Group(FULL, 4), Group(MAMBA, 8), Group(SLIDING, 3, 3)
    ring = Group(SLIDING, 3, 3, prefix_cacheable=False)
    assert is_fine_grained((full, states), 2)
    assert is_fine_grained((full, states, ring), 2)
    assert is_fine_grained((Group(SLIDING, 2, 9), states), 2)
    assert not is_fine_grained((full, states), 8)
    assert not is_fine_grained((full,), 2)
    assert not is_fine_grained((full, states, Group(SLIDING, 4, 9)), 2)
    assert not is_fine_grained((full, states, Group(CHUNKED, 4, chunk=8)), 2)
    assert not is_fine_grained((full, states, opted_out), 1)
    assert not is_fine_grained((full, Group(MAMBA, 8, prefix_cacheable=False)), 2)


def test_hits_end_on_hash_blocks_or_on_block_edges() -> None:
    groups = (Group(FULL, 4), Group(MAMBA, 6), Group(SLIDING, 5, 5, prefix_cacheable=False))
    assert hit_alignment(groups, 2, HitGranularity.FINE) == 2
    assert hit_alignment(groups, 2, HitGranularity.ALIGNED) == 12
    assert hit_alignment(groups[:1], 2, HitGranularity.FINE) == 4


def test_the_end_of_a_prompt_is_kept_for_what_hits_when_all_of_it_is_there() -> None:
    for groups, unit in LAYOUTS:
        lookahead = unit if any(g.eagle and g.kind is not MAMBA for g in groups) else 0
        for prompt, policy in product(range(1, 4 * unit + 2), list(LookaheadHorizon)[1:]):
            entries = partial(entered, [set(range(prompt // unit))] * 2)
            peek = horizon(policy, prompt)
            resend = longest_fine_hit(groups, unit, prompt - 1, peek, entries)
            extension = longest_fine_hit(groups, unit, prompt + unit, prompt + unit, entries)
            kept = {
                tail: tail_boundary(tail, policy, prompt, lookahead, unit)
                for tail in (FineTail.RESEND, FineTail.EXTENSION)
            }
            assert kept == {FineTail.RESEND: resend, FineTail.EXTENSION: extension}
            # They differ on a hash block's edge only, or where the lookup may not peek.
            if prompt % unit and policy is LookaheadHorizon.HASHED:
                assert resend == extension

"""The reference's fine-grained lookup returns what the spec says, with blocks that hold it."""

from collections.abc import Sequence
from itertools import combinations

from hitproof.reference.fine import find_longest_fine_hit
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.fine import FINE_KINDS, at_hash_units, is_held

UNITS = 6


class Pool:
    """A pool whose blocks were entered under some prefixes."""

    null_block = -1

    def __init__(self, entries: frozenset[int]) -> None:
        self._entries = entries

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[int] | None:
        entry = int(block_hash)
        return [entry for _ in kv_cache_group_ids] if entry in self._entries else None


def holds(kind: GroupKind, units: int, hit: int, table: Sequence[int]) -> bool:
    """Whether each block was entered where that vouches for its part of a hit of ``hit`` units."""
    if kind is GroupKind.MAMBA:
        return list(table) == [-1] * (len(table) - 1) + [hit - 1][: len(table)]
    return all(
        min((block + 1) * units, hit) - 1 <= entry < (block + 1) * units
        for block, entry in enumerate(table)
    )


def test_it_returns_the_longest_hit_that_entries_vouch_for() -> None:
    keys = [b"%d" % unit for unit in range(UNITS)]
    states = [frozenset(s) for n in range(UNITS + 1) for s in combinations(range(UNITS), n)]
    for kind in FINE_KINDS:
        for units in (1, 2, 3):
            for eagle in (False, True):
                group = Group(kind, 2 * units, eagle=eagle)
                for limit in range(UNITS + 1):
                    for entries in states:

                        def held(
                            _: int,
                            unit: int,
                            group: Group = group,
                            limit: int = limit,
                            entries: frozenset[int] = entries,
                            units: int = units,
                        ) -> bool:
                            held = is_held(group.kind, unit, units, limit, entries.__contains__)
                            return bool(held)

                        tables, hit = find_longest_fine_hit(
                            keys, limit, (0, 1), Pool(entries), group, 2
                        )
                        tokens = 2 * limit
                        in_units = [at_hash_units(group, 2)]
                        assert hit == longest_valid_hit(in_units, 2, tokens, tokens, held)
                        assert len(tables) == 2
                        for table in tables:
                            assert len(table) == -(-hit // group.block_size)
                            assert holds(kind, units, hit // 2, table)

"""Lookup in one group for hits that may end on any hash unit, also inside its blocks."""

from collections.abc import Sequence
from typing import Any

from hitproof.reference.lookup import Lookup, Pool
from hitproof.reference.scan import Scan
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.releases.fine import at_hash_units, block_of


class _Units:
    """A pool as `Lookup` sees it when the blocks are hash units.

    A unit of full attention is held by a block that was registered at or past it.
    """

    def __init__(self, pool: Pool, keys: Sequence[bytes], limit: int, units: int) -> None:
        self.null_block = pool.null_block
        self._pool = pool
        self._keys = keys
        self._limit = limit
        self._units = units
        self._number = {key: unit for unit, key in enumerate(keys)}

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The block of each group that holds the unit which ends with that hash."""
        unit = self._number[block_hash]
        end = min((block_of(unit, self._units) + 1) * self._units, self._limit)
        for entry in range(unit, end):
            found = self._pool.get_cached_block(self._keys[entry], kv_cache_group_ids)
            if found is not None:
                return found
        return None


def find_longest_fine_hit(
    block_hashes: Sequence[bytes],
    max_units: int,
    kv_cache_group_ids: Sequence[int],
    block_pool: Pool,
    group: Group,
    hash_block_size: int,
    scan: Scan | None = None,
) -> tuple[list[list[Any]], int]:
    """The block tables, one per group id, and the length in tokens of the longest such hit.

    ``block_hashes`` has the hash of each hash unit, and the hit stays within ``max_units`` of
    them. The last block of a table may be used in part only. ``group`` is of one of
    `spec.releases.fine.FINE_KINDS`. vLLM: ``find_longest_cache_hit`` with ``alignment_tokens``
    smaller than the block size.
    """
    units = group.block_size // hash_block_size
    asked_at = 1 if group.kind is GroupKind.MAMBA else units
    shape = geometry(at_hash_units(group, hash_block_size), hash_block_size)
    pool = _Units(block_pool, block_hashes, max_units, asked_at)
    tables = Lookup(shape, scan)(block_hashes, max_units, kv_cache_group_ids, pool)
    hit = len(tables[0])
    # Of each block the last unit in the hit decides: Mamba asks about no other.
    ends = [min(end, hit) for end in range(units, hit + units, units)]
    return [[table[end - 1] for end in ends] for table in tables], hit * hash_block_size

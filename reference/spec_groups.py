"""Lookup over all groups of a model; equal groups are looked up together."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import NamedTuple

from hitproof.reference.lookup import Lookup, Pool
from hitproof.reference.pool import KVCacheBlock
from hitproof.reference.request import block_hashes_of_size
from hitproof.spec.connector import is_fully_loaded, may_diverge
from hitproof.spec.groups import Group, GroupKind, geometry


def find_longest_common_hit(lookups: Sequence[Callable[[int], int]], cap: int) -> int:
    """The longest hit of at most ``cap`` that is valid for every group; all in tokens.

    ``lookups`` has one function per group, and at least one: it returns the group's longest valid
    hit of at most the length that it is given. Which hits are valid for a group must not depend on
    that length, so the lookahead horizon stays fixed while the candidate shrinks. vLLM:
    ``HybridKVCacheCoordinator.find_longest_cache_hit``.
    """
    if not lookups:
        raise ValueError("a common hit needs at least one group")
    candidate, agreed = cap, 0
    for lookup in cycle(lookups):
        found = lookup(candidate)
        # A lookup that is given its own hit returns it unchanged.
        agreed = agreed + 1 if found == candidate else 1
        candidate = found
        # No hit at all is valid for every group.
        if agreed == len(lookups) or not found:
            break
    return candidate


class SpecGroup:
    """A set of equal groups, which hit and miss together. vLLM: ``SpecGroup``.

    Attributes:
        group: each of them.
        group_ids: their indices among all groups.
        block_size: tokens in a block.
        geometry: the group in blocks.
        lookup: finds their hits.
    """

    def __init__(self, group: Group, alignment: int, hash_block_size: int) -> None:
        self.group = group
        self.block_size = group.block_size
        self.group_ids: list[int] = []
        self._hash_block_size = hash_block_size
        self.geometry = geometry(group, alignment)
        self._lookahead = self.geometry.lookahead
        self.lookup = Lookup(self.geometry)

    def tables(
        self, block_hashes: Sequence[bytes], candidate: int, horizon: int, block_pool: Pool
    ) -> list[list[KVCacheBlock]]:
        """The block tables of the longest hit of at most ``candidate`` tokens.

        ``horizon`` is the lookahead horizon in tokens.
        """
        size = self.block_size
        block_hashes = block_hashes_of_size(block_hashes, self._hash_block_size, size)
        limit = candidate // size + self._lookahead
        if limit * size > horizon:
            limit = horizon // size
        limit = min(limit, len(block_hashes))  # those of the last blocks may not be known yet
        return self.lookup(block_hashes, limit, self.group_ids, block_pool)


class Hit(NamedTuple):
    """What a lookup found; lengths in tokens.

    Attributes:
        blocks: one table per group; empty for groups that opt out of prefix caching.
        length: the longest valid hit.
        junction: the longest hit that one group alone could serve, if longer than ``length``,
            else 0. Another request shared the prefix up to there.
    """

    blocks: tuple[Sequence[KVCacheBlock], ...]
    length: int
    junction: int


def spec_groups(groups: Sequence[Group], alignment: int, hash_block_size: int) -> list[SpecGroup]:
    """The groups that take part in prefix caching, equal ones together, full attention first.

    Full attention answers every shorter candidate from one lookup, so it goes first; the order
    does not change the result. ``groups`` are as `share_eagle` gives them.
    """
    found: dict[Group, SpecGroup] = {}
    for group_id, group in enumerate(groups):
        if group.prefix_cacheable:
            if group not in found:
                found[group] = SpecGroup(group, alignment, hash_block_size)
            found[group].group_ids.append(group_id)
    return sorted(
        found.values(), key=lambda shared: shared.group.kind is not GroupKind.FULL_ATTENTION
    )


def find_hit(
    shared: Sequence[SpecGroup],
    num_groups: int,
    block_hashes: Sequence[bytes],
    max_cache_hit_length: int,
    horizon: int,
    block_pool: Pool,
) -> Hit:
    """The longest hit of at most ``max_cache_hit_length`` that is valid for every group.

    ``horizon`` is the lookahead horizon; all lengths in tokens. vLLM:
    ``HybridKVCacheCoordinator.find_longest_cache_hit``.
    """
    lookups = [_Lookup(group, block_hashes, horizon, block_pool) for group in shared]
    length = find_longest_common_hit(lookups, max_cache_hit_length)
    longest = max([lookup.longest for lookup in lookups])
    blocks: list[Sequence[KVCacheBlock]] = [()] * num_groups
    for group, lookup in zip(shared, lookups, strict=True) if length else ():
        for group_id, table in zip(group.group_ids, lookup.tables, strict=True):
            blocks[group_id] = table
    return Hit(tuple(blocks), length, longest if longest > length else 0)


class _Lookup:
    """The lookups of one spec group while the candidate shrinks; keeps the last tables."""

    def __init__(
        self, group: SpecGroup, block_hashes: Sequence[bytes], horizon: int, block_pool: Pool
    ) -> None:
        self._group = group
        self._hashes = block_hashes
        self._horizon = horizon
        self._pool = block_pool
        self.tables: list[list[KVCacheBlock]] = []
        self.longest = 0

    def __call__(self, candidate: int) -> int:
        size = self._group.block_size
        if self.tables and self._group.group.kind is GroupKind.FULL_ATTENTION:
            # A hit in full attention is also a hit up to every earlier boundary.
            blocks = candidate // size
            self.tables = [table[:blocks] for table in self.tables]
        else:
            self.tables = self._group.tables(self._hashes, candidate, self._horizon, self._pool)
        length = len(self.tables[0]) * size
        if length > self.longest:
            self.longest = length
        return length


def find_local_prefix(
    shared: Sequence[SpecGroup],
    num_groups: int,
    block_hashes: Sequence[bytes],
    max_cache_hit_length: int,
    horizon: int,
    block_pool: Pool,
) -> tuple[Hit, bool]:
    """The longest local prefix, and whether it is flagged: a state at its end is not cached.

    Arguments as in `find_hit`. vLLM: ``KVCacheManager.get_computed_blocks_for_connector``.
    """
    others: Sequence[SpecGroup] = shared
    states: Sequence[SpecGroup] = ()
    if may_diverge([each.group for each in shared]):
        states = [each for each in shared if is_fully_loaded(each.group.kind)]
        others = [each for each in shared if not is_fully_loaded(each.group.kind)]
    hit = find_hit(others, num_groups, block_hashes, max_cache_hit_length, horizon, block_pool)
    blocks, diverged = [*hit.blocks], False
    for group in states:
        tables = group.tables(block_hashes, hit.length, horizon, block_pool)
        diverged |= len(tables[0]) * group.block_size < hit.length
        for group_id, table in zip(group.group_ids, tables, strict=True):
            blocks[group_id] = table
    return Hit(tuple(blocks), hit.length, hit.junction), diverged

"""Lookup over all groups of a model: groups that are equal are looked up together."""

from collections.abc import Sequence
from typing import NamedTuple

from reference.free_queue import KVCacheBlock
from reference.hashing import block_hashes_of_size
from reference.joint import find_longest_common_hit
from reference.lookup import find_longest_cache_hit
from reference.pool import BlockPool
from spec.groups import BlockGeometry, Group, GroupKind, geometry
from spec.terms import INTEGERS


class SpecGroup(NamedTuple):
    """Groups that differ in nothing; they hit and miss together. vLLM: ``SpecGroup``."""

    group: Group
    group_ids: list[int]
    geometry: BlockGeometry


class Hit(NamedTuple):
    """What a lookup found; lengths in tokens.

    Attributes:
        blocks: one table a group; empty for groups that opt out of prefix caching.
        length: the longest valid hit.
        junction: how far some group alone could serve, when that is further than ``length``,
            else 0. That far another request shared the prefix.
    """

    blocks: tuple[list[KVCacheBlock], ...]
    length: int
    junction: int


def spec_groups(groups: Sequence[Group], alignment: int) -> list[SpecGroup]:
    """The groups that do prefix caching, equal ones together, full attention first.

    Full attention answers every shorter candidate from one lookup, so it goes first; the order
    does not change what is found. ``groups`` are as `share_eagle` gives them.
    """
    found: dict[Group, SpecGroup] = {}
    for group_id, group in enumerate(groups):
        if group.prefix_cacheable:
            new = SpecGroup(group, [], geometry(group, alignment))
            found.setdefault(group, new).group_ids.append(group_id)
    return sorted(
        found.values(), key=lambda shared: shared.group.kind is not GroupKind.FULL_ATTENTION
    )


def find_hit(
    shared: Sequence[SpecGroup],
    num_groups: int,
    block_hashes: Sequence[bytes],
    hash_block_size: int,
    max_cache_hit_length: int,
    horizon: int,
    block_pool: BlockPool,
) -> Hit:
    """The longest hit of at most ``max_cache_hit_length`` that is valid for every group.

    ``horizon`` is the lookahead horizon; all lengths in tokens. vLLM:
    ``HybridKVCacheCoordinator.find_longest_cache_hit``.
    """
    lookups = [
        _Lookup(group, block_hashes, hash_block_size, horizon, block_pool) for group in shared
    ]
    length = find_longest_common_hit(lookups, max_cache_hit_length)
    longest = length
    blocks: list[list[KVCacheBlock]] = [[] for _ in range(num_groups)]
    for lookup in lookups:
        if lookup.longest > longest:
            longest = lookup.longest
        for group_id, table in zip(lookup.shared.group_ids, lookup.tables, strict=True):
            blocks[group_id] = table
    return Hit(tuple(blocks), length, longest if longest > length else 0)


class _Lookup:
    """The lookups of one spec group while the candidate shrinks; keeps the last one's tables."""

    def __init__(
        self,
        shared: SpecGroup,
        block_hashes: Sequence[bytes],
        hash_block_size: int,
        horizon: int,
        block_pool: BlockPool,
    ) -> None:
        self._hashes = block_hashes_of_size(block_hashes, hash_block_size, shared.group.block_size)
        self._horizon = horizon
        self._pool = block_pool
        self.shared = shared
        self.tables: list[list[KVCacheBlock]] = []
        self.longest = 0

    def __call__(self, candidate: int) -> int:
        group, group_ids, shape = self.shared
        size = group.block_size
        blocks = candidate // size
        if self.tables and shape.kind is GroupKind.FULL_ATTENTION:
            # What is a hit in full attention is one up to every earlier boundary, too.
            self.tables = [table[:blocks] for table in self.tables]
        else:
            limit = INTEGERS.minimum(blocks + shape.lookahead, self._horizon // size)
            self.tables = find_longest_cache_hit(self._hashes, limit, group_ids, self._pool, shape)
        length = len(self.tables[0]) * size
        if length > self.longest:
            self.longest = length
        return length

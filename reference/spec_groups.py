"""Lookup over all groups of a model: groups that are equal are looked up together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reference.free_queue import KVCacheBlock
from reference.hashing import block_hashes_of_size
from reference.joint import find_longest_common_hit
from reference.lookup import find_longest_cache_hit
from reference.pool import BlockPool
from spec.groups import BlockGeometry, Group, GroupKind, geometry


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
        _Lookup(
            group,
            block_hashes_of_size(block_hashes, hash_block_size, group.group.block_size),
            horizon // group.group.block_size,
            block_pool,
        )
        for group in shared
    ]
    length = find_longest_common_hit(lookups, max_cache_hit_length)
    blocks: list[list[KVCacheBlock]] = [[] for _ in range(num_groups)]
    for lookup in lookups:
        for group_id, table in zip(lookup.shared.group_ids, lookup.tables, strict=True):
            blocks[group_id] = table
    longest = max(lookup.longest for lookup in lookups)
    return Hit(tuple(blocks), length, longest if longest > length else 0)


@dataclass
class _Lookup:
    """The lookups of one spec group while the candidate shrinks; keeps the last one's tables."""

    shared: SpecGroup
    block_hashes: Sequence[bytes]
    horizon_blocks: int
    block_pool: BlockPool
    tables: list[list[KVCacheBlock]] = field(default_factory=list)
    longest: int = 0

    def __call__(self, candidate: int) -> int:
        group, shape = self.shared.group, self.shared.geometry
        blocks = candidate // group.block_size
        if self.tables and group.kind is GroupKind.FULL_ATTENTION:
            # What is a hit in full attention is one up to every earlier boundary, too.
            self.tables = [table[:blocks] for table in self.tables]
        else:
            self.tables = find_longest_cache_hit(
                self.block_hashes,
                min(blocks + shape.lookahead, self.horizon_blocks),
                self.shared.group_ids,
                self.block_pool,
                shape,
            )
        length = len(self.tables[0]) * group.block_size
        self.longest = max(self.longest, length)
        return length

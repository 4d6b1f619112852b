"""The lookup for a KV connector that loads Mamba states, as `spec.connector` specifies it."""

from collections.abc import Sequence

from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.pool import BlockPool
from hitproof.reference.spec_groups import Hit, SpecGroup, find_hit
from hitproof.spec.connector import is_fully_loaded, may_diverge


def find_local_prefix(
    shared: Sequence[SpecGroup],
    num_groups: int,
    block_hashes: Sequence[bytes],
    max_cache_hit_length: int,
    horizon: int,
    block_pool: BlockPool,
) -> tuple[Hit, bool]:
    """The longest local prefix, and whether it is flagged: a state at its end is not cached.

    Arguments as in `reference.spec_groups.find_hit`. vLLM:
    ``KVCacheManager.get_computed_blocks_for_connector``.
    """
    if not may_diverge([each.group for each in shared]):
        return (
            find_hit(shared, num_groups, block_hashes, max_cache_hit_length, horizon, block_pool),
            False,
        )
    states = [each for each in shared if is_fully_loaded(each.group.kind)]
    others = [each for each in shared if not is_fully_loaded(each.group.kind)]
    hit = find_hit(others, num_groups, block_hashes, max_cache_hit_length, horizon, block_pool)
    blocks: list[Sequence[KVCacheBlock]] = list(hit.blocks)
    diverged = False
    for group in states:
        tables = group.tables(block_hashes, hit.length, horizon, block_pool)
        diverged |= len(tables[0]) * group.block_size < hit.length
        for group_id, table in zip(group.group_ids, tables, strict=True):
            blocks[group_id] = table
    return Hit(tuple(blocks), hit.length, 0), diverged

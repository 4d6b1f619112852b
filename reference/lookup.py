"""Lookup of one group: the longest valid hit and its block table.

Each block is asked about at most once, and the lookup stops as soon as the answer is fixed.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from reference.scan import Scan, SkippingScan, State, first_state, hit_found, is_done
from spec.groups import BlockGeometry
from spec.hits import run_end, run_start

_SCAN = SkippingScan()
# Steps of a scan on ints are pure, and the same lengths are looked up again and again.
_first_state = lru_cache(maxsize=1 << 16)(first_state)
_after_miss = lru_cache(maxsize=1 << 16)(_SCAN.after_miss)


class Pool(Protocol):
    """The part of a block pool that lookup uses. vLLM: ``BlockPool``."""

    null_block: Any

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""


def find_longest_cache_hit(
    block_hashes: Sequence[bytes],
    max_blocks: int,
    kv_cache_group_ids: Sequence[int],
    block_pool: Pool,
    group: BlockGeometry,
    scan: Scan | None = None,
) -> list[list[Any]]:
    """The block tables, one a group id, of the longest valid hit within ``max_blocks`` blocks.

    The hit length is the tables' length times the block size. Blocks outside the required run
    are null. ``scan`` decides which blocks are asked about, not what is returned; a
    `reference.scan.SkippingScan` by default. vLLM: ``find_longest_cache_hit`` of the manager of
    the group's kind.
    """
    after_miss = _after_miss if scan is None else scan.after_miss
    scan = scan or _SCAN
    state = _first_state(group, max_blocks)
    held: list[Sequence[Any]] = []  # the end of the candidate's run, as far as it is known
    while not is_done(state):
        first, step = scan.asks(state), scan.step
        found: list[Sequence[Any]] = []
        for block in range(first, first + step * (state.right - state.left), step):
            blocks = block_pool.get_cached_block(block_hashes[block], kv_cache_group_ids)
            if blocks is None:
                break
            found.append(blocks)
        else:
            held = found[::step] + held
            break
        if found:
            state = scan.after_hit(state, len(found))
        state = after_miss(group, state)
        held = _end_of_run(group, state, found[::step], min(first, block - step)) if found else []
    hit = hit_found(state)
    if hit == 0:
        return [[] for _ in kv_cache_group_ids]
    start = max(run_start(group, hit), 0)
    nulls = [block_pool.null_block] * start
    members = range(len(kv_cache_group_ids))
    return [nulls + [blocks[member] for blocks in held[: hit - start]] for member in members]


def _end_of_run(
    group: BlockGeometry, state: State, found: list[Sequence[Any]], first: int
) -> list[Sequence[Any]]:
    """Of the cached blocks from ``first`` on, those of the candidate's run."""
    start, end = max(state.left, state.right), run_end(group, state.boundary)
    return found[max(start - first, 0) : max(end - first, 0)]

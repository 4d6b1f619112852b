"""Lookup in one group: the longest valid hit and its block table.

Each block is asked about at most once, and the lookup stops as soon as the answer is fixed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from hitproof.reference.scan import Scan, SkippingScan, State, first_state, hit_found, is_done
from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import run_end, run_start


class Pool(Protocol):
    """The part of a block pool that lookup uses. vLLM: ``BlockPool``."""

    null_block: Any

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The cached block of each group under ``block_hash``, or None if any lacks it."""


class _Step:
    """A state of a scan, and what follows from it.

    Attributes:
        state: the state of the scan.
        asks: the blocks to ask about, in order, until one is missing; none when done.
        hit: the hit, in blocks, if none of them is missing.
        start: the first block of that hit's run.
        kept: of the blocks that the previous step found, in order, those in that run.
        after: the steps that follow when a block is missing, by how many were found before it.
    """

    __slots__ = ("after", "asks", "hit", "kept", "start", "state")

    def __init__(self, group: BlockGeometry, scan: Scan, state: State, kept: slice) -> None:
        self.state = state
        self.kept = kept
        self.asks = range(0)
        if not is_done(state):
            first = scan.asks(state)
            self.asks = range(first, first + scan.step * (state.right - state.left), scan.step)
        self.hit = hit_found(state)
        self.start = max(run_start(group, self.hit), 0) if self.hit else 0
        self.after: dict[int, _Step] = {}


class Lookup:
    """The lookups of one group.

    ``scan`` decides which blocks are asked about, not what is returned; the default is a
    `reference.scan.SkippingScan`. Its steps are pure and recur from lookup to lookup, so they are
    memoized in ``steps``, up to `MOST_STEPS` of them.
    """

    MOST_STEPS: int = 1 << 16

    def __init__(self, group: BlockGeometry, scan: Scan | None = None) -> None:
        self._group = group
        self._scan = SkippingScan() if scan is None else scan
        self._first: dict[int, _Step] = {}
        self.steps: dict[tuple[State, int, int], _Step] = {}

    def __call__(
        self,
        block_hashes: Sequence[bytes],
        max_blocks: int,
        kv_cache_group_ids: Sequence[int],
        block_pool: Pool,
    ) -> list[list[Any]]:
        """The block tables, one per group id, of the longest hit within ``max_blocks`` blocks.

        The hit length is the tables' length times the block size. Blocks outside the required
        run are null. vLLM: ``find_longest_cache_hit`` of the manager of the group's kind.
        """
        step = self._first.get(max_blocks)
        if step is None:
            step = self._first_step(max_blocks)
        get_cached_block, backwards = block_pool.get_cached_block, self._scan.step < 0
        held: list[Sequence[Any]] = []  # the end of the candidate's run, as far as it is known
        while step.asks:
            found: list[Sequence[Any]] = []
            for block in step.asks:
                blocks = get_cached_block(block_hashes[block], kv_cache_group_ids)
                if blocks is None:
                    break
                found.append(blocks)
            else:
                if backwards:
                    found.reverse()
                held = found + held if held else found
                break
            step = step.after.get(len(found)) or self._step_after(step, len(found))
            if backwards:
                found.reverse()
            held = found[step.kept] if found else found
        hit, start = step.hit, step.start
        if not hit:
            return [[] for _ in kv_cache_group_ids]
        tables = []
        for member in range(len(kv_cache_group_ids)):
            table = [block_pool.null_block] * hit
            table[start:] = [blocks[member] for blocks in held[: hit - start]]
            tables.append(table)
        return tables

    def _first_step(self, max_blocks: int) -> _Step:
        if len(self.steps) >= self.MOST_STEPS:
            self._first, self.steps = {}, {}
        step = self._step_at(first_state(self._group, max_blocks), 0)
        self._first[max_blocks] = step
        return step

    def _step_after(self, step: _Step, found: int) -> _Step:
        """The step after ``step``, one of whose blocks is missing after some that were found."""
        state, order = step.state, self._scan.step
        first = step.asks[0]
        found_from = min(first, first + order * (found - 1))
        if found:
            state = self._scan.after_hit(state, found)
        after = self._step_at(self._scan.after_miss(self._group, state), found_from)
        step.after[found] = after
        return after

    def _step_at(self, state: State, found_from: int) -> _Step:
        known, end = max(state.left, state.right), run_end(self._group, state.boundary)
        kept = max(known - found_from, 0), max(end - found_from, 0)
        step = self.steps.get((state, *kept))
        if step is None:
            step = _Step(self._group, self._scan, state, slice(*kept))
            self.steps[state, *kept] = step
        return step

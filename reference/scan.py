"""How a lookup scans: which block it asks about next, and what the answer implies.

A scan considers one candidate boundary at a time, longest first, until all of the candidate's
required run is known to be cached. A missing block rules out every boundary whose run contains it.
Runs of shorter hits neither start nor end later, so these are the candidates down to the first one
whose run ends at or before the block.

The steps are written over terms, like the spec: `proofs` shows that these very functions find the
longest valid hit, whatever is cached.
"""

from typing import NamedTuple, Protocol

from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import run_end, run_start
from hitproof.spec.terms import Formula, Term, max, min


class State(NamedTuple):
    """The state of a scan; all in blocks.

    Attributes:
        boundary: the candidate; no hit if it is not positive.
        left: the candidate's required run is cached up to here,
        right: and from here on. Blocks from ``left`` to ``right`` have not been asked about.
    """

    boundary: Term
    left: Term
    right: Term


class Scan(Protocol):
    """The order in which a scan asks about blocks.

    Attributes:
        step: 1 or -1, from one block that it asks about to the next, as long as all are cached.
    """

    step: int

    def asks(self, state: State) -> Term:
        """The block to ask about, one from ``left`` to ``right``."""

    def after_hit(self, state: State, count: Term = 1) -> State:
        """The next state when ``count`` blocks are cached, from that one on."""

    def after_miss(self, group: BlockGeometry, state: State) -> State:
        """The next state when it is not."""


def first_state(group: BlockGeometry, limit: Term) -> State:
    """The state to start from: the candidate is the longest hit whose run ends by ``limit``."""
    return _candidate(group, limit)


def is_done(state: State) -> Formula:
    """Whether there is nothing left to ask: the run is cached, or no hit is possible."""
    return (state.boundary <= 0) | (state.right <= state.left)


def hit_found(state: State) -> Term:
    """The hit, in blocks, when done."""
    return max(state.boundary, 0)


class PlainScan:
    """Scans from right to left: asks about up to n blocks of an empty cache of n."""

    step = -1

    def asks(self, state: State) -> Term:
        """The last block not asked about."""
        return state.right - 1

    def after_hit(self, state: State, count: Term = 1) -> State:
        """``count`` more blocks on the right are cached."""
        return State(state.boundary, state.left, state.right - count)

    def after_miss(self, group: BlockGeometry, state: State) -> State:
        """Blocks to the right of the missing block are of no use to shorter hits."""
        return _candidate(group, self.asks(state))


class SkippingScan:
    """Scans each run from left to right, so that a miss skips a whole run.

    Asks about at most one block per run of an empty cache: n / max(need, segment) of n blocks,
    rounded up, where need is the length of the run. No scan asks about any block twice.
    For full attention, whose runs all start at block 0, it goes from left to right once.
    """

    step = 1

    def asks(self, state: State) -> Term:
        """The first block not asked about."""
        return state.left

    def after_hit(self, state: State, count: Term = 1) -> State:
        """``count`` more blocks on the left are cached."""
        return State(state.boundary, state.left + count, state.right)

    def after_miss(self, group: BlockGeometry, state: State) -> State:
        """Blocks left of the missing one are cached from the start of the old run on."""
        cached_from = max(run_start(group, state.boundary), 0)
        boundary, left, right = _candidate(group, self.asks(state))
        return State(boundary, left, min(right, cached_from))


def _candidate(group: BlockGeometry, end: Term) -> State:
    """The longest hit whose required run ends by ``end``, with none of its run asked about."""
    boundary = (end - group.lookahead) // group.segment * group.segment
    start = max(run_start(group, boundary), 0)
    return State(boundary, start, run_end(group, boundary))

"""How a lookup scans: which block it asks about next, and what it makes of the answer.

A scan looks at one candidate boundary at a time, the longest first, until all of the candidate's
required run is known to be cached. A missing block rules out every boundary whose run has it; as
runs of shorter hits neither start nor end later, those are the candidates down to the first one
whose run ends at or before the block.

The steps are written over terms, as the spec is: `proofs` shows that these very functions lead
to the longest valid hit, whatever is cached.
"""

from typing import NamedTuple, Protocol

from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import run_end, run_start
from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


class State(NamedTuple):
    """Where a scan stands; all in blocks.

    Attributes:
        boundary: the candidate. It is no hit when not positive.
        left: the candidate's required run is cached up to here.
        right: and from here on. Blocks from ``left`` to ``right`` were never asked about.
    """

    boundary: Term
    left: Term
    right: Term


class Scan(Protocol):
    """The order in which a scan asks.

    Attributes:
        step: 1 or -1, from one block that it asks about to the next, as long as all are cached.
    """

    step: int

    def asks(self, state: State) -> Term:
        """The block to ask about, one from ``left`` to ``right``."""

    def after_hit(self, state: State, count: Term = 1) -> State:
        """The next state when ``count`` blocks are cached, from that one on."""

    def after_miss(
        self, group: BlockGeometry, state: State, arithmetic: Arithmetic = INTEGERS
    ) -> State:
        """The next state when it is not."""


def first_state(group: BlockGeometry, limit: Term, arithmetic: Arithmetic = INTEGERS) -> State:
    """The state to start from: the candidate is the longest hit whose run ends by ``limit``."""
    return _candidate(group, limit, arithmetic)


def is_done(state: State) -> Formula:
    """Whether nothing is left to ask: the run is cached, or no hit is left."""
    return (state.boundary <= 0) | (state.right <= state.left)


def hit_found(state: State, arithmetic: Arithmetic = INTEGERS) -> Term:
    """The hit, in blocks, when done."""
    return arithmetic.maximum(state.boundary, 0)


class PlainScan:
    """From right to left: asks about up to n blocks of an empty cache of n."""

    step = -1

    def asks(self, state: State) -> Term:
        """The last block not asked about."""
        return state.right - 1

    def after_hit(self, state: State, count: Term = 1) -> State:
        """So many blocks more on the right are cached."""
        return State(state.boundary, state.left, state.right - count)

    def after_miss(
        self, group: BlockGeometry, state: State, arithmetic: Arithmetic = INTEGERS
    ) -> State:
        """What lies right of the missing block is of no use to shorter hits."""
        return _candidate(group, self.asks(state), arithmetic)


class SkippingScan:
    """The start of the run first, so that a miss skips a whole run.

    Asks about at most one block in each run of an empty cache: n / max(need, segment) of n
    blocks, rounded up, where need is the length of the run. No scan asks about any block twice.
    For full attention, whose runs all start at block 0, it goes from left to right once.
    """

    step = 1

    def asks(self, state: State) -> Term:
        """The first block not asked about."""
        return state.left

    def after_hit(self, state: State, count: Term = 1) -> State:
        """So many blocks more on the left are cached."""
        return State(state.boundary, state.left + count, state.right)

    def after_miss(
        self, group: BlockGeometry, state: State, arithmetic: Arithmetic = INTEGERS
    ) -> State:
        """What lies left of the missing block is cached from the start of the old run on."""
        cached_from = arithmetic.maximum(run_start(group, state.boundary, arithmetic), 0)
        boundary, left, right = _candidate(group, self.asks(state), arithmetic)
        return State(boundary, left, arithmetic.minimum(right, cached_from))


def _candidate(group: BlockGeometry, end: Term, arithmetic: Arithmetic) -> State:
    """The longest hit whose required run ends by ``end``, with nothing known of its run."""
    boundary = arithmetic.multiple_at_most(end - group.lookahead, group.segment)
    start = arithmetic.maximum(run_start(group, boundary, arithmetic), 0)
    return State(boundary, start, run_end(group, boundary))

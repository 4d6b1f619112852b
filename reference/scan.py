"""How a lookup scans: which block it asks about next, and what the answer implies.

A scan considers one candidate boundary at a time, longest first, until all of the candidate's
required run is known to be cached. A missing block rules out every boundary whose run contains it.
Runs of shorter hits neither start nor end later, so these are the candidates down to the first one
whose run ends at or before the block. Each run is scanned from left to right, so that a miss skips
a whole run: it asks about at most one block per run of an empty cache, and about no block twice.

The steps are written over terms, like the spec: `proofs` shows that these very functions find the
longest valid hit, whatever is cached.
"""

from typing import NamedTuple

from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import run_end, run_start
from hitproof.spec.terms import Formula, Term, max, min


class State(NamedTuple):
    """The state of a scan; all in blocks.

    Attributes:
        boundary: the candidate; no hit if it is not positive.
        left: the candidate's required run is cached up to here; it asks about this block next,
        right: and from here on. Blocks from ``left`` to ``right`` have not been asked about.
    """

    boundary: Term
    left: Term
    right: Term


def first_state(group: BlockGeometry, limit: Term) -> State:
    """The state to start from: the candidate is the longest hit whose run ends by ``limit``."""
    return _candidate(group, limit)


def is_done(state: State) -> Formula:
    """Whether there is nothing left to ask: the run is cached, or no hit is possible."""
    return (state.boundary <= 0) | (state.right <= state.left)


def hit_found(state: State) -> Term:
    """The hit, in blocks, when done."""
    return max(state.boundary, 0)


def after_hit(state: State, count: Term = 1) -> State:
    """The next state when ``count`` blocks are cached, from the one that was asked about on."""
    return State(state.boundary, state.left + count, state.right)


def after_miss(group: BlockGeometry, state: State) -> State:
    """The next state when the block asked about is missing, the blocks left of it are cached."""
    cached_from = max(run_start(group, state.boundary), 0)
    boundary, left, right = _candidate(group, state.left)
    return State(boundary, left, min(right, cached_from))


def _candidate(group: BlockGeometry, end: Term) -> State:
    """The longest hit whose required run ends by ``end``, with none of its run asked about."""
    boundary = (end - group.lookahead) // group.segment * group.segment
    start = max(run_start(group, boundary), 0)
    return State(boundary, start, run_end(group, boundary))

"""Blocks that are unpinned: given back, but read on until the pool hands them out again.

They join the free queue at its end, so that they are handed out last, and the reader is told when
they are.
"""

from collections.abc import Sequence

from hitproof.conformance.checks.pool_faults import IN_USE, violation
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.subject.pools import Pool, UnpinningPool
from hitproof.spec.claims import Divergence

UNPIN = "unpin_blocks"


class Unpinned:
    """The unpinned blocks of a pool that have not been handed out since.

    Attributes:
        blocks: these blocks.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool if isinstance(pool, UnpinningPool) and pool.can_unpin else None
        self.blocks: set[int] = set()

    @property
    def is_possible(self) -> bool:
        """Whether the pool can unpin blocks."""
        return self._pool is not None

    def unpin(self, block: int) -> None:
        """Give a block back and read on."""
        assert self._pool is not None
        self._pool.unpin_blocks([block])
        self.blocks.add(block)

    def wrong(self, method: str, reused: Sequence[int]) -> list[Violation]:
        """Judge which blocks the pool reports after a method that reused ``reused``."""
        if self._pool is None:
            return []
        due, reported = self.blocks.intersection(reused), self._pool.take_reused()
        self.blocks -= due
        if sorted(due) == sorted(reported):
            return []
        defect = Defect.of(Code.REUSE_REPORTED_WRONG, method=method)
        spec = f"the reuse of {_listed(due)} is reported"
        actual = f"that of {_listed(reported)} is"
        return [violation(IN_USE, Divergence.UNSOUND, defect, spec, actual)]


def order(block: int, ref_count: int, queue: Sequence[int]) -> list[Violation]:
    """Judge that a block that was unpinned and is free is handed out last."""
    if ref_count or queue[-1:] == (block,):
        return []
    defect, spec = Defect(Code.UNPINNED_BLOCK_NOT_LAST), f"block {block} ends the free queue"
    return [violation(IN_USE, Divergence.LOST_HIT, defect, spec, f"the queue is {queue}")]


def _listed(blocks: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(blocks))) or "no block"

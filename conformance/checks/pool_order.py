"""The order of the free queue, judged by the clauses of `spec.eviction` after each operation.

Blocks that are unpinned are read on until the pool hands them out again. They join the free queue
at its end, so that they are handed out last, and the reader is told when they are.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from hitproof.conformance.checks.pool_faults import IN_USE, ORDER, violation
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.subject.pools import Pool, PoolSnapshot, UnpinningPool
from hitproof.spec.claims import Divergence
from hitproof.spec.eviction import (
    Queued,
    is_least_recently_used_first,
    is_taken_from_the_front,
    joins_before_cached,
    keeps_its_place,
)

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


def misordered(
    takes: bool, before: PoolSnapshot, after: PoolSnapshot, given: Sequence[int]
) -> list[Violation]:
    """What is wrong with the order after an operation; ``takes`` is whether it hands blocks out.

    ``given`` are the blocks that it is about: those that are given up are used last in this order.
    One violation of each code is enough.
    """
    if before.free_queue == after.free_queue:
        return []
    found = dict(_misordered(takes, before, after, given))
    return [
        violation(
            ORDER,
            Divergence.LOST_HIT,
            Defect(code),
            spec,
            f"from {before.free_queue} to {after.free_queue}",
        )
        for code, spec in found.items()
    ]


def _misordered(
    takes: bool, before: PoolSnapshot, after: PoolSnapshot, given: Sequence[int]
) -> Iterator[tuple[Code, str]]:
    # Blocks in the queue were used in its order, and those that join it, now.
    times = {block: time for time, block in enumerate((*before.free_queue, *given))}
    was, now = _queue(before, times), _queue(after, times)
    stays, joins = was.keys() & now.keys(), now.keys() - was.keys()
    for taken, left in product(was.keys() - now.keys() if takes else (), stays):
        if not is_taken_from_the_front(was[taken], was[left]):
            yield Code.EVICTION_ORDER_WRONG, "blocks are handed out from the front of the queue"
    for first, second in permutations(stays, 2):
        if not keeps_its_place(was[first], was[second], now[first], now[second]):
            yield Code.EVICTION_ORDER_WRONG, "blocks that stay free keep their order"
    for block, other in product(joins, now):
        ordered = is_least_recently_used_first
        if not (ordered(now[block], now[other]) and ordered(now[other], now[block])):
            yield Code.EVICTION_ORDER_WRONG, "cached blocks are least recently used first"
    for block, other in product(joins, stays):
        if not joins_before_cached(now[block], now[other]):
            yield Code.SCRATCH_BLOCK_NOT_FIRST, "blocks without a key join before cached ones"


def _queue(seen: PoolSnapshot, times: dict[int, int]) -> dict[int, Queued]:
    return {
        block: Queued(True, place, bool(seen.carried[block]), times.get(block, -1))
        for place, block in enumerate(seen.free_queue)
    }

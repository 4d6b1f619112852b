"""Eviction: in which order free blocks are handed out, and what is lost with them.

The free queue has an order: the block in front is handed out next, and what it held is lost. Cached
blocks go least recently used first. A block is used last when its last holder gives it up, and a
request gives its blocks up from the last to the first, so that tails go before heads: what is left
of a prompt is a prefix of it, which can be hit. A block that lookup cannot find goes before those
that it can.

Each clause is about any two blocks, so what is proved of them holds for every queue, however long.
A place is a position in the queue, in any numbers that grow from the front to the end.
"""

from dataclasses import dataclass

from hitproof.spec.terms import Formula, Term, implies, not_


@dataclass(frozen=True)
class Queued:
    """A block as the free queue has it. Each field is a term.

    Attributes:
        free: whether it is in the queue.
        place: where; smaller is further in front.
        keyed: whether lookup finds it.
        used: when its last holder gave it up.
    """

    free: Formula
    place: Term
    keyed: Formula
    used: Term


def goes_before(first: Queued, second: Queued) -> Formula:
    """Whether the first of two free blocks is handed out before the second."""
    return first.place < second.place


def is_least_recently_used_first(first: Queued, second: Queued) -> Formula:
    """Whether, of two free blocks that lookup finds, the first goes first if it was used before."""
    both = first.free & second.free & first.keyed & second.keyed
    return implies(both & (first.used < second.used), goes_before(first, second))


def is_taken_from_the_front(taken: Queued, left: Queued) -> Formula:
    """Whether a block that is handed out was in front of one that is left in the queue."""
    return implies(left.free, goes_before(taken, left))


def joins_at_the_end(joining: Queued, stays: Queued) -> Formula:
    """Whether a block that lookup finds joins the queue behind one that was in it."""
    return implies(joining.keyed & stays.free, goes_before(stays, joining))


def joins_before_cached(joining: Queued, stays: Queued) -> Formula:
    """Whether a block that lookup cannot find joins the queue before one that it finds."""
    scratch = not_(joining.keyed)
    return implies(scratch & stays.free & stays.keyed, goes_before(joining, stays))


def keeps_its_place(first: Queued, second: Queued, then: Queued, second_then: Queued) -> Formula:
    """Whether two blocks that stay free keep their order; ``then`` is the first one afterwards."""
    stay = first.free & second.free & then.free & second_then.free
    return implies(stay & goes_before(first, second), goes_before(then, second_then))

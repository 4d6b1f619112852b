"""The theorem on the free queue: cached blocks go least recently used first, tails before heads.

Statements speak of two arbitrary blocks. What moves one of them, or takes it, is one operation of
the pool; all other blocks stay as they are.
"""

from dataclasses import replace

from hitproof.proofs.cases import obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement
from hitproof.spec import eviction
from hitproof.spec.eviction import Queued
from hitproof.spec.terms import implies, not_


def _block(at: Interpretation, name: str) -> Queued:
    free, keyed = at.integer(f"{name}_free") == 1, at.integer(f"{name}_keyed") == 1
    return Queued(free, at.integer(f"{name}_place"), keyed, at.integer(f"{name}_used"))


def _cached(block: Queued) -> Hypotheses:
    return (("the block is free, and lookup finds it", block.free & block.keyed),)


@obligation(
    "order_is_kept[joins]",
    "When a cached block joins the free queue at its end, cached blocks stay in the order of "
    "their last use.",
)
def _joins(at: Interpretation) -> Statement:
    joining, stays = _block(at, "joining"), _block(at, "stays")
    ordered = eviction.is_least_recently_used_first
    return Statement(
        (
            *_cached(joining),
            *_cached(stays),
            ("the block that joins is used last", stays.used < joining.used),
            ("how it joins the queue", eviction.joins_at_the_end(joining, stays)),
        ),
        ordered(joining, stays) & ordered(stays, joining),
    )


@obligation(
    "order_is_kept[stays]",
    "While cached blocks stay in the queue in their order, they are in the order of their last "
    "use.",
)
def _stays(at: Interpretation) -> Statement:
    first, second = _block(at, "first"), _block(at, "second")
    then = replace(_block(at, "then"), used=first.used)
    second_then = replace(_block(at, "second_then"), used=second.used)
    stay: Hypotheses = tuple(
        (
            "a block stays, and gets no key where it is free",
            block.free & implies(after.keyed, block.keyed),
        )
        for block, after in ((first, then), (second, second_then))
    )
    kept = eviction.keeps_its_place(first, second, then, second_then)
    return Statement(
        (
            ("the order is right before", eviction.is_least_recently_used_first(first, second)),
            *stay,
            ("both keep their order", kept),
        ),
        eviction.is_least_recently_used_first(then, second_then),
    )


@obligation(
    "least_recently_used_is_taken",
    "A cached block that is handed out was used no later than any that is left.",
)
def _taken(at: Interpretation) -> Statement:
    taken, left = _block(at, "taken"), _block(at, "left")
    return Statement(
        (
            *_cached(taken),
            *_cached(left),
            ("the order is right before", eviction.is_least_recently_used_first(left, taken)),
            ("where it is taken", eviction.is_taken_from_the_front(taken, left)),
        ),
        not_(left.used < taken.used),
    )


@obligation(
    "tail_goes_before_head",
    "When the head of a request is handed out, its tail is gone: what is left is a prefix.",
    head_given_up_first=(
        "So it is when requests give up their heads first.",
        {"tail_first": False},
    ),
)
def _head_goes_last(at: Interpretation, tail_first: bool = True) -> Statement:
    """``tail_first``: a request gives up its tail before its head."""
    tail, head = _block(at, "tail"), _block(at, "head")
    given_up = tail.used < head.used if tail_first else head.used < tail.used
    where = eviction.is_taken_from_the_front(head, tail)
    return Statement(
        (
            *_cached(head),
            ("lookup finds the tail", tail.keyed),
            ("in which order they are given up", given_up),
            ("the order is right before", eviction.is_least_recently_used_first(tail, head)),
            ("the head is taken from the front", where),
        ),
        not_(tail.free),
    )


@obligation(
    "scratch_goes_before_cached",
    "When a cached block is handed out, each block that joined before it because lookup cannot "
    "find it is gone.",
    scratch_at_the_end=("So it is when such blocks join at the end.", {"before": False}),
)
def _scratch_goes_first(at: Interpretation, before: bool = True) -> Statement:
    """``before``: a block that lookup cannot find joins before those that it finds."""
    scratch, cached = _block(at, "scratch"), _block(at, "cached")
    joins = eviction.joins_before_cached if before else eviction.joins_at_the_end
    return Statement(
        (
            *_cached(cached),
            ("lookup cannot find the other one", not_(scratch.keyed)),
            ("how it joins the queue", joins(scratch, cached)),
            (
                "the cached one is taken from the front",
                eviction.is_taken_from_the_front(cached, scratch),
            ),
        ),
        not_(scratch.free),
    )


@obligation(
    "a_queue_by_last_use_will_do",
    "A block joins as it should a queue in which cached blocks stand in the order of their last "
    "use, behind all others.",
)
def _by_last_use(at: Interpretation) -> Statement:
    """Cached blocks stand in the order of their last use, behind all others."""
    joining, stays = _block(at, "joining"), _block(at, "stays")
    cached = at.integer("cached")  # the place from which on they stand
    places: Hypotheses = tuple(
        (
            "a free block that lookup finds stands by its last use, any other before all of these",
            implies(block.free & block.keyed, block.place == cached + block.used)
            & implies(block.free & not_(block.keyed), block.place < cached)
            & (0 <= block.used),
        )
        for block in (joining, stays)
    )
    ordered = eviction.is_least_recently_used_first
    return Statement(
        (
            *places,
            ("it joins", joining.free),
            ("the block that joins is used last", stays.used < joining.used),
        ),
        eviction.joins_at_the_end(joining, stays)
        & eviction.joins_before_cached(joining, stays)
        & ordered(joining, stays)
        & ordered(stays, joining),
    )


@obligation(
    "places_by_last_use_are_in_order",
    "Cached blocks that stand in the order of their last use are in the right order, wherever the"
    " others stand.",
)
def _places_by_last_use(at: Interpretation) -> Statement:
    """Cached blocks stand by their last use; blocks without a key stand anywhere."""
    first, second = _block(at, "first"), _block(at, "second")
    cached = at.integer("cached")
    places: Hypotheses = tuple(
        (
            "a free block that lookup finds stands by its last use",
            implies(block.free & block.keyed, block.place == cached + block.used),
        )
        for block in (first, second)
    )
    return Statement(places, eviction.is_least_recently_used_first(first, second))


@obligation(
    "places_keep_the_order", "Blocks that stay free keep their order if each keeps its place."
)
def _in_their_places(at: Interpretation) -> Statement:
    first, second = _block(at, "first"), _block(at, "second")
    then, second_then = _block(at, "then"), _block(at, "second_then")
    places: Hypotheses = tuple(
        (
            "a block that stays free keeps its place",
            implies(block.free & after.free, after.place == block.place),
        )
        for block, after in ((first, then), (second, second_then))
    )
    return Statement(places, eviction.keeps_its_place(first, second, then, second_then))


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "least_recently_used_block_goes_first": (
        *_by_last_use,
        *_places_by_last_use,
        *_in_their_places,
        *_joins,
        *_stays,
        *_taken,
        *_head_goes_last,
        *_scratch_goes_first,
    )
}
"""The obligations of the claim on the order of eviction."""

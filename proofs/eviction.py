"""The theorem on the free queue: cached blocks go least recently used first, tails before heads.

Statements speak of two arbitrary blocks. What moves one of them, or takes it, is one operation of
the pool; all other blocks stay as they are.
"""

from dataclasses import replace
from functools import partial

from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import eviction
from hitproof.spec.eviction import Queued
from hitproof.spec.terms import implies, not_


def _block(at: Interpretation, name: str) -> Queued:
    free, keyed = at.integer(f"{name}_free") == 1, at.integer(f"{name}_keyed") == 1
    return Queued(free, at.integer(f"{name}_place"), keyed, at.integer(f"{name}_used"))


def _cached(block: Queued) -> Hypotheses:
    return (("the block is free, and lookup finds it", block.free & block.keyed),)


def _joins(at: Interpretation, last: bool = True, behind: bool = True) -> Statement:
    """``last``: it is used after the other one. ``behind``: it joins at the end, not in front."""
    joining, stays = _block(at, "joining"), _block(at, "stays")
    first, second = (stays, joining) if behind else (joining, stays)
    where = eviction.joins_at_the_end(joining, stays)
    if not behind:
        where = eviction.goes_before(first, second)
    later = (("the block that joins is used last", stays.used < joining.used),)
    ordered = eviction.is_least_recently_used_first
    return Statement(
        (
            *_cached(joining),
            *_cached(stays),
            *(later if last else ()),
            ("how it joins the queue", where),
        ),
        ordered(joining, stays) & ordered(stays, joining),
    )


def _stays(at: Interpretation, in_order: bool = True, unused: bool = True) -> Statement:
    """``in_order``: both keep their order. ``unused``: they are not used meanwhile."""
    first, second = _block(at, "first"), _block(at, "second")
    then, second_then = _block(at, "then"), _block(at, "second_then")
    if unused:
        then = replace(then, used=first.used)
        second_then = replace(second_then, used=second.used)
    pairs = (first, then), (second, second_then)
    kept = eviction.keeps_its_place(first, second, then, second_then)
    return Statement(
        (
            ("the order is right before", eviction.is_least_recently_used_first(first, second)),
            *(
                ("a block stays, and gets no key where it is free", block.free & after_found)
                for block, after in pairs
                for after_found in (implies(after.keyed, block.keyed),)
            ),
            *((("both keep their order", kept),) if in_order else ()),
        ),
        eviction.is_least_recently_used_first(then, second_then),
    )


def _taken(at: Interpretation, in_order: bool = True, in_front: bool = True) -> Statement:
    """``in_order``: the queue is right before. ``in_front``: blocks are taken from its front."""
    taken, left = _block(at, "taken"), _block(at, "left")
    ordered = eviction.is_least_recently_used_first(left, taken)
    where = eviction.is_taken_from_the_front(taken, left)
    return Statement(
        (
            *_cached(taken),
            *_cached(left),
            *((("the order is right before", ordered),) if in_order else ()),
            ("where it is taken", where if in_front else eviction.goes_before(left, taken)),
        ),
        not_(left.used < taken.used),
    )


def _head_goes_last(
    at: Interpretation, tail_first: bool = True, in_front: bool = True
) -> Statement:
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
            *((("the head is taken from the front", where),) if in_front else ()),
        ),
        not_(tail.free),
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


def _by_last_use(at: Interpretation, last: bool = True) -> Statement:
    """Cached blocks stand in the order of their last use, behind all others.

    ``last``: the block that joins is used last.
    """
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
    later = (("the block that joins is used last", stays.used < joining.used),)
    ordered = eviction.is_least_recently_used_first
    return Statement(
        (*places, ("it joins", joining.free), *(later if last else ())),
        eviction.joins_at_the_end(joining, stays)
        & eviction.joins_before_cached(joining, stays)
        & ordered(joining, stays)
        & ordered(stays, joining),
    )


def _places_by_last_use(at: Interpretation, both: bool = True) -> Statement:
    """``both``: cached blocks stand by their last use; blocks without a key stand anywhere."""
    first, second = _block(at, "first"), _block(at, "second")
    cached = at.integer("cached")
    places: Hypotheses = tuple(
        (
            "a free block that lookup finds stands by its last use",
            implies(block.free & block.keyed, block.place == cached + block.used),
        )
        for block in ((first, second) if both else (first,))
    )
    return Statement(places, eviction.is_least_recently_used_first(first, second))


def _in_their_places(at: Interpretation, kept: bool = True) -> Statement:
    """``kept``: a block that stays free keeps its place."""
    first, second = _block(at, "first"), _block(at, "second")
    then, second_then = _block(at, "then"), _block(at, "second_then")
    pairs = ((first, then), (second, second_then)) if kept else ()
    places: Hypotheses = tuple(
        (
            "a block that stays free keeps its place",
            implies(block.free & after.free, after.place == block.place),
        )
        for block, after in pairs
    )
    return Statement(places, eviction.keeps_its_place(first, second, then, second_then))


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "least_recently_used_block_goes_first": (
        Obligation(
            "a_queue_by_last_use_will_do",
            "A block joins as it should a queue in which cached blocks stand in the order of their "
            "last use, behind all others.",
            _by_last_use,
            (
                Mutant(
                    "not_used_last",
                    "So it does whenever it was used.",
                    partial(_by_last_use, last=False),
                ),
            ),
        ),
        Obligation(
            "places_by_last_use_are_in_order",
            "Cached blocks that stand in the order of their last use are in the right order, "
            "wherever the others stand.",
            _places_by_last_use,
            (
                Mutant(
                    "one_of_two",
                    "They are when only one of two stands so.",
                    partial(_places_by_last_use, both=False),
                ),
            ),
        ),
        Obligation(
            "places_keep_the_order",
            "Blocks that stay free keep their order if each keeps its place.",
            _in_their_places,
            (Mutant("any_places", "They do anyway.", partial(_in_their_places, kept=False)),),
        ),
        Obligation(
            "order_is_kept[joins]",
            "When a cached block joins the free queue at its end, cached blocks stay in the order "
            "of their last use.",
            _joins,
            (
                Mutant(
                    "not_used_last",
                    "So they do whenever it was used.",
                    partial(_joins, last=False),
                ),
                Mutant(
                    "in_front", "So they do when it joins in front.", partial(_joins, behind=False)
                ),
            ),
        ),
        Obligation(
            "order_is_kept[stays]",
            "While cached blocks stay in the queue in their order, they are in the order of their "
            "last use.",
            _stays,
            (
                Mutant("any_order", "So they are in any order.", partial(_stays, in_order=False)),
                Mutant(
                    "used_there",
                    "So they are when they are used without leaving it.",
                    partial(_stays, unused=False),
                ),
            ),
        ),
        Obligation(
            "least_recently_used_is_taken",
            "A cached block that is handed out was used no later than any that is left.",
            _taken,
            (
                Mutant("no_order", "So it was in any queue.", partial(_taken, in_order=False)),
                Mutant(
                    "at_the_end", "So it was when it is the last.", partial(_taken, in_front=False)
                ),
            ),
        ),
        Obligation(
            "tail_goes_before_head",
            "When the head of a request is handed out, its tail is gone: what is left is a prefix.",
            _head_goes_last,
            (
                Mutant(
                    "head_given_up_first",
                    "So it is when requests give up their heads first.",
                    partial(_head_goes_last, tail_first=False),
                ),
                Mutant(
                    "anywhere",
                    "So it is when blocks are taken from anywhere.",
                    partial(_head_goes_last, in_front=False),
                ),
            ),
        ),
        Obligation(
            "scratch_goes_before_cached",
            "When a cached block is handed out, each block that joined before it because lookup "
            "cannot find it is gone.",
            _scratch_goes_first,
            (
                Mutant(
                    "scratch_at_the_end",
                    "So it is when such blocks join at the end.",
                    partial(_scratch_goes_first, before=False),
                ),
            ),
        ),
    ),
}
"""The obligations of the claim on the order of eviction."""

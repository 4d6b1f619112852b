"""The caches agree after each step of a history, on any block."""

from collections.abc import Callable
from functools import cache, partial

from hitproof.proofs.agreement.group import LATEST, owed_is_kept, pair, setting
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement, taken
from hitproof.spec.terms import Formula, Term, choose, implies, not_

Blocks = Callable[[Term, Term], Formula]
"""A set of blocks, as its membership test: takes the group's index, then the block."""


def registered(at: Interpretation, cached: Blocks, dense: Blocks) -> tuple[Blocks, Blocks]:
    """The caches after a chunk, of which the producer registers what it keeps."""
    computed, kept = at.block_sets("computed"), at.block_sets("kept")
    return (
        lambda index, block: cached(index, block) | (computed(index, block) & kept(index, block)),
        lambda index, block: dense(index, block) | computed(index, block),
    )


def evicted(at: Interpretation, blocks: Blocks) -> Blocks:
    """What is left of some blocks after an eviction."""
    gone = at.block_sets("evicted")
    return lambda index, block: blocks(index, block) & not_(gone(index, block))


def same(at: Interpretation, blocks: Blocks, others: Blocks) -> Formula:
    """Whether two sets have the block, or neither."""
    index, block, _ = pair(at)
    return blocks(index, block) == others(index, block)


def _agree(at: Interpretation, cached: Blocks, dense: Blocks, mode: str) -> Formula:
    """The invariant, of one block: nothing else is cached, and what is owed is."""
    index, block, _ = pair(at)
    has, densely = cached(index, block), dense(index, block)
    if mode == LATEST:
        return implies(has, densely)
    owed = at.block_sets("owed")(index, block)
    return implies(has, densely) & implies(densely & owed, has)


def _always(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    cached, dense = at.block_sets("cached"), at.block_sets("dense")
    before = at.block_sets("cached_before"), at.block_sets("dense_before")
    step, registers = at.integer("step"), 1 <= at.integer("registers")

    def after(now: Blocks, densely: Blocks) -> Formula:
        return same(at, cached, now) & same(at, dense, densely)

    def given() -> Hypotheses:
        empty = not_(cached(index, block)) & not_(dense(index, block))
        changes = choose(
            registers,
            lambda: after(*registered(at, *before)),
            lambda: after(*(evicted(at, blocks) for blocks in before)),
        )
        return (
            *setting(at, mode),
            ("steps are counted from the start", 0 <= step),
            ("at the start both caches are empty", implies(step == 0, empty)),
            ("a step registers a chunk of any request, or evicts", implies(1 <= step, changes)),
            ("they agreed a step before", implies(1 <= step, _agree(at, *before, mode))),
            *(() if mode == LATEST else (taken(at, owed_is_kept(mode)),)),
        )

    return Statement((exists,), _agree(at, cached, dense, mode), given)


@cache
def always(mode: str) -> Obligation:
    """The caches agree after any history."""
    owed = "" if mode == LATEST else ", and of what dense caching has, all that is owed is cached"
    return Obligation(
        "the_caches_agree_after_each_step",
        "After each step of a history the caches agree: nothing is cached that dense caching does "
        f"not have{owed}. They do while both are empty; a chunk of any request keeps it, whatever "
        "it completes, and so does an eviction of the same blocks from both, whole required runs "
        "among them. Induction over the steps.",
        partial(_always, mode=mode),
    )

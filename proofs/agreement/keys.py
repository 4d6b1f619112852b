"""Statements on the keys that are cached, and how the steps of a history change them."""

from collections.abc import Callable

from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Statement
from hitproof.spec.terms import Formula, Term, for_all, implies, not_

Keys = Callable[[Term], Formula]
"""A set of keys, or of boundaries, as its membership test."""

DENSE, INTERVAL, LATEST = "dense", "interval", "latest"
MODES = (DENSE, INTERVAL, LATEST)
"""Dense retention, one boundary every so many tokens beside the latest, and the latest alone."""


def every(at: Interpretation, holds: Keys) -> Formula:
    """Whether it holds of every key."""
    return for_all(0, at.integer("keys"), holds)


def within(at: Interpretation, inner: Keys, outer: Keys) -> Formula:
    """Whether every key of one set is in the other."""
    return every(at, lambda key: implies(inner(key), outer(key)))


def is_cached(at: Interpretation, required: Keys, cached: Keys) -> Formula:
    """Whether a hit is valid, as far as what is cached decides it."""
    return within(at, required, cached)


def agree(at: Interpretation, cached: Keys, dense: Keys, owed: Keys) -> Formula:
    """The invariant: nothing else is cached, and all that is owed is."""
    return every(
        at,
        lambda key: implies(cached(key), dense(key)) & implies(dense(key) & owed(key), cached(key)),
    )


def _owed(at: Interpretation, mode: str) -> Keys:
    """What every producer of that mode registers, whatever else it promises."""
    if mode == LATEST:
        return lambda key: key < 0
    return at.block_set("owed")


def start_agrees(at: Interpretation, mode: str) -> Statement:
    """Caches that are empty agree."""
    cached, dense = at.block_set("cached"), at.block_set("dense")
    return Statement(
        (
            ("a cache starts empty", within(at, cached, lambda key: key < 0)),
            ("so does that of dense caching", within(at, dense, lambda key: key < 0)),
        ),
        agree(at, cached, dense, _owed(at, mode)),
    )


def chunk_agrees(at: Interpretation, mode: str) -> Statement:
    """Caches that agree do so after what a chunk computed is registered."""
    cached, dense, owed = at.block_set("cached"), at.block_set("dense"), _owed(at, mode)
    computed, kept = at.block_set("computed"), at.block_set("kept")
    return Statement(
        (
            ("the caches agreed before", agree(at, cached, dense, owed)),
            ("the producer keeps what is owed", within(at, owed, kept)),
        ),
        agree(
            at,
            lambda key: cached(key) | (computed(key) & kept(key)),
            lambda key: dense(key) | computed(key),
            owed,
        ),
    )


def eviction_agrees(at: Interpretation, mode: str) -> Statement:
    """Caches that agree do so after an eviction."""
    cached, dense, owed = at.block_set("cached"), at.block_set("dense"), _owed(at, mode)
    evicted = at.block_set("evicted")

    def left_of(keys: Keys) -> Keys:
        return lambda key: keys(key) & not_(evicted(key))

    return Statement(
        (("the caches agreed before", agree(at, cached, dense, owed)),),
        agree(at, left_of(cached), left_of(dense), owed),
    )


def hit_agrees(at: Interpretation, mode: str) -> Statement:
    """A hit whose required runs are owed is valid in both caches or in neither."""
    cached, dense, owed = at.block_set("cached"), at.block_set("dense"), _owed(at, mode)
    required = at.block_set("required")
    return Statement(
        (
            ("the caches agree", agree(at, cached, dense, owed)),
            ("its required runs are owed", within(at, required, owed)),
        ),
        is_cached(at, required, cached) == is_cached(at, required, dense),
    )


def no_hit_is_added(at: Interpretation) -> Statement:
    """A valid hit is valid with dense caching."""
    cached, dense, owed = at.block_set("cached"), at.block_set("dense"), _owed(at, LATEST)
    required = at.block_set("required")
    return Statement(
        (
            ("the hit is valid", is_cached(at, required, cached)),
            ("the caches agree", agree(at, cached, dense, owed)),
        ),
        is_cached(at, required, dense),
    )


def none_is_first(at: Interpretation) -> Statement:
    """No step is the first after which the invariant fails."""
    step, fine = at.integer("step"), at.block_set("agreeing")
    next_step = implies((1 <= step) & fine(step - 1), fine(step))
    return Statement(
        (
            ("it holds at the start", fine(0)),
            ("steps are counted from the start", 0 <= step),
            ("it holds after each earlier step", for_all(0, step, fine)),
            ("a step of either kind keeps it", next_step),
        ),
        fine(step),
    )


def prefix_suffices(at: Interpretation) -> Statement:
    """Dense caching can serve the rounded hit while the longer one is whole."""
    dense, prefix, required = (at.block_set(name) for name in ("dense", "prefix", "required"))
    spanned = "the rounded hit requires blocks of what the longer one spans"
    return Statement(
        (
            (spanned, within(at, required, prefix)),
            ("none of them was evicted", within(at, prefix, dense)),
        ),
        is_cached(at, required, dense),
    )


def served_by_all(at: Interpretation) -> Statement:
    """A hit that all groups serve is within reach and whole in each."""
    groups = at.integer("groups")
    serves, reaches, has = (at.block_set(name) for name in ("serves", "reaches", "has"))
    one = for_all(0, groups, lambda group: serves(group) == (reaches(group) & has(group)))
    every = for_all(0, groups, reaches) & for_all(0, groups, has)
    return Statement(
        (("each group serves what it may and has", one),), for_all(0, groups, serves) == every
    )

"""Statements on one promise of a request: the hit of a resend, an extension or a sibling."""

from hitproof.proofs.agreement.keys import Keys, agree, every, is_cached, within
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec.terms import Formula, implies, not_


def _promise(
    at: Interpretation, cached: Keys, dense: Keys, done: Keys, gone: Formula, lapsed: Formula
) -> Formula:
    """The invariant of a promise, of whose run the blocks ``done`` are computed.

    Of the run, what is done and in the dense cache is cached, unless the promise has lapsed.
    ``gone`` says that a block that was done has been evicted; without that a promise cannot lapse.
    """
    run, computed_only = at.block_set("run"), agree(at, cached, dense, lambda key: key < 0)
    kept = every(at, lambda key: implies(done(key) & dense(key), cached(key)))
    return (
        computed_only
        & within(at, done, run)
        & (lapsed | kept)
        & (gone | within(at, done, dense))
        & implies(lapsed, gone)
    )


def _flags(at: Interpretation) -> tuple[Formula, Formula]:
    return 1 <= at.integer("gone"), 1 <= at.integer("lapsed")


def _promised_before(at: Interpretation) -> tuple[Keys, Keys, Keys, Hypotheses]:
    cached, dense, done = (at.block_set(name) for name in ("cached", "dense", "done"))
    invariant = _promise(at, cached, dense, done, *_flags(at))
    return cached, dense, done, (("the promise was kept before", invariant),)


def promise_starts(at: Interpretation) -> Statement:
    """The promise is kept when the request is admitted."""
    cached, dense, done, hit_run, run = (
        at.block_set(name) for name in ("cached", "dense", "done", "required", "run")
    )
    computed_only = agree(at, cached, dense, lambda key: key < 0)
    never = at.integer("keys") < 0
    return Statement(
        (
            ("nothing is cached that dense caching would not have", computed_only),
            ("what is done is of the run", within(at, done, run)),
            ("of the run, what the hit spares is its own", within(at, done, hit_run)),
            ("the hit is valid", is_cached(at, hit_run, cached)),
            ("keys are counted", not_(never)),
        ),
        _promise(at, cached, dense, done, never, never),
    )


def own_chunk(at: Interpretation) -> Statement:
    """A chunk of the request itself keeps the promise."""
    cached, dense, done, hypotheses = _promised_before(at)
    computed, kept, run = (at.block_set(name) for name in ("computed", "kept", "run"))
    return Statement(
        (*hypotheses, ("the request keeps the run that it promises", within(at, run, kept))),
        _promise(
            at,
            lambda key: cached(key) | (computed(key) & kept(key)),
            lambda key: dense(key) | computed(key),
            lambda key: done(key) | (computed(key) & run(key)),
            *_flags(at),
        ),
    )


def chunk_of_another(at: Interpretation) -> Statement:
    """A chunk of another request keeps the promise or lapses it."""
    cached, dense, done, hypotheses = _promised_before(at)
    computed, kept = at.block_set("computed"), at.block_set("kept")
    gone, lapsed = _flags(at)
    renewed = every(at, lambda key: implies(done(key) & computed(key), cached(key) | kept(key)))
    return Statement(
        hypotheses,
        _promise(
            at,
            lambda key: cached(key) | (computed(key) & kept(key)),
            lambda key: dense(key) | computed(key),
            done,
            gone,
            lapsed | not_(renewed),
        ),
    )


def promised_eviction(at: Interpretation) -> Statement:
    """An eviction keeps the promise."""
    cached, dense, done, hypotheses = _promised_before(at)
    evicted = at.block_set("evicted")
    gone, lapsed = _flags(at)
    spared = every(at, lambda key: implies(done(key), not_(evicted(key))))
    return Statement(
        hypotheses,
        _promise(
            at,
            lambda key: cached(key) & not_(evicted(key)),
            lambda key: dense(key) & not_(evicted(key)),
            done,
            gone | not_(spared),
            lapsed,
        ),
    )


def promise_is_kept(at: Interpretation, spared: bool = False) -> Statement:
    """A promised hit is valid in both caches or in neither; in both, until evicted."""
    cached, dense, done, hypotheses = _promised_before(at)
    run = at.block_set("run")
    gone, lapsed = _flags(at)
    hypotheses += (("the request has computed all of the run", within(at, run, done)),)
    valid, densely = is_cached(at, run, cached), is_cached(at, run, dense)
    if spared:
        none_gone = ("no block of it has been evicted since", not_(gone))
        return Statement((*hypotheses, none_gone), valid & densely)
    return Statement((*hypotheses, ("the promise has not lapsed", not_(lapsed))), valid == densely)

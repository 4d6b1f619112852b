"""Statements on what lookup returns, from where the caches agree."""

from hitproof.proofs.agreement.keys import Keys
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec.terms import Formula, Term, for_all, implies


def _longest(at: Interpretation, hit: Term, valid: Keys) -> Hypotheses:
    """That a hit is the longest that is valid; hit 0 is none."""
    cap = at.integer("cap")
    return (
        ("a lookup stays within the cap", (0 <= hit) & (hit <= cap)),
        ("it returns a valid hit or none", (hit < 1) | valid(hit)),
        (
            "it returns no shorter one than it could",
            for_all(1, cap + 1, lambda longer: implies(valid(longer), longer <= hit)),
        ),
    )


def _two_lookups(at: Interpretation) -> tuple[Term, Term, Keys, Keys, Hypotheses]:
    """The hit of a later request, and what dense caching would give it."""
    hit, best = at.integer("hit"), at.integer("best")
    valid, densely = at.block_set("valid"), at.block_set("valid_densely")
    return hit, best, valid, densely, (*_longest(at, hit, valid), *_longest(at, best, densely))


def _boundaries(at: Interpretation, holds: Keys) -> Formula:
    return for_all(1, at.integer("cap") + 1, holds)


def same_lookup(at: Interpretation) -> Statement:
    """Lookup returns the same hit where the caches agree on every boundary."""
    hit, best, valid, densely, lookups = _two_lookups(at)
    same = _boundaries(at, lambda end: valid(end) == densely(end))
    return Statement((*lookups, ("the caches agree on each boundary", same)), hit == best)


def rounded_lookup(at: Interpretation) -> Statement:
    """Lookup returns at least the dense hit, rounded down to the interval."""
    hit, best, valid, densely, lookups = _two_lookups(at)
    interval = at.integer("interval")
    rounded = best // interval * interval
    same, has = valid(rounded) == densely(rounded), densely(rounded)
    return Statement(
        (
            *lookups,
            ("the interval is at least one alignment", 1 <= interval),
            _no_more_valid(at, valid, densely),
            (
                "they agree on that boundary, which falls on the interval",
                implies(1 <= rounded, same),
            ),
            ("dense caching has the rounded hit, too", implies(1 <= rounded, has)),
        ),
        (rounded <= hit) & (hit <= best),
    )


def interval_lookup(at: Interpretation) -> Statement:
    """Lookup returns no less than a boundary on which the caches agree."""
    hit, best, valid, densely, lookups = _two_lookups(at)
    boundary = at.integer("boundary")
    same = valid(boundary) == densely(boundary)
    return Statement(
        (
            *lookups,
            _no_more_valid(at, valid, densely),
            ("the boundary is within the cap", (1 <= boundary) & (boundary <= at.integer("cap"))),
            ("dense caching could serve it", densely(boundary)),
            ("the caches agree on it, as on each on the interval", same),
        ),
        (boundary <= hit) & (hit <= best),
    )


def replayed_lookup(at: Interpretation) -> Statement:
    """Lookup returns the promised boundary just when dense caching would."""
    hit, best, valid, densely, lookups = _two_lookups(at)
    promised = at.integer("promised")
    same = valid(promised) == densely(promised)
    none_longer = _boundaries(at, lambda end: implies(densely(end), end <= promised))
    return Statement(
        (
            *lookups,
            _no_more_valid(at, valid, densely),
            ("something is promised", (1 <= promised) & (promised <= at.integer("cap"))),
            ("the caches agree on the promised boundary", same),
            ("no resend or extension hits more than that", none_longer),
        ),
        (hit <= best) & (best <= promised) & ((hit == promised) == (best == promised)),
    )


def _no_more_valid(at: Interpretation, valid: Keys, densely: Keys) -> tuple[str, Formula]:
    no_more = _boundaries(at, lambda end: implies(valid(end), densely(end)))
    return "dense caching serves each valid hit", no_more

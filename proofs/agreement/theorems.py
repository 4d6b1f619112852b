"""The three theorems that producer and consumer agree: see `proofs.agreement`.

First: what lookup returns, from where the caches agree.
"""

from functools import cache, partial

from hitproof.proofs.agreement.group import DENSE, INTERVAL, LATEST, interval_tokens, setting
from hitproof.proofs.agreement.hits import (
    REACHES,
    ROUNDED_IS_VALID,
    caches,
    is_there,
    is_valid,
    no_hit_is_added,
    promised_in_both,
    promised_until_evicted,
    rounded,
    run_is_done,
    valid_in_both,
)
from hitproof.proofs.agreement.promise import flags
from hitproof.proofs.interpretation import Interpretation, Opaque
from hitproof.proofs.obligation import Mutant, Obligation, Statement, chain, taken
from hitproof.spec import hits, retention
from hitproof.spec.terms import Term, is_multiple, not_


def _two_lookups(at: Interpretation) -> tuple[Term, Term]:
    """The hit of a later request, and what dense caching would give it."""
    told = at.groups(), at.integer("alignment"), at.integer("cap"), at.integer("horizon")
    hit, best = (hits.longest_valid_hit(*told, cached) for cached in caches(at))
    return hit, best


def _same(at: Interpretation) -> Statement:
    hit, best = _two_lookups(at)
    agree = valid_in_both(DENSE)
    return Statement(
        (),
        hit == best,
        lambda: (*setting(at), taken(at, agree, length=hit), taken(at, agree, length=best)),
    )


SAME = Obligation(
    "lookup_returns_what_dense_caching_would",
    "Lookup returns the same hit as with dense caching. So a request resumes at the same token "
    "and computes the same blocks: the two histories are one.",
    _same,
    interpretation=Opaque,
)


def _no_less_than_on_the_interval(at: Interpretation) -> Statement:
    (_, dense), boundary, cap = caches(at), at.compared("boundary"), at.integer("cap")
    hit, best = _two_lookups(at)
    return Statement(
        (
            ("the boundary is within the cap", (1 <= boundary) & (boundary <= cap)),
            ("it is on the interval", is_multiple(boundary, interval_tokens(at))),
            ("dense caching could serve it", is_valid(at, boundary, dense)),
        ),
        (boundary <= hit) & (hit <= best),
        lambda: (
            *setting(at, INTERVAL),
            taken(at, valid_in_both(INTERVAL), length=boundary),
            taken(at, no_hit_is_added(INTERVAL), length=hit),
        ),
    )


NO_LESS_THAN_ON_THE_INTERVAL = Obligation(
    "lookup_returns_no_less_than_any_boundary_on_the_interval",
    "Lookup returns no less than each boundary on the interval that dense caching could serve, and "
    "no more than dense caching would.",
    _no_less_than_on_the_interval,
    interpretation=Opaque,
)


def _rounded_down(at: Interpretation) -> Statement:
    hit, best = _two_lookups(at)
    shorter = rounded(at, best)
    return Statement(
        (is_there(at, best),),
        (shorter <= hit) & (hit <= best),
        lambda: (
            *setting(at, INTERVAL),
            taken(at, ROUNDED_IS_VALID, length=best),
            taken(at, NO_LESS_THAN_ON_THE_INTERVAL, boundary=shorter),
            taken(at, no_hit_is_added(INTERVAL), length=hit),
        ),
    )


ROUNDED_DOWN = Obligation(
    "lookup_returns_the_dense_hit_rounded_down",
    "Then lookup returns at least the hit of dense caching rounded down to the interval.",
    _rounded_down,
    interpretation=Opaque,
)


def _promised(at: Interpretation, mode: str, always: bool = False) -> Statement:
    hit, best = _two_lookups(at)
    cap, horizon, alignment = (at.integer(n) for n in ("cap", "horizon", "alignment"))
    promised, lookahead = at.compared("promised"), at.integer("lookahead_tokens")
    _, lapsed = flags(at)
    longest = retention.replay_boundary(cap, horizon, lookahead, alignment)
    return Statement(
        (
            ("a lookahead is not negative", 0 <= lookahead),
            ("the promise is the replay boundary", (1 <= promised) & (promised == longest)),
            run_is_done(at, promised),
            ("the promise has not lapsed", not_(lapsed)),
        ),
        (hit <= best) & (best <= promised) & ((hit == promised) == (always | (best == promised))),
        lambda: (
            *setting(at, mode),
            taken(at, promised_in_both(mode)),
            taken(at, no_hit_is_added(mode), length=hit),
            taken(at, REACHES, length=best),
        ),
    )


@cache
def promised_hit(mode: str) -> Obligation:
    """A resend or an extension gets what it is promised."""
    return Obligation(
        "lookup_returns_the_promised_hit_when_dense_caching_would",
        "Lookup gives a resend or an extension its promised hit if and only if dense caching "
        "would, and otherwise no more than that.",
        partial(_promised, mode=mode),
        (Mutant("always", "It always does.", partial(_promised, mode=mode, always=True)),),
        interpretation=Opaque,
    )


def _of_promises(mode: str) -> tuple[Obligation, ...]:
    return promised_hit(mode), promised_until_evicted(mode)


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "lookup_agrees_under_dense_retention": chain(SAME),
    "lookup_agrees_under_interval_retention": chain(
        NO_LESS_THAN_ON_THE_INTERVAL, ROUNDED_DOWN, *_of_promises(INTERVAL)
    ),
    "lookup_agrees_under_latest_retention": chain(*_of_promises(LATEST)),
}
"""The obligations of each claim that producer and consumer agree, by its name."""

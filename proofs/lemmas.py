"""What `interpretation.Abstract` assumes about products and quotients, proved with real ones.

Theorems are only as good as these: while one of them is not proved, no theorem is.
"""

from functools import partial

from hitproof.proofs.interpretation import (
    Interpretation,
    Products,
    is_ceiling,
    is_floor,
    one_is_neutral,
    products_keep_order_of_sums,
)
from hitproof.proofs.obligation import Mutant, Obligation, State, Statement, Theorem
from hitproof.spec.terms import ceil_div, implies

_HAS_SIZE = "the unit, a block or a segment, has a size"


def _neutral(at: Interpretation, one: int = 1) -> Statement:
    unit = at.integer("unit")
    return Statement(((_HAS_SIZE, 1 <= unit),), one_is_neutral(unit, one))


def _order_of_sums(at: Interpretation, strictly: bool = False) -> Statement:
    left, right, other = at.integer("left"), at.integer("right"), at.integer("other")
    unit = at.integer("unit")
    kept = products_keep_order_of_sums(left, right, other, unit)
    if strictly:
        together = left * unit + right * unit
        kept &= implies(left + right <= other, together < other * unit)
    return Statement(((_HAS_SIZE, 1 <= unit),), kept)


def _floor_exists(at: Interpretation, slip: int = 0) -> Statement:
    dividend, divisor = at.integer("dividend"), at.integer("divisor")
    quotient = dividend // divisor + slip
    return Statement(((_HAS_SIZE, 1 <= divisor),), is_floor(quotient, dividend, divisor))


def _ceiling_exists(at: Interpretation, slip: int = 0) -> Statement:
    dividend, divisor = at.integer("dividend"), at.integer("divisor")
    quotient = ceil_div(dividend, divisor) + slip
    return Statement(((_HAS_SIZE, 1 <= divisor),), is_ceiling(quotient, dividend, divisor))


def _floor_is_greatest(at: Interpretation) -> Statement:
    quotient, other = at.integer("quotient"), at.integer("other")
    dividend, divisor = at.integer("dividend"), at.integer("divisor")
    return Statement(
        (
            (_HAS_SIZE, 1 <= divisor),
            ("the quotient is rounded down", is_floor(quotient, dividend, divisor)),
            ("another multiple does not exceed the dividend", other * divisor <= dividend),
        ),
        other <= quotient,
    )


def _ceiling_is_least(at: Interpretation) -> Statement:
    quotient, other = at.integer("quotient"), at.integer("other")
    dividend, divisor = at.integer("dividend"), at.integer("divisor")
    return Statement(
        (
            (_HAS_SIZE, 1 <= divisor),
            ("the quotient is rounded up", is_ceiling(quotient, dividend, divisor)),
            ("another multiple covers the dividend", dividend <= other * divisor),
        ),
        quotient <= other,
    )


def _lemma(name: str, sentence: str, state: State, *mutants: Mutant) -> Obligation:
    return Obligation(name, sentence, state, mutants, interpretation=Products)


LEMMAS = Theorem(
    "products_and_quotients",
    (
        _lemma(
            "one_is_neutral",
            "One unit is the unit.",
            _neutral,
            Mutant("two_units", "Two units are the unit.", partial(_neutral, one=2)),
        ),
        _lemma(
            "products_keep_order_of_sums",
            "As a + b compares with c, so does a * u + b * u with c * u.",
            _order_of_sums,
            Mutant(
                "strictly",
                "If a + b is at most c, then a * u + b * u is less than c * u.",
                partial(_order_of_sums, strictly=True),
            ),
        ),
        _lemma(
            "floor_exists",
            "Every integer lies between two successive multiples of the unit.",
            _floor_exists,
            Mutant(
                "next_quotient",
                "Every integer lies past the next multiple.",
                partial(_floor_exists, slip=1),
            ),
        ),
        _lemma(
            "floor_is_greatest",
            "No greater multiple lies at or below an integer than its quotient rounded down.",
            _floor_is_greatest,
        ),
        _lemma(
            "ceiling_exists",
            "Every integer lies just before, or on, some multiple of the unit.",
            _ceiling_exists,
            Mutant(
                "next_quotient",
                "Every integer lies just before the multiple after that.",
                partial(_ceiling_exists, slip=1),
            ),
        ),
        _lemma(
            "ceiling_is_least",
            "No lesser multiple covers an integer than its quotient rounded up.",
            _ceiling_is_least,
        ),
    ),
)
"""The lemmas, as a theorem of their own."""

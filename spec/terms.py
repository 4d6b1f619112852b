"""One definition, two interpretations.

A clause of the spec is an ordinary Python function over *terms*. Called with ints, it computes a
truth value; called with Z3 integer terms, it builds the formula that the theorems are about.
Comparison, `+`, `-` and `&` mean the same for both. The few operations that do not are methods of
`Arithmetic`; a clause that needs one takes the interpretation as an argument.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Term: TypeAlias = Any
"""An integer: a Python int, or a Z3 integer term."""

Formula: TypeAlias = Any
"""A truth value: a Python bool, or a Z3 Boolean term."""


class Arithmetic(Protocol):
    """The operations that are written differently for ints and Z3 terms."""

    def times(self, count: Term, unit: Term) -> Term:
        """The product; ``count`` blocks of ``unit`` tokens, or segments of ``unit`` blocks."""

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """Greatest integer q with ``q * divisor <= dividend``, for ``divisor >= 1``."""

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """Least integer q with ``dividend <= q * divisor``, for ``divisor >= 1``."""

    def multiple_at_most(self, position: Term, step: Term) -> Term:
        """Greatest multiple of ``step`` that is ``<= position``, for ``step >= 1``."""

    def maximum(self, left: Term, right: Term) -> Term:
        """The greater of two terms."""

    def minimum(self, left: Term, right: Term) -> Term:
        """The lesser of two terms."""

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """Whether ``holds(i)`` for every integer i with ``start <= i < end``."""

    def implies(self, premise: Formula, conclusion: Formula) -> Formula:
        """Whether the conclusion holds if the premise does."""

    def negation(self, formula: Formula) -> Formula:
        """Whether the formula is false."""


class IntegerArithmetic:
    """`Arithmetic` on Python ints."""

    def times(self, count: int, unit: int) -> int:
        """Python's product."""
        return count * unit

    def floor_div(self, dividend: int, divisor: int) -> int:
        """Python's quotient, which rounds down below zero too."""
        return dividend // divisor

    def ceil_div(self, dividend: int, divisor: int) -> int:
        """Floor division, rounded up."""
        return -(-dividend // divisor)

    def multiple_at_most(self, position: int, step: int) -> int:
        """Round down, also below zero."""
        return position // step * step

    def maximum(self, left: int, right: int) -> int:
        """Python's ``max``."""
        return max(left, right)

    def minimum(self, left: int, right: int) -> int:
        """Python's ``min``."""
        return min(left, right)

    def for_all(self, start: int, end: int, holds: Callable[[int], bool]) -> bool:
        """Evaluate ``holds`` over the range, stopping at the first failure."""
        return all(map(holds, range(start, end)))

    def implies(self, premise: bool, conclusion: bool) -> bool:
        """Material implication."""
        return conclusion or not premise

    def negation(self, formula: bool) -> bool:
        """Python's ``not``."""
        return not formula


INTEGERS = IntegerArithmetic()
"""The executable interpretation."""


def is_multiple(position: Term, step: Term, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether ``position`` is a multiple of ``step``, for ``step >= 1``."""
    return arithmetic.multiple_at_most(position, step) == position

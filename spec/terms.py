"""One definition, two interpretations.

A clause of the spec is a formula in plain Python. Called with ints, it computes a truth value;
called with symbols, such as the unknowns of a theorem, it builds the formula that the theorem is
about. Operators dispatch on their operands, and a symbol's mean what Python's do: ``//`` rounds
down, also below zero. What Python has no operator for is a function of this module, and dispatches
as well. `max` and `min` hide Python's, which cannot compare symbols.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

Term: TypeAlias = Any
"""An integer: a Python int, or a `Symbol`."""

Tokens: TypeAlias = Term
"""A length or a position in tokens."""

Blocks: TypeAlias = Term
"""A length or a position in blocks of a group."""

Formula: TypeAlias = Any
"""A truth value: a Python bool, or a `Symbol`."""

_Clause = TypeVar("_Clause", bound=Callable[..., Any])

EXECUTABLE: set[Callable[..., Any]] = set()
"""The clauses that no solver sees. A test compares them with what the theorems ask of solvers."""

TESTED: set[Callable[..., Any]] = set()
"""The clauses that solvers see, but not every change of them (`conformance.spec_mutants`). A test
compares this with what the theorems notice."""


def executable(clause: _Clause) -> _Clause:
    """Mark a clause that takes whole configurations or gives Python values: it runs on ints."""
    EXECUTABLE.add(clause)
    return clause


def tested(clause: _Clause) -> _Clause:
    """Mark a clause some changes of which no theorem notices, but tests do."""
    TESTED.add(clause)
    return clause


class Logic(Protocol):
    """What the functions of this module mean of symbols; each has its name and its operands."""

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """Division, rounded up."""

    def max(self, left: Term, right: Term) -> Term:
        """The greater of two terms."""

    def min(self, left: Term, right: Term) -> Term:
        """The lesser of two terms."""

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """A quantifier over integers."""

    def implies(self, premise: Formula, conclusion: Formula) -> Formula:
        """Material implication."""

    def not_(self, formula: Formula) -> Formula:
        """Negation."""


class Symbol:
    """A term or a formula without a value. It has Python's operators.

    Attributes:
        logic: what it means where there is no operator.
    """

    logic: Logic


def ceil_div(dividend: Term, divisor: Term) -> Term:
    """Least integer q with ``dividend <= q * divisor``, for ``divisor >= 1``."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return -(-dividend // divisor)
    return _logic(dividend, divisor).ceil_div(dividend, divisor)


def max(left: Term, right: Term) -> Term:
    """The greater of two integers."""
    if isinstance(left, int) and isinstance(right, int):
        return left if left > right else right
    return _logic(left, right).max(left, right)


def min(left: Term, right: Term) -> Term:
    """The lesser of two integers."""
    if isinstance(left, int) and isinstance(right, int):
        return left if left < right else right
    return _logic(left, right).min(left, right)


def for_all(start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
    """Whether ``holds(i)`` for every integer i with ``start <= i < end``."""
    if isinstance(start, int) and isinstance(end, int):
        return all(map(holds, range(start, end)))
    return _logic(start, end).for_all(start, end, holds)


def implies(premise: Formula, conclusion: Formula) -> Formula:
    """Whether the conclusion holds if the premise does."""
    if isinstance(premise, bool):
        return conclusion if premise else True
    return _logic(premise, conclusion).implies(premise, conclusion)


def not_(formula: Formula) -> Formula:
    """Whether the formula is false."""
    return not formula if isinstance(formula, bool) else _logic(formula).not_(formula)


def is_multiple(position: Term, step: Term) -> Formula:
    """Whether ``position`` is a multiple of ``step``, for ``step >= 1``."""
    return position // step * step == position


def _logic(*operands: Term) -> Logic:
    """That of the first symbol among the operands."""
    return next(each.logic for each in operands if isinstance(each, Symbol))

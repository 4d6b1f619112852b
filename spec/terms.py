"""One definition, two interpretations.

A clause of the spec is a formula in plain Python. Called with ints, it computes a truth value;
called with symbols, such as the unknowns of a theorem, it builds the formula that the theorem is
about. Operators dispatch on their operands, and a symbol's mean what Python's do: ``//`` rounds
down, also below zero. What Python has no operator for is a function of this module, and dispatches
as well. `max` and `min` hide Python's, which cannot compare symbols.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Protocol, TypeAlias, TypeVar, cast

Term: TypeAlias = Any
"""An integer: a Python int, or a `Symbol`."""

Tokens: TypeAlias = Term
"""A length or a position in tokens."""

Blocks: TypeAlias = Term
"""A length or a position in blocks of a group."""

Formula: TypeAlias = Any
"""A truth value: a Python bool, or a `Symbol`."""

_Clause = TypeVar("_Clause", bound=Callable[..., Any])
_Item = TypeVar("_Item")

TESTED: set[Callable[..., Any]] = set()
"""The clauses that solvers see, but not every change of them (`conformance.spec_mutants`). A test
compares this with what the theorems notice."""


def tested(clause: _Clause) -> _Clause:
    """Mark a clause some changes of which no theorem notices, but tests do."""
    TESTED.add(clause)
    return clause


class Logic(Protocol):
    """The functions of this module for symbols, with the same names and operands."""

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

    def choose(self, condition: Formula, then: Term, otherwise: Term) -> Term:
        """A term by cases."""

    def least(self, holds: Callable[[Term], Formula]) -> Term:
        """The least integer from 1 on for which something holds that holds for some."""

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Term:
        """The greatest multiple within a limit for which something holds; 0 for none."""


class Symbol:
    """A term or a formula without a value. It has Python's operators.

    Attributes:
        logic: what it means where there is no operator.
    """

    logic: Logic


class Family(Symbol):
    """A sequence without a length, such as the groups of any engine."""

    def for_each(self, holds: Callable[[Term, Any], Formula]) -> Formula:
        """A quantifier over its items, each with its index."""
        raise NotImplementedError

    def map(self, change: Callable[[Any], Any]) -> Any:
        """The same length, with each item changed."""
        raise NotImplementedError


Items: TypeAlias = Sequence[_Item]
"""A sequence, or a `Family`."""


@dataclass(frozen=True)
class Span:
    """`range` for symbols."""

    start: Term
    stop: Term


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


def span(start: Term, end: Term) -> range:
    """The integers i with ``start <= i < end``; of symbols, a `Span`."""
    if isinstance(start, int) and isinstance(end, int):
        return range(start, end)
    of_symbols: Any = Span(start, end)
    return cast(range, of_symbols)


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


def choose(condition: Formula, then: Callable[[], Term], otherwise: Callable[[], Term]) -> Term:
    """What the one function gives if the condition holds, else what the other does."""
    if isinstance(condition, bool):
        return then() if condition else otherwise()
    return _logic(condition).choose(condition, then(), otherwise())


def by_cases(field: str, values: Iterable[Term]) -> Callable[[_Clause], _Clause]:
    """Let a clause that is stated by cases of a field of its first operand take a symbol there.

    ``values`` are those that the symbol may stand for.
    """
    *others, last = values

    def of_any(clause: _Clause) -> _Clause:
        @wraps(clause)
        def told(operand: Any, *rest: Term) -> Term:
            symbol = getattr(operand, field)
            if not isinstance(symbol, Symbol):
                return clause(operand, *rest)
            result = clause(replace(operand, **{field: last}), *rest)
            for value in others:
                case = clause(replace(operand, **{field: value}), *rest)
                result = symbol.logic.choose(symbol == value, case, result)
            return result

        return cast(_Clause, told)

    return of_any


def for_each(items: Items[_Item], holds: Callable[[Term, _Item], Formula]) -> Formula:
    """Whether ``holds(i, item)`` for every item and its index."""
    if isinstance(items, Family):
        return items.for_each(holds)
    return all(holds(index, item) for index, item in enumerate(items))


def for_some(items: Items[_Item], holds: Callable[[Term, _Item], Formula]) -> Formula:
    """Whether ``holds(i, item)`` for at least one item and its index."""
    return not_(for_each(items, lambda index, item: not_(holds(index, item))))


def changed(items: Items[_Item], change: Callable[[_Item], _Item]) -> tuple[_Item, ...]:
    """The items, each one changed."""
    if isinstance(items, Family):
        of_symbols: tuple[_Item, ...] = items.map(change)
        return of_symbols
    return tuple(change(item) for item in items)


def is_common_multiple(
    items: Items[_Item],
    counts: Callable[[_Item], Formula],
    number: Callable[[_Item], Term],
    multiple: Term,
) -> Formula:
    """Whether it is a multiple of the ``number``, at least 1, of each item that ``counts``."""
    return for_each(
        items, lambda _, item: implies(counts(item), is_multiple(multiple, number(item)))
    )


def lcm(
    items: Items[_Item], counts: Callable[[_Item], Formula], number: Callable[[_Item], Term]
) -> int:
    """The least common multiple, from 1 on, of the ``number`` of each item that ``counts``."""
    if isinstance(items, Family):
        of_symbols: int = items.logic.least(partial(is_common_multiple, items, counts, number))
        return of_symbols
    return math.lcm(*[number(item) for item in items if counts(item)])


def greatest(step: Term, limit: Term, holds: Callable[[Term], Formula]) -> int:
    """The greatest multiple of ``step``, from it up to ``limit``, for which it holds; 0 for none.

    ``step >= 1``.
    """
    if isinstance(step, int) and isinstance(limit, int):
        multiples = range(limit // step * step, 0, -step)
        return next((multiple for multiple in multiples if holds(multiple)), 0)
    of_symbols: int = _logic(step, limit).greatest(step, limit, holds)
    return of_symbols


def _logic(*operands: Term) -> Logic:
    """The logic of the first symbol among the operands."""
    return next(each.logic for each in operands if isinstance(each, Symbol))

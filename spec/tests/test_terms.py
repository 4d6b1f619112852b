"""What stands for operators does on ints what its docstring says, and asks symbols."""

from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import ne
from typing import Any

from hitproof.spec.terms import (
    Span,
    Symbol,
    by_cases,
    ceil_div,
    for_all,
    greatest,
    implies,
    is_multiple,
    max,
    min,
    not_,
    span,
)
from hitproof.spec.tests.token_level import Asked


def test_ceil_div_is_the_least_that_covers() -> None:
    for dividend, divisor in product(range(-9, 10), range(1, 5)):
        least = next(q for q in range(-99, 99) if dividend <= q * divisor)
        assert ceil_div(dividend, divisor) == least


def test_a_multiple_is_one_below_zero_too() -> None:
    for position, step in product(range(-9, 10), range(1, 5)):
        assert is_multiple(position, step) is any(n * step == position for n in range(-9, 10))


def test_max_and_min_are_the_greater_and_the_lesser() -> None:
    for left, right in product(range(-2, 3), repeat=2):
        assert [min(left, right), max(left, right)] == sorted((left, right))


def test_for_all_asks_about_the_whole_range_and_no_more() -> None:
    for start, end in product(range(-2, 5), repeat=2):
        asked = Asked()
        assert for_all(start, end, asked) is True
        assert asked.blocks == list(range(start, end))
        for miss in range(start, end):
            assert for_all(start, end, partial(ne, miss)) is False


def test_implication_and_negation() -> None:
    for premise, conclusion in product((False, True), repeat=2):
        assert implies(premise, conclusion) is (premise <= conclusion)
        assert not_(premise) is (not premise)


class Spoken(Symbol):
    """A symbol whose formulas are texts."""

    def __init__(self, name: str) -> None:
        self.name, self.logic = name, Saying()

    def __repr__(self) -> str:
        return self.name


class Saying:
    def __getattr__(self, function: str) -> Any:
        return lambda *operands: f"{function}{operands}"


def test_a_symbol_on_either_side_is_asked_with_the_operands_in_order() -> None:
    x = Spoken("x")
    for function in (ceil_div, max, min):
        assert function(x, 2) == f"{function.__name__}(x, 2)"
        assert function(2, x) == f"{function.__name__}(2, x)"
    assert implies(x, True) == "implies(x, True)"
    assert implies(x, x) == "implies(x, x)"
    assert implies(True, x) is x
    assert not_(x) == "not_(x,)"
    assert for_all(x, 3, bool) == f"for_all(x, 3, {bool})"
    assert for_all(0, x, bool) == f"for_all(0, x, {bool})"
    ranges: list[object] = [span(x, 3), span(0, x)]
    assert ranges == [Span(x, 3), Span(0, x)]
    said: list[object] = [greatest(x, 3, bool), greatest(2, x, bool)]
    assert said == [f"greatest(x, 3, {bool})", f"greatest(2, x, {bool})"]


@dataclass
class Shape:
    kind: Any
    size: int


def test_cases_are_told_of_each_value_that_a_symbol_may_have() -> None:
    @by_cases("kind", "abc")
    def place(shape: Shape, more: int) -> int:
        return "abcd".index(shape.kind) * shape.size + more

    assert [place(Shape(kind, 5), 1) for kind in "abcd"] == [1, 6, 11, 16]
    said: object = place(Shape(Spoken("x"), 5), 1)
    assert said == "choose(False, 6, 'choose(False, 1, 11)')"

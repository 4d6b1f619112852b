"""What the symbolic run assumes of Python is what CPython does, and nothing else is executed."""

import ast
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from itertools import product
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.proofs.unbounded import machine, semantics
from hitproof.proofs.unbounded.loops import Shapes
from hitproof.proofs.unbounded.machine import DESCRIBED, Frame, Machine, Path
from hitproof.proofs.unbounded.proving import Conclusion, Proof, Statement, Verdict, prove
from hitproof.proofs.unbounded.semantics import ROWS, Row
from hitproof.proofs.unbounded.source import Unsupported, source_of
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    Distinct,
    Entries,
    Items,
    Listing,
    Raised,
    is_number,
    is_truth,
    type_of,
)

pytestmark = pytest.mark.slow


def given_to(row: Row, x: Any, y: Any, of: Any) -> dict[str, Any]:
    return dict(zip(inspect.signature(row).parameters, (x, y, of), strict=False))


def run(row: Row, x: int, y: int, more: int = 0) -> tuple[Proof, bool]:
    """The proof that a row gives what CPython does, of symbols with these values; and if it does.

    With ``more`` it is to give so much more.
    """
    result, raises = 0, ""
    try:
        result = row(**given_to(row, x, y, {"x": x, "y": y}))
    except Exception as error:
        raises = f"it raises {type(error).__name__} (semantics.py:"

    def state(here: Arithmetic) -> Statement:
        at_x, at_y = here.atom("x"), here.atom("y")

        def conclusions(found: Any) -> Iterator[Conclusion]:
            yield "it is so", lambda: found == result + more

        arguments = given_to(row, at_x, at_y, Entries({"x": at_x, "y": at_y}))
        shapes = Shapes(numbers=(at_x, at_y))
        return Statement(row, arguments, (at_x == x, at_y == y), conclusions, shapes)

    proof = prove(state)
    if raises:
        return proof, proof.detail.startswith(raises)
    return proof, proof.verdict is Verdict.PROVED


@pytest.mark.parametrize("row", ROWS, ids=lambda each: each.__name__)
@given(st.integers(-9, 9), st.integers(-9, 9))
@settings(max_examples=6, deadline=None)
def test_symbolic_results_are_those_of_python(row: Row, x: int, y: int) -> None:
    proof, as_python = run(row, x, y)
    assert as_python, proof
    if proof.verdict is Verdict.PROVED:
        assert run(row, x, y, 1)[0].verdict is Verdict.FAILED


OF_VLLM = ("_of_block", "has_hash", "change_hashes", "_counted", "_fill")
"""What is about blocks: their hashes, how often one is in a list, and lists of those freed."""


def test_all_that_is_executed_is_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the machine, and each function and operator that it knows, are used by some."""
    seen: set[object] = set()

    def noting(known: object, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            seen.add(known)
            return function(*arguments, **named)

        return noted

    for of in (machine._OF_LISTS, machine._OF_MARKS):
        for name, told in of.items():
            monkeypatch.setitem(of, name, noting(name, told))
    noted = tuple((function, noting(function, told)) for function, told in DESCRIBED)
    monkeypatch.setattr(machine, "DESCRIBED", noted)
    executes = {n for n, each in vars(Machine).items() if isinstance(each, FunctionType)}
    executes -= {"__init__", *OF_VLLM}
    for name in executes:
        monkeypatch.setattr(Machine, name, noting(name, getattr(Machine, name)))
    for row, (x, y) in product(ROWS, ((-6, 3), (3, 2), (0, 0))):
        run(row, x, y)
    assert seen == executes | {function for function, _ in DESCRIBED}
    assert {*operators()} <= {type(each) for row in ROWS for each in ast.walk(tree(row))}


def tree(row: Row) -> ast.AST:
    return source_of(row).definition  # type: ignore[arg-type]  # rows are functions


def operators() -> Iterator[Any]:
    """The operators that the machine executes."""
    here = Arithmetic()
    executes = Machine(here, Path(here, ()), lambda *_: None)
    row: Any = semantics.integers
    frame = Frame(row, source_of(row))
    frame.variables = {"x": 5, "y": 3, "set": machine._set(executes)}
    x, y, of_set = (ast.Name(name, ast.Load()) for name in frame.variables)
    membership = (ast.In, ast.NotIn)
    forms: dict[type, Callable[[Any], ast.expr]] = {
        ast.operator: lambda op: ast.BinOp(x, op, y),
        ast.unaryop: lambda op: ast.UnaryOp(op, x),
        ast.boolop: lambda op: ast.BoolOp(op, [x, y]),
        ast.cmpop: lambda op: ast.Compare(x, [op], [of_set if type(op) in membership else y]),
    }
    for base, form in forms.items():
        found: list[Any] = base.__subclasses__()
        for each in found:
            try:
                executes.value(form(each()), frame)
            except Unsupported as error:
                if not error.construct.startswith(f"the operator {each.__name__}"):
                    yield each
            else:
                yield each


# --- other semantics, each of which is noticed


KNOWN = dict(vars(Machine))
AS_LOOP, BOUND = machine._as_loop, machine._bound


def bounded(self: Machine, op: ast.operator, left: Any, right: Any) -> Any:
    """Numbers of 32 bits."""
    result = KNOWN["_operate"](self, op, left, right)
    return self._divided(result + 2**31, 2**32) * -(2**32) + result


def truncating(self: Machine, left: Any, right: Any) -> Any:
    if not self.decide(right != 0):
        raise Raised("ZeroDivisionError")
    same = self.decide(left >= 0) == self.decide(right >= 1)
    left = left if self.decide(left >= 0) else -left
    right = right if self.decide(right >= 1) else -right
    quotient = self.arithmetic.floor_div(left, right)
    return quotient if same else -quotient


def whole_chain(self: Machine, node: ast.Compare, frame: Frame) -> Any:
    values = [self.value(each, frame) for each in (node.left, *node.comparators)]
    pairs = zip(node.ops, values, values[1:], strict=False)
    holds = [self.decide(self._compared(*each)) for each in pairs]
    return all(holds)


def all_operands(self: Machine, node: ast.BoolOp, frame: Frame) -> Any:
    found = [self.truth(self.value(each, frame)) for each in node.values]
    return any(found) if isinstance(node.op, ast.Or) else all(found)


def above_zero(self: Machine, value: Any) -> bool:
    is_below = is_number(value) and self.decide(value <= -1)
    return not is_below and KNOWN["truth"](self, value)


def equal_lists(self: Machine, left: Any, right: Any) -> bool:
    both = isinstance(left, Listing) and isinstance(right, Listing)
    return both or KNOWN["_identical"](self, left, right)


def falling_through(self: Machine, node: ast.If, frame: Frame) -> None:
    KNOWN["_do_if"](self, node, frame)
    self.block(node.orelse, frame)


def copying(self: Machine, target: ast.expr, value: Any, frame: Frame) -> None:
    if isinstance(value, Listing):
        items = None if value.items is None else list(value.items)
        value = replace(value, items=items)
    KNOWN["assign"](self, target, value, frame)


def from_the_front(_self: Machine, of: Any) -> Any:
    return of.items.pop(0)


def one_more(self: Machine, of: Listing, by: Any) -> None:
    KNOWN["spread"](self, of, by)
    of.length = of.length + 1


def of_any_sign(self: Machine, of: Listing, times: Any) -> Listing:
    made: Listing = KNOWN["_repeated"](self, of, times)
    made.length = times
    return made


def from_the_start(self: Machine, of: Items, place: Any) -> Any:
    return KNOWN["_edge"](self, of, place if self.decide(place >= 0) else 0)


def without_negative_ones(self: Machine, length: Any, place: Any) -> Any:
    if not self.decide(place >= 0):
        raise Raised("IndexError")
    return KNOWN["_place"](self, length, place)


def breaking_no_loop(self: Machine, node: Any, frame: Frame) -> bool:
    KNOWN["iteration"](self, node, frame)
    return True


def unconditional(node: Any, part: ast.comprehension) -> ast.For:
    free = ast.comprehension(part.target, part.iter, [], 0)
    return AS_LOOP(node, free)


def duplicates(self: Machine, node: ast.Set, frame: Frame) -> Any:
    return Distinct(tuple(self.value(each, frame) for each in node.elts))


def from_one(self: Machine, over: Any) -> Items:
    items = self.items(over)
    return Items(items.length, lambda place: (place + 1, items.at(place)), lists=items.lists)


def always_default(_self: Machine, _of: Any, _key: Any, default: Any = None) -> Any:
    return default


def defaults_win(function: Any, arguments: Any, named: Any) -> dict[str, Any]:
    bound = BOUND(function, arguments, named)
    return bound | (function.__kwdefaults__ or {})


def of_the_first_class(self: Machine, of: type, receiver: Any, name: str) -> Any:
    for each in reversed(of.__mro__):
        if name in vars(each):
            return KNOWN["_of_class"](self, each, receiver, name)
    raise AssertionError


def no_integer(value: Any) -> Any:
    return float if is_truth(value) else type_of(value)


def ignored(*_: Any) -> None:
    pass


def described(of: Any, told: Callable[..., Any]) -> tuple[object, str, Any]:
    return machine, "DESCRIBED", ((of, told), *DESCRIBED)


MUTANTS: dict[Row, tuple[Any, str, Any]] = {
    semantics.integers: (Machine, "_operate", bounded),
    semantics.division: (Machine, "_divided", truncating),
    semantics.comparisons: (Machine, "_of_compare", whole_chain),
    semantics.operands: (Machine, "_of_boolop", all_operands),
    semantics.truth: (Machine, "truth", above_zero),
    semantics.identity: (Machine, "_identical", equal_lists),
    semantics.conditions: (Machine, "_do_if", falling_through),
    semantics.assignments: (Machine, "assign", copying),
    semantics.lists: (machine, "_OF_LISTS", {**machine._OF_LISTS, "pop": from_the_front}),
    semantics.spreading: (Machine, "spread", one_more),
    semantics.repetition: (Machine, "_repeated", of_any_sign),
    semantics.shared: (Machine, "assign", copying),
    semantics.slices: (Machine, "_edge", from_the_start),
    semantics.places: (Machine, "_place", without_negative_ones),
    semantics.ranges: described(range, lambda self, *of: machine._range(self, *of[:2])),
    semantics.loops: (Machine, "iteration", breaking_no_loop),
    semantics.any_number_of_iterations: (Machine, "iteration", breaking_no_loop),
    semantics.comprehensions: (machine, "_as_loop", unconditional),
    semantics.extremes: described(min, machine._extreme(operator.gt)),
    semantics.pairs: described(enumerate, from_one),
    semantics.order: (Machine, "_of_set", duplicates),
    semantics.marks: (machine, "_OF_MARKS", {**machine._OF_MARKS, "clear": ignored}),
    semantics.dicts: (Machine, "get", always_default),
    semantics.calls: (machine, "_bound", defaults_win),
    semantics.objects: (Machine, "_of_class", of_the_first_class),
    semantics.types: (machine, "type_of", no_integer),
    semantics.exceptions: (Machine, "_do_assert", ignored),
}
"""Of each row, what part of the machine to replace by what is not Python's semantics."""


@pytest.mark.parametrize("row", ROWS, ids=lambda each: each.__name__)
def test_other_semantics_are_noticed(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[row])
    runs = (run(row, x, y) for x, y in product((-4, 0, 3, 8), (-3, 0, 2, 8)))
    assert any(not right and proof.verdict is Verdict.FAILED for proof, right in runs)

"""Formulas: the spec's own clauses, run on symbols and written as MathML.

A clause is a Python function that works on ints and on symbols. Here it is given symbols that
write down what is done with them, so a formula cannot say anything else than its code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from inspect import Parameter, signature
from typing import Any, get_origin

from hitproof.spec.eviction import Queued
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.pool import BlockState
from hitproof.spec.terms import Formula, Symbol, Term

SYMBOLS = {
    "alignment_tokens": "A",
    "block": "i",
    "block_size": "b",
    "boundary": "L",
    "chunk": "C",
    "hash_lookahead": "h",
    "interval": "R",
    "lookahead": "e",
    "query": "q",
    "segment": "P",
    "tail": "t",
    "token": "k",
    "window": "w",
}
"""Letters for what clauses take; whatever has none goes by its own name."""

_OR, _AND, _COMPARED, _SUM, _PRODUCT, _ATOM = range(6)


@dataclass(frozen=True, eq=False)
class Written(Symbol):
    """A term or a formula as MathML, with how tightly its outermost sign binds."""

    mathml: str
    binding: int = _ATOM

    def __bool__(self) -> bool:
        raise NotWritable("a symbol is neither true nor false")

    def __add__(self, other: Term) -> "Written":
        if isinstance(other, int) and other == 0:
            return self
        return _joined("+", _SUM, self, other)

    def __radd__(self, other: Term) -> "Written":
        return _joined("+", _SUM, other, self)

    def __sub__(self, other: Term) -> "Written":
        if isinstance(other, int) and other == 0:
            return self
        return _joined("&minus;", _SUM, self, _inside(_written(other), _PRODUCT))

    def __rsub__(self, other: Term) -> "Written":
        return _joined("&minus;", _SUM, other, _inside(self, _PRODUCT))

    def __mul__(self, other: Term) -> "Written":
        return _joined("&middot;", _PRODUCT, self, other)

    def __rmul__(self, other: Term) -> "Written":
        return _joined("&middot;", _PRODUCT, other, self)

    def __floordiv__(self, other: Term) -> "Written":
        return _fenced("&lfloor;", _fraction(self, other), "&rfloor;")

    def __rfloordiv__(self, other: Term) -> "Written":
        return _fenced("&lfloor;", _fraction(other, self), "&rfloor;")

    def __le__(self, other: Term) -> "Written":
        return _joined("&le;", _COMPARED, self, other)

    def __lt__(self, other: Term) -> "Written":
        return _joined("&lt;", _COMPARED, self, other)

    def __ge__(self, other: Term) -> "Written":
        return _joined("&le;", _COMPARED, other, self)

    def __gt__(self, other: Term) -> "Written":
        return _joined("&lt;", _COMPARED, other, self)

    def __eq__(self, other: object) -> "Written":  # type: ignore[override]
        return _joined("=", _COMPARED, self, other)

    def __and__(self, other: Formula) -> "Written":
        if _written(other).mathml == self.mathml:
            return self
        return _joined("&and;", _AND, self, other)

    def __rand__(self, other: Formula) -> "Written":
        return _joined("&and;", _AND, other, self)

    def __or__(self, other: Formula) -> "Written":
        return _either(self, other)

    def __ror__(self, other: Formula) -> "Written":
        return _either(other, self)


class NotWritable(Exception):
    """A clause that decides by the values it is given; its code is all there is to show."""


class Notation:
    """The `Logic` of what is written down."""

    def __init__(self) -> None:
        self._quantifiers = 0

    def ceil_div(self, dividend: Term, divisor: Term) -> Written:
        """The quotient between ceiling signs."""
        return _fenced("&lceil;", _fraction(dividend, divisor), "&rceil;")

    def max(self, left: Term, right: Term) -> Written:
        """A call of max, unless it is of equals."""
        if _written(left).mathml == _written(right).mathml:
            return _written(left)
        return called("max", left, right)

    def min(self, left: Term, right: Term) -> Written:
        """A call of min."""
        return called("min", left, right)

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Written:
        """A quantifier with its range."""
        index = symbol("jmn"[self._quantifiers])
        bounds = _joined("&lt;", _COMPARED, _joined("&le;", _COMPARED, start, index), end)
        self._quantifiers += 1
        try:
            body = _written(holds(index))
        finally:
            self._quantifiers -= 1
        return Written(
            f"<mo>&forall;</mo>{bounds.mathml}<mo>:</mo><mspace width='0.4em'/>{body.mathml}", _OR
        )

    def implies(self, premise: Formula, conclusion: Formula) -> Written:
        """An arrow."""
        parts = (_inside(_written(each), _AND).mathml for each in (premise, conclusion))
        return Written("<mo>&rArr;</mo>".join(parts), _OR)

    def choose(self, condition: Formula, then: Term, otherwise: Term) -> Written:
        """A call of if."""
        return called("if", condition, then, otherwise)

    def least(self, holds: Callable[[Term], Formula]) -> Written:
        """A call of min."""
        return called("min", holds(symbol("n")))

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Written:
        """A call of max, of multiples."""
        return called("max", holds(called("multiple", step, limit)))

    def not_(self, formula: Formula) -> Written:
        """The sign for not."""
        return Written(f"<mo>&not;</mo>{_inside(_written(formula), _ATOM).mathml}", _COMPARED)


Written.logic = Notation()


def symbol(name: str) -> Written:
    """A letter, or a word as it is."""
    letter = SYMBOLS.get(name, name)
    upright = " mathvariant='normal'" if len(letter) > 1 else ""
    return Written(f"<mi{upright}>{escape(letter.replace('_', ' '))}</mi>")


def called(name: str, *arguments: Term) -> Written:
    """A function of terms."""
    listed = "<mo>,</mo>".join(_written(each).mathml for each in arguments)
    of = f"<mi mathvariant='normal'>{escape(name.replace('_', ' '))}</mi>"
    return Written(f"{of}<mo>(</mo>{listed}<mo>)</mo>")


def _written(term: Term) -> Written:
    if isinstance(term, Written):
        return term
    if isinstance(term, bool):
        return Written(f"<mi mathvariant='normal'>{str(term).lower()}</mi>")
    if isinstance(term, int):
        return Written(f"<mn>{term}</mn>")
    raise NotWritable(f"{term!r} cannot be written down")


def _inside(term: Written, binding: int) -> Written:
    """The term, in parentheses unless it binds at least that tightly."""
    return term if term.binding >= binding else _fenced("(", term, ")")


def _fenced(left: str, term: Written, right: str) -> Written:
    return Written(f"<mrow><mo>{left}</mo>{term.mathml}<mo>{right}</mo></mrow>")


def _fraction(dividend: Term, divisor: Term) -> Written:
    above, below = _written(dividend).mathml, _written(divisor).mathml
    return Written(f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>")


def _joined(sign: str, binding: int, *terms: Term) -> Written:
    parts = (_inside(_written(each), binding).mathml for each in terms)
    return Written(f"<mo>{sign}</mo>".join(parts), binding)


def _either(left: Formula, right: Formula) -> Written:
    """Or; what is joined by and stands in parentheses."""
    sides = [_written(each) for each in (left, right)]
    shown = (each if each.binding == _OR else _inside(each, _COMPARED) for each in sides)
    return Written("<mo>&or;</mo>".join(each.mathml for each in shown), _OR)


@dataclass(frozen=True)
class Line:
    """One formula.

    Attributes:
        case: what it is for, where a clause differs from kind to kind; empty if it is for all.
        mathml: the formula.
        symbols: what each letter stands for, by letter.
    """

    case: str
    mathml: str
    symbols: dict[str, str]


def formulas(clause: Callable[..., Any]) -> tuple[Line, ...]:
    """The clause as formulas, one a case; none when it decides by values, not by terms."""
    parameters = tuple(signature(clause).parameters.values())
    lines = []
    try:
        for case, arguments in _cases(parameters):
            told = clause(**arguments)
            said = tuple(_equations(clause, parameters, arguments, told))
            lines += [Line(case, text, _letters(text)) for text in said]
    except NotWritable:
        return ()
    alike: dict[str, list[Line]] = {}
    for line in lines:
        alike.setdefault(line.mathml, []).append(line)
    if len(alike) == 1:
        return (replace(lines[0], case=""),)
    return tuple(
        replace(same[0], case="; ".join(line.case for line in same)) for same in alike.values()
    )


def _equations(
    clause: Callable[..., Any],
    parameters: Sequence[Parameter],
    arguments: dict[str, Any],
    told: Any,
) -> Iterator[str]:
    shown = [symbol(each.name) for each in parameters if isinstance(arguments[each.name], Written)]
    head = called(clause.__name__, *shown) if shown else symbol(clause.__name__)
    if not isinstance(told, BlockState):
        result = _written(told)
        sign = "=" if result.binding in (_SUM, _PRODUCT, _ATOM) else "&hArr;"
        yield f"{head.mathml}<mo>{sign}</mo>{result.mathml}"
        return
    for part in fields(BlockState):
        before, after = symbol(part.name), _written(getattr(told, part.name))
        if before.mathml != after.mathml:
            yield f"{head.mathml}<mo>:</mo>{before.mathml}<mo>&larr;</mo>{after.mathml}"


def _letters(mathml: str) -> dict[str, str]:
    return {
        letter: name.replace("_", " ")
        for name, letter in SYMBOLS.items()
        if f"<mi>{letter}</mi>" in mathml
    }


def _cases(parameters: Sequence[Parameter]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The arguments to run a clause on, by name, for each kind and with what may be left out."""
    takes_kind = any(each.annotation in (BlockGeometry, GroupKind) for each in parameters)
    options = [each.name for each in parameters if each.annotation == Term | None]
    states = sum(each.annotation is BlockState for each in parameters)
    for kind in GroupKind if takes_kind else (None,):
        for given in (None, *options):
            told = [kind.replace("_", " ")] if kind else []
            told += [f"{given} given" if given else f"no {' or '.join(options)}"] if options else []
            absent = set(options) - {given}
            yield (
                ", ".join(told),
                {
                    each.name: None if each.name in absent else _argument(each, kind, states > 1)
                    for each in parameters
                },
            )


def _argument(parameter: Parameter, kind: GroupKind | None, several_states: bool) -> Any:
    wanted, name = parameter.annotation, parameter.name
    if wanted in (Term, Term | None):
        return symbol(name)
    if wanted is GroupKind:
        return kind
    if wanted is BlockGeometry and kind is not None:
        return _shape(kind)
    if wanted is BlockState:
        of = f"{name} " if several_states else ""
        return BlockState(**{each.name: symbol(of + each.name) for each in fields(BlockState)})
    if wanted is Queued:
        return Queued(**{each.name: symbol(f"{name} {each.name}") for each in fields(Queued)})
    if wanted == Sequence[Term]:
        return [symbol(name.removesuffix("s"))]
    if get_origin(wanted) is Callable:
        return lambda *terms: called(name, *terms)
    raise NotWritable(f"{name} is a {wanted}")


def _shape(kind: GroupKind) -> BlockGeometry:
    """Any group of a kind; a lookahead that it never has is 0."""
    sizes: dict[str, Term] = {each.name: symbol(each.name) for each in fields(BlockGeometry)[1:]}
    window = 1 if kind is GroupKind.SLIDING_WINDOW else None
    chunk = 1 if kind is GroupKind.CHUNKED_LOCAL else None
    if geometry(Group(kind, 1, window, eagle=True, chunk=chunk), 1).lookahead == 0:
        sizes["lookahead"] = 0
    return BlockGeometry(kind, **sizes)

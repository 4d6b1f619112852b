"""Numbers and truth values without a value, and what Z3 is told about them.

A `Number` is a polynomial over atoms with integer coefficients, a `Truth` a formula over
comparisons of polynomials. Z3 sees a product of atoms as one opaque integer, with lemmas that
compare products which share a positive factor (`proofs.unbounded.knowledge`); so all that it is
asked is linear, without quantifiers, and a failure comes with values. They need not be values of
real products, so that what is refuted has to be shown by running the function.

A number and a formula that are the same polynomial are the same term: quotients and maxima are
named after their operands.

Terms, their facts and Z3's terms of them depend on each other: the module has more than 400 lines.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property, reduce
from typing import Any, TypeAlias

import z3

from hitproof.spec.terms import Family, Formula, Symbol, Term

Monomial: TypeAlias = tuple[str, ...]
"""The atoms of a product, sorted; none for the constant."""


def _polynomial(arithmetic: "Arithmetic", terms: dict[Monomial, int]) -> "Number | int":
    if 0 in terms.values():
        terms = {monomial: times for monomial, times in terms.items() if times}
    if len(terms) <= 1 and (not terms or () in terms):
        return terms.get((), 0)
    return Number(arithmetic, terms)


def terms_of(value: "Number | int") -> dict[Monomial, int]:
    """The coefficients of a number, by monomial."""
    return value.terms if isinstance(value, Number) else {(): int(value)}


class Number(Symbol):
    """A polynomial that is no constant. Comparisons give a `Truth`, or a bool if they are clear."""

    __slots__ = ("_key", "logic", "terms")

    def __init__(self, arithmetic: "Arithmetic", terms: dict[Monomial, int]) -> None:
        self.logic: Arithmetic = arithmetic
        self.terms = terms
        self._key: tuple[tuple[Monomial, int], ...] | None = None

    @property
    def key(self) -> tuple[tuple[Monomial, int], ...]:
        """What is the same for equal polynomials only."""
        if self._key is None:  # most are only added to others
            self._key = tuple(sorted(self.terms.items()))
        return self._key

    def __repr__(self) -> str:
        shown = [
            (f"{times}*" if abs(times) != 1 or not monomial else "-" if times < 0 else "")
            + "*".join(monomial)
            for monomial, times in self.key
        ]
        return "(" + " + ".join(each.rstrip("*") for each in shown) + ")"

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is neither zero nor another number")

    def _plus(self, other: "Number | int", times: int) -> "Number | int":
        if isinstance(other, int) and not other:
            return self
        total = dict(self.terms)
        for monomial, coefficient in terms_of(other).items():
            total[monomial] = total.get(monomial, 0) + times * coefficient
        return _polynomial(self.logic, total)

    def __add__(self, other: Term) -> Term:
        return self._plus(other, 1)

    def __sub__(self, other: Term) -> Term:
        return self._plus(other, -1)

    def __neg__(self) -> Term:
        return self * -1

    def __rsub__(self, other: Term) -> Term:
        return -self + other

    def __mul__(self, other: Term) -> Term:
        if isinstance(other, int):
            scaled = {monomial: times * other for monomial, times in self.terms.items()}
            return _polynomial(self.logic, scaled)
        product: dict[Monomial, int] = {}
        for left, times in self.terms.items():
            for right, other_times in terms_of(other).items():
                monomial = tuple(sorted(left + right))
                product[monomial] = product.get(monomial, 0) + times * other_times
        return _polynomial(self.logic, product)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Term) -> Term:
        return self.logic.floor_div(self, other)

    def __rfloordiv__(self, other: Term) -> Term:
        return self.logic.floor_div(other, self)

    def __mod__(self, other: Term) -> Term:
        return self - self // other * other

    def __rmod__(self, other: Term) -> Term:
        return other - other // self * self

    def __ge__(self, other: Term) -> Formula:
        return self.logic.at_least_zero(self - other)

    def __le__(self, other: Term) -> Formula:
        return self.logic.at_least_zero(other - self)

    def __gt__(self, other: Term) -> Formula:
        return self.logic.at_least_zero(self - other - 1)

    def __lt__(self, other: Term) -> Formula:
        return self.logic.at_least_zero(other - self - 1)

    def __eq__(self, other: object) -> Any:
        return self.logic.is_zero(self - other)

    def __ne__(self, other: object) -> Any:
        return self.logic.not_(self == other)

    __hash__ = None  # type: ignore[assignment]


class Truth(Symbol):
    """A formula that is neither true nor false: an operation and its operands.

    Equal ones are one object (`Arithmetic.truth`), so that each is worked out once.
    """

    __slots__ = ("key", "logic", "operands", "operation", "opposite")

    def __init__(self, arithmetic: "Arithmetic", key: tuple[str, int], operands: Any) -> None:
        self.logic: Arithmetic = arithmetic
        self.operation, self.operands, self.key = key[0], operands, key
        self.opposite: Formula | None = None

    def __repr__(self) -> str:
        return f"{self.operation}({', '.join(map(str, self.operands))})"

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is neither true nor false")

    def _joined(self, operation: str, neutral: bool, other: Formula) -> Formula:
        if isinstance(other, bool):
            return self if other is neutral else other
        return self if self is other else self.logic.truth(operation, self, other)

    def __and__(self, other: Formula) -> Formula:
        return self._joined("and", True, other)

    def __or__(self, other: Formula) -> Formula:
        return self._joined("or", False, other)

    __rand__, __ror__ = __and__, __or__


class Few(Family):
    """A family of these items."""

    def __init__(self, arithmetic: "Arithmetic", *items: Any) -> None:
        self.logic: Arithmetic = arithmetic
        self._items = items

    def for_each(self, holds: Callable[[Term, Any], Formula]) -> Formula:
        """What holds of all of them."""
        formulas = (holds(index, item) for index, item in enumerate(self._items))
        return reduce(operator.and_, formulas, True)

    def map(self, change: Callable[[Any], Any]) -> "Few":
        """The items, changed."""
        return Few(self.logic, *map(change, self._items))


class Arithmetic:
    """The `Logic` of these symbols, and the solver that knows all facts about their atoms.

    Facts hold on every path: definitions of quotients and maxima, lemmas about products, and what
    `for_all` and each block asked about have to do with each other.

    Attributes:
        position: an arbitrary place. What is to hold at every place is shown at this one.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.positive: set[str] = set()
        self._known: set[str] = set()
        self._facts: dict[str, list[tuple[frozenset[str], Formula]]] = {}
        self._truths: dict[Any, Truth] = {}
        self._comparisons: dict[Any, Formula] = {}
        self._expressions: dict[Any, Any] = {}
        self._variables: dict[tuple[Monomial, int], Any] = {}
        self._mentioned: dict[Any, tuple[frozenset[str], frozenset[Monomial]]] = {}
        self._asked: dict[Any, Term] = {}
        self._items: dict[str, dict[Any, tuple[Term, Number]]] = {}
        self._quantified: dict[Any, tuple[Truth, Term, Term, Callable[[Term], Formula]]] = {}
        self._counterexamples: list[Formula] = []
        self._multiples: dict[str, list[tuple[Monomial, Monomial]]] = {}
        self._noting = True
        self.lemmas: dict[tuple[str, Monomial, Monomial], list[Any]] = {}
        self.every_fact: list[tuple[frozenset[str], Formula]] = []
        self.solving: Any = None  # `proofs.unbounded.knowledge` shares it between paths
        self.possible: dict[tuple[Formula, ...], bool] = {}  # see `proofs.unbounded.machine.Path`
        self.required: set[tuple[Formula, ...]] = set()  # the same
        self.queries = 0
        self.position = self.atom("position")

    # --- what there is

    def atom(self, name: str, least: int | None = None) -> Number:
        """The integer of that name, at least ``least``, the same each time."""
        number = Number(self, {(name,): 1})
        if name not in self._known:
            self._known.add(name)
            if least is not None:
                if least >= 1:
                    self.positive.add(name)
                self.fact(self.truth("at least 0", number - least), [name])
        return number

    def named(self, number: Term) -> Number:
        """A number as one without a value, also if it has one."""
        if isinstance(number, Number):
            return number
        atom = self.atom(f"[{number}]")
        self.fact(atom == number, [f"[{number}]"])
        return atom

    def flag(self, name: str) -> Truth:
        """The truth value of that name, the same each time."""
        return self.truth("flag", name)

    def truth(self, operation: str, *operands: Any) -> Truth:
        """A formula, as it is."""
        key = (operation, *(getattr(each, "key", each) for each in operands))
        known = self._truths.get(key)
        if known is None:
            known = self._truths[key] = Truth(self, (operation, len(self._truths)), operands)
        return known

    def holds_at(self, predicate: str, place: Term) -> Formula:
        """Whether an unknown predicate holds at a place, about which quantifiers are asked, too."""
        if self._noting:
            key = repr(place)
            if key not in self._asked:
                self._asked[key] = place
                for quantified in list(self._quantified.values()):
                    self._instantiate(quantified, place)
        return self.truth("holds", predicate, place)

    def item(self, of: str, place: Term) -> Number:
        """The number at a place of a sequence of unknown ones; at equal places it is the same."""
        number = self.atom(f"{of}[{place}]")
        known = self._items.setdefault(of, {})
        if number.key not in known:
            for other_place, other in known.values():
                names = [n for t in (place, other_place, number, other) for n in names_in(t)]
                self.fact(self.implies(place == other_place, number == other), names)
            known[number.key] = place, number
        return number

    def fact(self, formula: Formula, of: Iterable[str]) -> None:
        """Take for granted wherever all of these atoms and flags are spoken of."""
        names = frozenset(of)
        if formula is not True:
            self.every_fact.append((names, formula))
            for name in names:
                self._facts.setdefault(name, []).append((names, formula))

    def equal_products(self, left: Number, right: Number) -> None:
        """What is divided by a factor of either is from now on an exact multiple of the rest.

        That both are equal is to be supposed wherever they are spoken of.
        """
        (one,), (other,) = left.terms, right.terms
        for product, same in ((one, other), (other, one)):
            for factor in set(same) - set(product):
                known = self._multiples.setdefault(factor, [])
                known.append((product, without(same, factor)))

    # --- what operators and the functions of `spec.terms` mean

    def at_least_zero(self, number: Term) -> Formula:
        """Whether a number is at least 0, without the positive factors that all its terms share."""
        if isinstance(number, int):
            return number >= 0
        key = "at least 0", number.key
        known = self._comparisons.get(key)
        if known is None:
            known = self._comparisons[key] = self._at_least_zero(number)
        return known

    def _at_least_zero(self, number: Number) -> Formula:
        number = self._without_common_factors(number)
        above = number + 1
        if isinstance(above, Number):
            divided = self._without_common_factors(above)
            if divided is not above:  # n * x >= 1 if and only if x >= 1
                return self.at_least_zero(divided - 1)
        if self._is_positive(number.terms):
            return True
        negated = terms_of(-number - 1)
        return False if self._is_positive(negated) else self.truth("at least 0", number)

    def _is_positive(self, terms: dict[Monomial, int]) -> bool:
        """Whether a polynomial of positive atoms is at least 0 whatever they are.

        Each is at least 1, so that the sum of coefficients is the least value where none of the
        others is below 0.
        """
        others = [(monomial, times) for monomial, times in terms.items() if monomial]
        return sum(terms.values()) >= 0 and all(
            times >= 0 and self.positive.issuperset(monomial) for monomial, times in others
        )

    def is_zero(self, number: Term) -> Formula:
        """Whether a number is 0, without the positive factors that all its terms share."""
        if isinstance(number, int):
            return number == 0
        key = "is 0", number.key
        known = self._comparisons.get(key)
        if known is None:
            known = self._comparisons[key] = self._is_zero(number)
        return known

    def _is_zero(self, number: Number) -> Formula:
        number = self._without_common_factors(number)
        if any(self._is_positive(terms_of(each - 1)) for each in (number, -number)):
            return False
        first = number.key[-1][1]
        return self.truth("is 0", number if first > 0 else -number)

    def _without_common_factors(self, number: Number) -> Number:
        first, *others = number.terms
        for factor in first:
            if factor in self.positive and all(factor in other for other in others):
                divided = {without(each, factor): times for each, times in number.terms.items()}
                return self._without_common_factors(Number(self, divided))
        return number

    def not_(self, formula: Formula) -> Formula:
        """Negation; of a comparison, the opposite one."""
        if isinstance(formula, bool):
            return not formula
        if formula.opposite is None:
            formula.opposite = self._opposite(formula)
        return formula.opposite

    def _opposite(self, formula: Truth) -> Formula:
        if formula.operation == "not":
            return formula.operands[0]
        if formula.operation == "at least 0":
            return self.at_least_zero(-formula.operands[0] - 1)
        return self.truth("not", formula)

    def implies(self, premise: Formula, conclusion: Formula) -> Formula:
        """Material implication."""
        return self.not_(premise) | conclusion

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """Division, rounded down, for a divisor of at least 1.

        One by a product is one by each of its factors in turn, common ones first.
        """
        dividend_terms, terms = terms_of(dividend), terms_of(divisor)
        if len(terms) == 1:
            ((monomial, times),) = terms.items()
            if times < 0 and self.positive.issuperset(monomial):
                return self.floor_div(-dividend, -divisor)
            if self.positive.issuperset(monomial):
                shared = [f for f in monomial if all(f in each for each in dividend_terms)]
                left = [each for each in monomial if each not in shared]
                quotient = dividend
                for factor in [*shared, *left]:
                    quotient = self._divided(quotient, factor)
                quotient = self._divided(quotient, times) if times > 1 else quotient
                if len(left) + (times > 1) > 1:
                    self._fits(quotient, dividend, divisor)
                return quotient
        return self._quotient(dividend, divisor)

    def _divided(self, dividend: Term, factor: str | int) -> Term:
        """Divide by a positive atom or number: the exact part, and a quotient of the rest."""
        exact: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, times in terms_of(dividend).items():
            if isinstance(factor, int):
                exact[monomial], rest[monomial] = divmod(times, factor)
            elif (divided := self._exactly(monomial, factor)) is not None:
                exact[divided] = exact.get(divided, 0) + times
            else:
                rest[monomial] = times
        left = _polynomial(self, rest)
        if isinstance(left, int) and (left in (0, -1) or isinstance(factor, int)):
            quotient: Term = -1 if left == -1 and isinstance(factor, str) else 0
        else:
            by = factor if isinstance(factor, int) else Number(self, {(factor,): 1})
            quotient = self._quotient(left, by)
        return _polynomial(self, exact) + quotient

    def _exactly(self, monomial: Monomial, factor: str) -> Monomial | None:
        """A product without a factor of it; None if it is not known to have that."""
        if factor in monomial:
            return without(monomial, factor)
        for product, times in self._multiples.get(factor, ()):
            left = reduce(without, product, monomial) if _is_part(product, monomial) else None
            if left is not None:
                return reduce(with_factor, times, left)
        return None

    def _quotient(self, dividend: Term, divisor: Term) -> Term:
        if isinstance(dividend, Number) and _is_turned(dividend):
            # Rounded up, it has the sign of what it is compared with.
            name = f"[{-dividend} / {divisor} or more]"
            new = name not in self._known
            quotient = self.atom(name)
            if new:
                product = quotient * divisor
                fits = (product >= -dividend) & (product < divisor - dividend)
                self.fact(self.implies(divisor >= 1, fits), names_in(quotient))
            return -quotient
        name = f"[{dividend} // {divisor}]"
        new = name not in self._known
        quotient = self.atom(name)
        if new:
            self._fits(quotient, dividend, divisor)
        return quotient

    def _fits(self, quotient: Term, dividend: Term, divisor: Term) -> None:
        """Say what a quotient is, once, also of one by several factors in turn."""
        name = f"{quotient} is {dividend} // {divisor}"
        if isinstance(quotient, Number) and name not in self._known:
            self._known.add(name)
            product = quotient * divisor
            fits = (product <= dividend) & (dividend < product + divisor)
            self.fact(self.implies(divisor >= 1, fits), names_in(quotient))

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """Division, rounded up."""
        return -self.floor_div(-dividend, divisor)

    def max(self, left: Term, right: Term) -> Term:
        """An atom that is one of the two, and no less than either."""
        decided = left >= right
        if isinstance(decided, bool):
            return left if decided else right
        return self.choose(decided, left, right)

    def min(self, left: Term, right: Term) -> Term:
        """The same with the lesser one."""
        return -self.max(-left, -right)

    def choose(self, condition: Formula, then: Term, otherwise: Term) -> Term:
        """A formula by cases, or an atom that is a term by cases."""
        if isinstance(condition, bool):
            return then if condition else otherwise
        if isinstance(then, (bool, Truth)):
            return (condition & then) | (self.not_(condition) & otherwise)
        name = f"[{then} if {condition} else {otherwise}]"
        new = name not in self._known
        chosen = self.atom(name)
        if new:
            self.fact(self.implies(condition, chosen == then), [name])
            self.fact(condition | (chosen == otherwise), [name])
        return chosen

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """A truth value that implies what is said, at each place that anybody asks about.

        In a conclusion (`Knowledge.fails`) it is false only if what is said fails at `position`.
        """
        self._noting, noting = False, self._noting
        place = self.atom("any place")
        name = f"each from {start} to {end}: {holds(place)}"
        every = self.flag(name)
        at = self.position
        self._counterexamples.append(every | ((start <= at) & (at < end) & self.not_(holds(at))))
        self._noting = noting
        if name not in self._quantified:
            self._quantified[name] = every, start, end, holds
            for asked in list(self._asked.values()):
                self._instantiate(self._quantified[name], asked)
        return every

    def least(self, holds: Callable[[Term], Formula]) -> Term:
        """Not needed for one group."""
        raise NotImplementedError

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Term:
        """Not needed: what is greatest is compared with any other."""
        raise NotImplementedError

    def _instantiate(
        self, quantified: tuple[Truth, Term, Term, Callable[[Term], Formula]], place: Term
    ) -> None:
        every, start, end, holds = quantified
        inside = (start <= place) & (place < end)
        names = [every.operands[0], *names_in(place)]
        self.fact(self.implies(every & inside, holds(place)), names)

    # --- what Z3 is told

    def facts(self, name: str, names: Set[str]) -> list[Formula]:
        """The facts about an atom or flag that speak of these only, among which it is."""
        return [fact for needed, fact in self._facts.get(name, ()) if needed <= names]

    @contextmanager
    def concluding(self) -> Iterator[list[Formula]]:
        """Collect where quantified formulas of a conclusion fail, if they do."""
        found: list[Formula] = []
        self._counterexamples = found
        yield found
        if len({each.key for each in found if isinstance(each, Truth)}) > 1:
            raise NotImplementedError("a conclusion may quantify only once")

    def mentions(self, formula: Truth) -> tuple[frozenset[str], frozenset[Monomial]]:
        """The atoms and flags in a formula, and its products."""
        known = self._mentioned.get(formula.key)
        if known is None:
            names: set[str] = set()
            products: set[Monomial] = set()
            for each in formula.operands:
                if isinstance(each, Truth):
                    inner, multiplied = self.mentions(each)
                    names |= inner
                    products |= multiplied
                elif isinstance(each, Number):
                    names.update(names_in(each))
                    products.update(monomial for monomial in each.terms if len(monomial) > 1)
                elif isinstance(each, str):
                    names.add(each)
            known = self._mentioned[formula.key] = frozenset(names), frozenset(products)
        return known

    def expression(self, formula: Formula) -> Any:
        """Z3's term of a formula."""
        if isinstance(formula, bool):
            return z3.BoolVal(formula, self.context)
        known = self._expressions.get(formula.key)
        if known is None:
            known = self._expressions[formula.key] = self._expression(formula)
        return known

    def _expression(self, formula: Truth) -> Any:
        first = formula.operands[0]
        match formula.operation:
            case "at least 0":
                return self._joined(z3.Z3_mk_ge, self.linear(first), self._zero)
            case "is 0":
                return self._joined(z3.Z3_mk_eq, self.linear(first), self._zero)
            case "flag":
                return z3.Bool(first, self.context)
            case "holds":
                sorts = z3.IntSort(self.context), z3.BoolSort(self.context)
                return z3.Function(first, *sorts)(self.linear(formula.operands[1]))
            case "not":
                return z3.Not(self.expression(first))
        parts = [self.expression(each) for each in formula.operands]
        make = z3.Z3_mk_and if formula.operation == "and" else z3.Z3_mk_or
        return self._of_many(make, parts, z3.BoolRef)

    @cached_property
    def _zero(self) -> Any:
        return z3.IntVal(0, self.context)

    # Z3's operators for Python look at their operands' sorts each time, which takes longer than
    # to solve what they make.

    def _joined(self, make: Callable[..., Any], left: Any, right: Any) -> Any:
        made = make(self.context.ref(), left.as_ast(), right.as_ast())
        return z3.BoolRef(made, self.context)

    def _of_many(self, make: Callable[..., Any], parts: Sequence[Any], of: type) -> Any:
        array = (z3.Ast * len(parts))(*(each.as_ast() for each in parts))
        return of(make(self.context.ref(), len(parts), array), self.context)

    def linear(self, number: Term) -> Any:
        """Z3's term of a number, in which a product is one integer."""
        return self._linear(terms_of(number))

    def _linear(self, terms: Mapping[Monomial, int]) -> Any:
        parts = [self._scaled(*each) for each in terms.items()]
        return parts[0] if len(parts) == 1 else self._of_many(z3.Z3_mk_add, parts, z3.ArithRef)

    def _scaled(self, monomial: Monomial, times: int) -> Any:
        known = self._variables.get((monomial, times))
        if known is None:
            if not monomial:
                known = z3.IntVal(times, self.context)
            elif times == 1:
                known = z3.Int("*".join(monomial), self.context)
            else:
                known = times * self.variable(monomial)
            self._variables[monomial, times] = known
        return known

    def variable(self, monomial: Monomial) -> Any:
        """Z3's integer for an atom or a product."""
        return self._scaled(monomial, 1)

    def implication(
        self,
        compare: Callable[..., Any],
        one: Mapping[Monomial, int],
        other: Mapping[Monomial, int],
    ) -> Any:
        """Z3's term of: if one sum compares with 0 so, the other does."""
        parts = (self._joined(compare, self._linear(each), self._zero) for each in (one, other))
        return self._joined(z3.Z3_mk_implies, *parts)


def _is_turned(number: Number) -> bool:
    """Whether a number is rather the opposite of one."""
    return next((times < 0 for monomial, times in number.key if monomial), False)


def names_in(number: Term) -> Iterator[str]:
    """The atoms in a number."""
    for monomial in terms_of(number):
        yield from monomial


def _is_part(product: Monomial, monomial: Monomial) -> bool:
    """Whether a product of distinct atoms divides another one."""
    return set(product) <= set(monomial)


def without(monomial: Monomial, factor: str) -> Monomial:
    """A product without one of its factors."""
    place = monomial.index(factor)
    return monomial[:place] + monomial[place + 1 :]


def with_factor(monomial: Monomial, factor: str) -> Monomial:
    """A product with one more factor."""
    return tuple(sorted((*monomial, factor)))

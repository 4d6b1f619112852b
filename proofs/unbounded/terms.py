"""Numbers and truth values without a value, and what Z3 is told about them.

A `Number` is a polynomial over atoms with integer coefficients, a `Truth` a formula over
comparisons of polynomials. Z3 sees a product of atoms as one opaque integer, with lemmas that
compare products which share a positive factor; so all that it is asked is linear, without
quantifiers, and a failure comes with values. They need not be values of real products, so that
what is refuted has to be shown by running the function.

A number and a formula that are the same polynomial are the same term: quotients and maxima are
named after their operands.

Terms, their facts and what Z3 is told of them depend on each other: the module has more than 400
lines.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import cached_property, reduce
from typing import Any, TypeAlias

import z3

from hitproof.spec.terms import Family, Formula, Symbol, Term

Monomial: TypeAlias = tuple[str, ...]
"""The atoms of a product, sorted; none for the constant."""

_RESOURCES = 20_000_000
_FEW_RESOURCES = 100_000
_ROUNDS = 8
"""How often values are sought that are real products."""

_FACTORS_APART = 2
"""Up to which difference of two factors their products are compared."""


class GivenUp(Exception):
    """Z3 does not know, within its resources."""


def _polynomial(arithmetic: "Arithmetic", terms: dict[Monomial, int]) -> "Number | int":
    terms = {monomial: times for monomial, times in terms.items() if times}
    if not terms.keys() - {()}:
        return terms.get((), 0)
    return Number(arithmetic, terms)


def terms_of(value: "Number | int") -> dict[Monomial, int]:
    """The coefficients of a number, by monomial."""
    return value.terms if isinstance(value, Number) else {(): int(value)}


class Number(Symbol):
    """A polynomial that is no constant. Comparisons give a `Truth`, or a bool if they are clear."""

    __slots__ = ("key", "logic", "terms")

    def __init__(self, arithmetic: "Arithmetic", terms: dict[Monomial, int]) -> None:
        self.logic: Arithmetic = arithmetic
        self.terms = terms
        self.key = tuple(sorted(terms.items()))

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
    """A formula that is neither true nor false: an operation and its operands."""

    __slots__ = ("key", "logic", "operands", "operation")

    def __init__(self, arithmetic: "Arithmetic", operation: str, *operands: Any) -> None:
        self.logic: Arithmetic = arithmetic
        self.operation, self.operands = operation, operands
        self.key: Any = (operation, *(getattr(each, "key", each) for each in operands))

    def __repr__(self) -> str:
        return f"{self.operation}({', '.join(map(str, self.operands))})"

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is neither true nor false")

    def _joined(self, operation: str, neutral: bool, other: Formula) -> Formula:
        if isinstance(other, bool):
            return self if other is neutral else other
        return self if self.key == other.key else Truth(self.logic, operation, self, other)

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
        self._expressions: dict[Any, Any] = {}
        self._mentioned: dict[Any, tuple[frozenset[str], frozenset[Monomial]]] = {}
        self._asked: dict[Any, Term] = {}
        self._items: dict[str, dict[Any, tuple[Term, Number]]] = {}
        self._quantified: dict[Any, tuple[Truth, Term, Term, Callable[[Term], Formula]]] = {}
        self._counterexamples: list[Formula] = []
        self._multiples: dict[str, list[tuple[Monomial, Monomial]]] = {}
        self._noting = True
        self.lemmas: dict[tuple[str, Monomial, Monomial], list[Any]] = {}
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
                fact = Truth(self, "at least 0", number - least)
                self._facts.setdefault(name, []).append((frozenset((name,)), fact))
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
        return Truth(self, "flag", name)

    def holds_at(self, predicate: str, place: Term) -> Formula:
        """Whether an unknown predicate holds at a place, about which quantifiers are asked, too."""
        if self._noting:
            key = repr(place)
            if key not in self._asked:
                self._asked[key] = place
                for quantified in list(self._quantified.values()):
                    self._instantiate(quantified, place)
        return Truth(self, "holds", predicate, place)

    def item(self, of: str, place: Term) -> Number:
        """The number at a place of a sequence of unknown ones; at equal places it is the same."""
        number = self.atom(f"{of}[{place}]")
        known = self._items.setdefault(of, {})
        if number.key not in known:
            for other_place, other in known.values():
                names = [n for t in (place, other_place, number, other) for n in _names(t)]
                self.fact(self.implies(place == other_place, number == other), names)
            known[number.key] = place, number
        return number

    def fact(self, formula: Formula, of: Iterable[str]) -> None:
        """Take for granted wherever all of these atoms and flags are spoken of."""
        names = frozenset(of)
        if formula is not True:
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
                known.append((product, _without(same, factor)))

    # --- what operators and the functions of `spec.terms` mean

    def at_least_zero(self, number: Term) -> Formula:
        """Whether a number is at least 0, without the positive factors that all its terms share."""
        if isinstance(number, int):
            return number >= 0
        number = self._without_common_factors(number)
        above = number + 1
        if isinstance(above, Number):
            divided = self._without_common_factors(above)
            if divided is not above:  # n * x >= 1 if and only if x >= 1
                return self.at_least_zero(divided - 1)
        if self._is_positive(number.terms):
            return True
        negated = terms_of(-number - 1)
        return False if self._is_positive(negated) else Truth(self, "at least 0", number)

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
        number = self._without_common_factors(number)
        if any(self._is_positive(terms_of(each - 1)) for each in (number, -number)):
            return False
        first = number.key[-1][1]
        return Truth(self, "is 0", number if first > 0 else -number)

    def _without_common_factors(self, number: Number) -> Number:
        first, *others = number.terms
        for factor in first:
            if factor in self.positive and all(factor in other for other in others):
                divided = {_without(each, factor): times for each, times in number.terms.items()}
                return self._without_common_factors(Number(self, divided))
        return number

    def not_(self, formula: Formula) -> Formula:
        """Negation; of a comparison, the opposite one."""
        if isinstance(formula, bool):
            return not formula
        if formula.operation == "not":
            return formula.operands[0]
        if formula.operation == "at least 0":
            return self.at_least_zero(-formula.operands[0] - 1)
        return Truth(self, "not", formula)

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
        """By a positive atom or number: what it divides exactly, and a quotient of the rest."""
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
            return _without(monomial, factor)
        for product, times in self._multiples.get(factor, ()):
            left = reduce(_without, product, monomial) if _is_part(product, monomial) else None
            if left is not None:
                return reduce(_with, times, left)
        return None

    def _quotient(self, dividend: Term, divisor: Term) -> Term:
        if isinstance(dividend, Number) and max(dividend.terms.values()) < 0:
            # Rounded up, it has the sign of what it is compared with.
            name = f"[{-dividend} / {divisor} or more]"
            new = name not in self._known
            quotient = self.atom(name)
            if new:
                product = quotient * divisor
                fits = (product >= -dividend) & (product < divisor - dividend)
                self.fact(self.implies(divisor >= 1, fits), _names(quotient))
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
            self.fact(self.implies(divisor >= 1, fits), _names(quotient))

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
        names = [every.operands[0], *_names(place)]
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
                    names.update(_names(each))
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
                return self.linear(first) >= 0
            case "is 0":
                return self.linear(first) == 0
            case "flag":
                return z3.Bool(first, self.context)
            case "holds":
                sorts = z3.IntSort(self.context), z3.BoolSort(self.context)
                return z3.Function(first, *sorts)(self.linear(formula.operands[1]))
            case "not":
                return z3.Not(self.expression(first))
        parts = [self.expression(each) for each in formula.operands]
        return z3.And(parts) if formula.operation == "and" else z3.Or(parts)

    def linear(self, number: Term) -> Any:
        """Z3's term of a number, in which a product is one integer."""
        terms = terms_of(number)
        parts = [times * self.variable(each) for each, times in terms.items() if each]
        constant = terms.get((), 0)
        if not parts:
            return z3.IntVal(constant, self.context)
        return reduce(operator.add, parts) + constant

    def variable(self, monomial: Monomial) -> Any:
        """Z3's integer for an atom or a product."""
        return z3.Int("*".join(monomial), self.context)


_Compared: TypeAlias = tuple[str, Monomial, Monomial]
"""A positive factor, and two numbers of which the products with it are compared."""


class Knowledge:
    """Formulas that hold together, with the facts about what they speak of.

    Lemmas about products are added when values contradict them.
    """

    def __init__(self, here: Arithmetic) -> None:
        self._here = here
        self._names: set[str] = set()
        self._products: set[Monomial] = set()
        self._factors: dict[str, list[Monomial]] = {}
        self._compared: set[_Compared] = set()
        self._new: list[Any] = []
        self._added: list[Formula] = []

    def add(self, formula: Formula) -> None:
        """From now on this holds, too."""
        if formula is not True:
            self._added.append(formula)

    def _speak_of(self, *formulas: Formula) -> None:
        """Add all facts about what the formulas speak of."""
        given = [each for each in formulas if isinstance(each, Truth)]
        while given:
            mentioned, products = self._here.mentions(given.pop())
            new = mentioned - self._names
            self._names |= new
            for name in sorted(new):
                for fact in self._here.facts(name, self._names):
                    self._new.append(self._here.expression(fact))
                    given.append(fact)
            for product in sorted(products):
                self._multiply(product)

    def _multiply(self, product: Monomial) -> None:
        """Compare a product with those that share a factor, and what is left of it as well."""
        if len(product) > 1 and product not in self._products:
            self._products.add(product)
            for factor in sorted(self._here.positive.intersection(product)):
                rest = _without(product, factor)
                self._compare(factor, rest)
                self._multiply(rest)

    def _compare(self, factor: str, number: Monomial) -> None:
        others = self._factors.setdefault(factor, [()])
        for other in others:
            compared = factor, number, other
            if compared in self._here.lemmas:
                self._new += self._lemma(compared)
            else:
                self._compared.add(compared)
        others.append(number)

    def values(
        self, *formulas: Formula, exact: bool = False, in_short: bool = False
    ) -> "Values | None":
        """Values with which these hold as well, None if there are none. Raises `GivenUp`.

        ``exact`` tries to find values of real products, and ``in_short`` gives up soon.
        """
        expressions = [self._here.expression(each) for each in formulas]
        if not in_short:
            return self._values(expressions, formulas, exact)
        self._solver.set("rlimit", _FEW_RESOURCES)
        try:
            return self._values(expressions, formulas, rounds=0)
        finally:
            self._solver.set("rlimit", _RESOURCES)

    def fails(self, conclusion: Callable[[], Formula]) -> "Values | None":
        """Values with which a conclusion does not hold at the position, None if it follows.

        It may quantify once. Raises `GivenUp`.
        """
        with self._here.concluding() as counterexamples:
            holds = conclusion()
        return self.values(*counterexamples, self._here.not_(holds), exact=True)

    def following(self, formulas: Sequence[Formula]) -> list[bool]:
        """Which of the formulas follow: the most that do so together."""
        kept = [formula is not False for formula in formulas]
        denied = [self._here.not_(formula) for formula in formulas]
        while True:
            open_ = [
                each
                for each, holds in zip(denied, kept, strict=True)
                if holds and each is not False
            ]
            if not open_:
                return kept
            broken = z3.Or([self._here.expression(each) for each in open_])
            found = self._values([broken], open_)
            if found is None:
                return kept
            still = [
                holds and found.holds(formula)
                for formula, holds in zip(formulas, kept, strict=True)
            ]
            if still == kept:
                raise GivenUp("Z3 gives values that contradict themselves")
            kept = still

    @cached_property
    def _solver(self) -> Any:
        solver = z3.SimpleSolver(ctx=self._here.context)
        solver.set("rlimit", _RESOURCES)
        return solver

    def _values(
        self,
        expressions: list[Any],
        formulas: Sequence[Formula],
        exact: bool = False,
        rounds: int = _ROUNDS,
    ) -> "Values | None":
        self._here.queries += 1
        for formula in self._added:  # many paths end without a question
            self._speak_of(formula)
            self._new.append(self._here.expression(formula))
        self._added = []
        self._speak_of(*formulas)
        self._solver.add(self._new)
        self._new = []
        self._solver.push()
        left = rounds
        try:
            self._solver.add(expressions)
            while True:
                answer = self._solver.check()
                if answer == z3.unknown:
                    raise GivenUp(f"Z3 gives up: {self._solver.reason_unknown()}")
                if answer == z3.unsat:
                    return None
                found = Values(self._here, self._solver.model())
                wrong = [each for each in self._compared if self._is_wrong(each, found)]
                lemmas = [lemma for each in wrong for lemma in self._lemma(each)]
                if not wrong:
                    lemmas = self._inexact(found, exact) if left else []
                    left -= 1
                    if not lemmas:
                        return found
                self._compared.difference_update(wrong)
                self._new += lemmas  # also after this question
                self._solver.add(lemmas)
        finally:
            self._solver.pop()

    def _lemma(self, compared: _Compared) -> list[Any]:
        """As two numbers compare, so do their products with a positive factor.

        Without a second number it is 0.
        """
        known = self._here.lemmas.get(compared)
        if known is not None:
            return known
        factor, one, other = compared
        of = self._here.variable
        unit = of((factor,))
        apart, products_apart = of(one), of(_with(one, factor))
        if other:
            apart, products_apart = apart - of(other), products_apart - of(_with(other, factor))
        lemmas = [z3.Implies(apart == 0, products_apart == 0)]
        for least in range(1, _FACTORS_APART + 1):
            lemmas.append(z3.Implies(apart >= least, products_apart >= least * unit))
            lemmas.append(z3.Implies(apart <= -least, products_apart <= -least * unit))
        self._here.lemmas[compared] = lemmas
        return lemmas

    def _inexact(self, found: "Values", exact: bool) -> list[Any]:
        """What a product is for the value of a factor, where these values are no real product.

        Only of products without positive factors, of which nothing else is known, unless values
        are to be exact.
        """
        lemmas = []
        of, positive = self._here.variable, self._here.positive
        for product in sorted(self._products):
            factors = positive.intersection(product)
            if factors and not exact:
                continue
            for factor in sorted(factors or product):
                rest = _without(product, factor)
                unit, number = found.product((factor,)), found.product(rest)
                if found.product(product) == unit * number:
                    continue
                lemmas.append(z3.Implies(of((factor,)) == unit, of(product) == unit * of(rest)))
                if factor in positive:
                    bound = number * of((factor,))
                    lemmas.append(z3.Implies(of(rest) <= number, of(product) <= bound))
                    lemmas.append(z3.Implies(of(rest) >= number, of(product) >= bound))
        return lemmas

    def _is_wrong(self, compared: _Compared, values: "Values") -> bool:
        factor, one, other = compared
        unit = values.product((factor,))
        apart, products_apart = values.product(one), values.product(_with(one, factor))
        if other:
            apart -= values.product(other)
            products_apart -= values.product(_with(other, factor))
        if apart == 0:
            return products_apart != 0
        least = min(abs(apart), _FACTORS_APART) * unit
        return products_apart < least if apart > 0 else products_apart > -least


class Values:
    """Values of all symbols, as Z3 found them."""

    def __init__(self, here: Arithmetic, model: Any) -> None:
        self._here = here
        self._model = model
        self._products: dict[Monomial, int] = {}
        self._truths: dict[Any, bool] = {}

    def product(self, monomial: Monomial) -> int:
        """The value of an atom or a product."""
        if monomial not in self._products:
            value = self._model.eval(self._here.variable(monomial), model_completion=True)
            self._products[monomial] = int(value.as_long())
        return self._products[monomial]

    def number(self, number: Term) -> int:
        """The value of a number."""
        return sum(
            times * (self.product(monomial) if monomial else 1)
            for monomial, times in terms_of(number).items()
        )

    def of_atoms(self, number: Term) -> int:
        """The same, with the real products of the values of its atoms."""
        return sum(
            times * math.prod(self.product((atom,)) for atom in monomial)
            for monomial, times in terms_of(number).items()
        )

    def holds(self, formula: Formula) -> bool:
        """Whether a formula holds."""
        if isinstance(formula, bool):
            return formula
        known = self._truths.get(formula.key)
        if known is None:
            known = self._truths[formula.key] = self._holds(formula)
        return known

    def _holds(self, formula: Truth) -> bool:
        first = formula.operands[0]
        match formula.operation:
            case "at least 0":
                return self.number(first) >= 0
            case "is 0":
                return self.number(first) == 0
            case "not":
                return not self.holds(first)
            case "and":
                return all(map(self.holds, formula.operands))
            case "or":
                return any(map(self.holds, formula.operands))
        value = self._model.eval(self._here.expression(formula), model_completion=True)
        return bool(z3.is_true(value))


def _names(number: Term) -> Iterator[str]:
    """The atoms in a number."""
    for monomial in terms_of(number):
        yield from monomial


def _is_part(product: Monomial, monomial: Monomial) -> bool:
    """Whether a product of distinct atoms divides another one."""
    return set(product) <= set(monomial)


def _without(monomial: Monomial, factor: str) -> Monomial:
    place = monomial.index(factor)
    return monomial[:place] + monomial[place + 1 :]


def _with(monomial: Monomial, factor: str) -> Monomial:
    return tuple(sorted((*monomial, factor)))

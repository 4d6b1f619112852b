"""The meanings that the spec's terms take on in proofs.

A statement is written once against `Interpretation` and is read in four ways:

- `Abstract` proves it. A product of two unknowns k * u is an uninterpreted ``times(k, u)``
  with a few axioms, instantiated at the products that the statement names; Z3 does not settle
  real products reliably. Quotients are witnesses. Nothing is bounded.
- `Products` proves those axioms once, as `lemmas`, with real products.
- `Bounded` finds minimal models: small naturals, finite block sets, no quantifiers.
- `Replay` evaluates the statement on the ints of such a model, without Z3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

import z3

from hitproof.spec.terms import Arithmetic, Formula, IntegerArithmetic, Term


class Interpretation(Arithmetic, Protocol):
    """`Arithmetic`, and what a statement needs beyond the spec."""

    def integer(self, name: str) -> Term:
        """An arbitrary integer."""

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """An arbitrary set of blocks, as its membership test."""


def is_floor(at: Interpretation, quotient: Term, dividend: Term, divisor: Term) -> Formula:
    """Whether ``quotient`` is ``dividend / divisor`` rounded down, for ``divisor >= 1``."""
    product = at.times(quotient, divisor)
    return (product <= dividend) & (dividend < product + divisor)


def is_ceiling(at: Interpretation, quotient: Term, dividend: Term, divisor: Term) -> Formula:
    """Whether ``quotient`` is ``dividend / divisor`` rounded up, for ``divisor >= 1``."""
    product = at.times(quotient, divisor)
    return (dividend <= product) & (product - divisor < dividend)


def one_is_neutral(at: Interpretation, unit: Term, one: int = 1) -> Formula:
    """Whether ``one`` unit is the unit."""
    return at.times(one, unit) == unit


def products_keep_order_of_sums(
    at: Interpretation, left: Term, right: Term, other: Term, unit: Term
) -> Formula:
    """As ``left + right`` compares with ``other``, so do their products, if ``unit >= 1``."""
    together, another = at.times(left, unit) + at.times(right, unit), at.times(other, unit)
    kept = at.implies(left + right <= other, together <= another)
    return at.implies(1 <= unit, kept & at.implies(other <= left + right, another <= together))


@dataclass(frozen=True)
class Model:
    """Values for the unknowns of a statement.

    Attributes:
        integers: the integers by name, in order of importance.
        block_sets: the members of each block set, ascending, by name.
    """

    integers: dict[str, int] = field(default_factory=dict)
    block_sets: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        values = [f"{name} = {value}" for name, value in self.integers.items()]
        values += [
            f"{name} = {{{', '.join(map(str, members))}}}"
            for name, members in self.block_sets.items()
        ]
        return ", ".join(values)


class Replay(IntegerArithmetic):
    """`Interpretation` on the ints of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def integer(self, name: str) -> int:
        """The model's value."""
        return self._model.integers[name]

    def block_set(self, name: str) -> Callable[[int], bool]:
        """The model's set; blocks it does not name are not in it."""
        return frozenset(self._model.block_sets[name]).__contains__


class Z3Interpretation:
    """What the interpretations as Z3 terms share: all but products.

    Integers are unbounded, block sets are uninterpreted predicates, and quotients are fresh
    integers that are assumed to fit (lemmas show that they exist). Each interpretation has a
    context of its own, so that a result does not depend on what ran before it.

    Attributes:
        context: where the terms live.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self._assumptions: list[Formula] = []
        self._memberships: list[Term] = []
        self._quotients: dict[tuple[object, int, int], tuple[Term, Term, Term]] = {}

    def assumptions(self) -> list[Formula]:
        """What the terms built so far take for granted."""
        return list(self._assumptions)

    def integer(self, name: str) -> Term:
        """A Z3 integer."""
        return z3.Int(name, self.context)

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """An uninterpreted predicate."""
        predicate = z3.Function(name, z3.IntSort(self.context), z3.BoolSort(self.context))

        def contains(block: Term) -> Formula:
            membership = predicate(self._term(block))
            self._memberships.append(membership)
            return membership

        return contains

    def times(self, count: Term, unit: Term) -> Term:
        """Each interpretation has its own."""
        raise NotImplementedError

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """A fresh integer that `is_floor`."""
        return self._quotient(is_floor, dividend, divisor)

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """A fresh integer that `is_ceiling`."""
        return self._quotient(is_ceiling, dividend, divisor)

    def multiple_at_most(self, position: Term, step: Term) -> Term:
        """The product of the quotient rounded down."""
        return self.times(self.floor_div(position, step), step)

    def maximum(self, left: Term, right: Term) -> Term:
        """A case distinction."""
        left, right = self._term(left), self._term(right)
        return z3.If(left >= right, left, right)

    def minimum(self, left: Term, right: Term) -> Term:
        """A case distinction."""
        left, right = self._term(left), self._term(right)
        return z3.If(left <= right, left, right)

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """A quantifier, instantiated at the blocks whose membership is mentioned."""
        index = z3.FreshInt("index", self.context)
        assumptions, memberships = len(self._assumptions), len(self._memberships)
        body = holds(index)
        elsewhere = self._term(0)
        if any(
            not z3.substitute(assumption, (index, elsewhere)).eq(assumption)
            for assumption in self._assumptions[assumptions:]
        ):
            raise NotImplementedError("a quotient under a quantifier would not be one witness")
        return z3.ForAll(
            [index],
            z3.Implies((start <= index) & (index < end), body),
            patterns=self._memberships[memberships:],
        )

    def implies(self, premise: Formula, conclusion: Formula) -> Formula:
        """Z3's implication."""
        return z3.Implies(premise, conclusion)

    def negation(self, formula: Formula) -> Formula:
        """Z3's negation, also of a formula that turned out to be a plain truth value."""
        return z3.Not(formula, self.context)

    def _quotient(
        self,
        fits: Callable[[Interpretation, Term, Term, Term], Formula],
        dividend: Term,
        divisor: Term,
    ) -> Term:
        dividend, divisor = z3.simplify(self._term(dividend)), self._term(divisor)
        key = fits, dividend.get_id(), divisor.get_id()
        if key not in self._quotients:
            quotient = z3.FreshInt("quotient", self.context)
            self._quotients[key] = quotient, dividend, divisor
            # Without the guard a divisor of 0 would make the assumptions contradictory.
            self._assumptions.append(
                z3.Implies(divisor >= 1, fits(self, quotient, dividend, divisor))
            )
        return self._quotients[key][0]

    def _term(self, value: Term) -> Term:
        return z3.IntVal(value, self.context) if isinstance(value, int) else value


class Products(Z3Interpretation):
    """Real products and Z3's own division, to prove the lemmas that `Abstract` assumes."""

    def times(self, count: Term, unit: Term) -> Term:
        """Z3's product."""
        return self._term(count) * unit

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """SMT-LIB's ``div``, which rounds down for a positive divisor."""
        return self._term(dividend) / divisor

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """Rounding down, mirrored."""
        return -self.floor_div(-dividend, divisor)


class Abstract(Z3Interpretation):
    """Uninterpreted products, so that what is left is linear."""

    def __init__(self) -> None:
        super().__init__()
        integers = z3.IntSort(self.context)
        self._product = z3.Function("times", integers, integers, integers)
        self._products: dict[tuple[int, int], tuple[Term, Term, Term]] = {}
        # Built once and filled in by Z3: in Python each axiom would take a hundred times as long.
        self._of_sums = tuple(self.integer(name) for name in ("left", "right", "other", "unit"))
        self._order_of_sums = products_keep_order_of_sums(self, *self._of_sums)
        self._products.clear()

    def assumptions(self) -> list[Formula]:
        """The quotients' definitions, and the axioms of products at the products named.

        Sums are of a number or a count rounded up, and any other count. Nothing else is needed
        so far, and all sums would take most of the time.
        """
        axioms: list[Formula] = []
        rounded_up = {
            quotient.get_id()
            for (fits, *_), (quotient, *_) in self._quotients.items()
            if fits is is_ceiling
        }
        for key, unit in {unit.get_id(): unit for _, unit, _ in self._products.values()}.items():
            self.times(0, unit)
            axioms.append(z3.Implies(unit >= 1, one_is_neutral(self, unit)))
            counts = [self._products[name][0] for name in self._products if name[1] == key]
            some = [c for c in counts if z3.is_int_value(c) or c.get_id() in rounded_up]
            sums = {frozenset((a.get_id(), b.get_id())): (a, b) for a in some for b in counts}
            for (left, right), other in product(sums.values(), counts):
                values = zip(self._of_sums, (left, right, other, unit), strict=True)
                axioms.append(z3.substitute(self._order_of_sums, *values))
        return super().assumptions() + axioms

    def times(self, count: Term, unit: Term) -> Term:
        """An uninterpreted product, noted for its axioms."""
        count, unit = self._term(count), self._term(unit)
        known = self._products.get((count.get_id(), unit.get_id()))
        if known is None:
            count = z3.simplify(count)
            known = count, unit, self._product(count, unit)
            self._products[count.get_id(), unit.get_id()] = known
        return known[2]


class Bounded(Z3Interpretation):
    """Naturals up to ``bound``, products by cases, block sets of as many blocks.

    What lies outside is left out of the search: a model found is a model, none found is none
    within the bound.
    """

    def __init__(self, bound: int) -> None:
        super().__init__()
        self._bound = bound
        self._integers: dict[str, Term] = {}
        self._members: dict[str, list[Term]] = {}
        count, unit = (z3.Var(place, z3.IntSort(self.context)) for place in (0, 1))
        self._times = count * bound
        for value in range(1, bound):
            self._times = z3.If(unit == value, count * value, self._times)

    def integer(self, name: str) -> Term:
        """A Z3 integer from 0 to the bound. The ones named first are made smallest first."""
        if name not in self._integers:
            value = super().integer(name)
            self._integers[name] = value
            self._assumptions += [0 <= value, value <= self._bound]
        return self._integers[name]

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """A set of blocks from 0 to the bound."""
        members = self._members.setdefault(
            name, [z3.Bool(f"{name}_{block}", self.context) for block in range(self._bound + 1)]
        )
        asked = z3.Var(0, z3.IntSort(self.context))
        contains = z3.Or([(asked == number) & member for number, member in enumerate(members)])
        return lambda block: z3.substitute_vars(contains, self._term(block))

    def times(self, count: Term, unit: Term) -> Term:
        """A case for each value of the unit, which keeps the product linear."""
        count, unit = self._term(count), self._term(unit)
        self._assumptions += [1 <= unit, unit <= self._bound]
        return z3.substitute_vars(self._times, count, unit)

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """A conjunction over the blocks from 0 to the bound."""
        start, end = self._term(start), self._term(end)
        self._assumptions += [0 <= start, end <= self._bound + 1]
        index = z3.FreshInt("index", self.context)
        known = len(self._assumptions)
        body = z3.Implies((start <= index) & (index < end), holds(index))
        at_any = self._assumptions[known:]
        del self._assumptions[known:]
        numbers = [self._term(number) for number in range(self._bound + 1)]
        self._assumptions += [z3.substitute(a, (index, n)) for a in at_any for n in numbers]
        return z3.And([z3.substitute(body, (index, number)) for number in numbers])

    def sizes(self) -> list[Term]:
        """What a minimal model minimises, the most important first. It leaves no choice."""
        terms = list(self._integers.values())
        for members in self._members.values():
            terms.append(self._weight(members, lambda _: 1))
            terms.append(self._weight(members, lambda block: 2**block))
        return terms

    def read(self, solution: z3.ModelRef) -> Model:
        """The values that Z3 found."""

        def evaluate(term: Term) -> Term:
            return solution.eval(term, model_completion=True)

        return Model(
            integers={name: evaluate(term).as_long() for name, term in self._integers.items()},
            block_sets={
                name: tuple(
                    block for block, member in enumerate(members) if z3.is_true(evaluate(member))
                )
                for name, members in self._members.items()
            },
        )

    def _weight(self, members: list[Term], weight: Callable[[int], int]) -> Term:
        return z3.Sum(
            [
                z3.If(member, self._term(weight(block)), self._term(0))
                for block, member in enumerate(members)
            ]
        )

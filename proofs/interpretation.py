"""The meanings that the spec's terms take on in proofs.

A statement is a formula like a clause, of the unknowns that an `Interpretation` gives it. It is
read in four ways:

- `Abstract` proves it. A product of two unknowns k * u is an uninterpreted ``times(k, u)``
  with a few axioms, instantiated at the products that the statement names; Z3 does not settle
  real products reliably. Quotients are witnesses. Nothing is bounded.
- `Products` proves those axioms once, as `lemmas`, with real products.
- `Bounded` finds minimal models: small naturals, finite block sets, no quantifiers.
- `Replay` evaluates the statement on the ints of such a model, without Z3.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol, TypeAlias

import z3

from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import Family, Formula, Symbol, Term, implies, is_multiple


class Interpretation(Protocol):
    """The unknowns of a statement."""

    def integer(self, name: str) -> Term:
        """An arbitrary integer."""

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """An arbitrary set of blocks, as its membership test."""

    def block_sets(self, name: str) -> Callable[[Term, Term], Formula]:
        """An arbitrary set of blocks for each group: takes the group's index, then the block."""

    def compared(self, name: str) -> Term:
        """An arbitrary integer, with which least and greatest ones are compared."""

    def groups(self) -> Any:
        """Any number of groups, each of any kind and sizes."""


def is_floor(quotient: Term, dividend: Term, divisor: Term) -> Formula:
    """Whether ``quotient`` is ``dividend / divisor`` rounded down, for ``divisor >= 1``."""
    product = quotient * divisor
    return (product <= dividend) & (dividend < product + divisor)


def is_ceiling(quotient: Term, dividend: Term, divisor: Term) -> Formula:
    """Whether ``quotient`` is ``dividend / divisor`` rounded up, for ``divisor >= 1``."""
    product = quotient * divisor
    return (dividend <= product) & (product - divisor < dividend)


def one_is_neutral(unit: Term, one: int = 1) -> Formula:
    """Whether ``one`` unit is the unit."""
    return one * unit == unit


def products_keep_order_of_sums(left: Term, right: Term, other: Term, unit: Term) -> Formula:
    """As ``left + right`` compares with ``other``, so do their products, if ``unit >= 1``."""
    together, another = left * unit + right * unit, other * unit
    kept = implies(left + right <= other, together <= another)
    return implies(1 <= unit, kept & implies(other <= left + right, another <= together))


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


KINDS = tuple(GroupKind)
"""The kinds, in the order of the numbers that stand for them."""

_SIZES = ("kind", "block_size", "window", "chunk", "eagle", "prefix_cacheable", "ahead")
"""What differs from group to group; a truth value is whether it is at least 1."""


class Replay:
    """`Interpretation` on the ints of a model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def integer(self, name: str) -> int:
        """The model's value."""
        return self._model.integers[name]

    def block_set(self, name: str) -> Callable[[int], bool]:
        """The model's set; blocks it does not name are not in it."""
        return frozenset(self._model.block_sets[name]).__contains__

    def block_sets(self, name: str) -> Callable[[int, int], bool]:
        """The model's sets, one for each group. Raises `IndexError` for a group that is none."""
        sets = self._model.block_sets

        def contains(index: int, block: int) -> bool:
            if _numbered(name, index) not in sets:
                raise IndexError(f"there is no group {index}")
            return block in sets[_numbered(name, index)]

        return contains

    def compared(self, name: str) -> int:
        """The model's value."""
        return self.integer(name)

    def groups(self) -> list[Group]:
        """The model's groups."""
        return [self._group(index) for index in range(self.integer("num_groups"))]

    def _group(self, index: int) -> Group:
        sizes = {name: self.integer(_numbered(name, index)) for name in _SIZES}
        kind = KINDS[sizes["kind"]]
        return Group(
            kind,
            sizes["block_size"],
            sizes["window"] if kind is GroupKind.SLIDING_WINDOW else None,
            1 <= sizes["eagle"],
            sizes["chunk"] if kind is GroupKind.CHUNKED_LOCAL else None,
            1 <= sizes["prefix_cacheable"],
            sizes["ahead"],
        )


class Ones:
    """`Interpretation` in which each integer is 1: what a statement is made of, at no cost."""

    def integer(self, _: str) -> int:
        """One."""
        return 1

    def compared(self, _: str) -> int:
        """One."""
        return 1

    def block_set(self, _: str) -> Callable[[int], bool]:
        """All blocks."""
        return lambda _: True

    def block_sets(self, _: str) -> Callable[[int, int], bool]:
        """All blocks of all groups."""
        return lambda *_: True

    def groups(self) -> list[Group]:
        """Two, so that there is one with the index 1."""
        return [Group(GroupKind.FULL_ATTENTION, 1)] * 2


class Instance:
    """Another interpretation, in which some unknowns are what their names are told to stand for."""

    def __init__(self, at: Interpretation, meanings: Mapping[str, Any]) -> None:
        self._at, self._meanings = at, meanings

    def integer(self, name: str) -> Term:
        """The term, or the unknown."""
        return self._meanings[name] if name in self._meanings else self._at.integer(name)

    def compared(self, name: str) -> Term:
        """The same."""
        return self._meanings[name] if name in self._meanings else self._at.compared(name)

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """The membership test, or the unknown."""
        return self._meanings[name] if name in self._meanings else self._at.block_set(name)

    def block_sets(self, name: str) -> Callable[[Term, Term], Formula]:
        """The same."""
        return self._meanings[name] if name in self._meanings else self._at.block_sets(name)

    def groups(self) -> Any:
        """As they are."""
        return self._at.groups()


class Shifted(Instance):
    """Another interpretation, in which one unknown integer is another number.

    Attributes:
        names: of the integers that were asked for, in that order.
    """

    def __init__(self, at: Interpretation, name: str = "", by: int = 0) -> None:
        super().__init__(at, {})
        self._name, self._by = name, by
        self.names: dict[str, None] = {}

    def integer(self, name: str) -> Term:
        """The integer, and ``by`` more if it is the one with that name."""
        self.names[name] = None
        return super().integer(name) + self._by * (name == self._name)

    def compared(self, name: str) -> Term:
        """The same."""
        return super().compared(name) + self._by * (name == self._name)


def _numbered(name: str, index: int) -> str:
    return f"{name}_{index}"


Operator: TypeAlias = Callable[[Term, Term], Term]


def _of_terms(operator: Operator) -> Operator:
    """The same on symbols: from what they stand for, a symbol for the result."""
    return lambda left, right: Z3Symbol(left.logic, operator(left.term, bare(right)))


def _turned(operator: Operator) -> Operator:
    return lambda left, right: operator(right, left)


class Z3Symbol(Symbol):
    """A Z3 term. Its operators are Z3's, but its logic has products and quotients.

    Attributes:
        logic: the interpretation that made it.
        term: Z3's term.
    """

    __slots__ = ("logic", "term")

    def __init__(self, logic: "Z3Interpretation", term: Term) -> None:
        self.logic: Z3Interpretation = logic
        self.term = term

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is neither true nor false")

    def __repr__(self) -> str:
        return repr(self.term)

    def __neg__(self) -> Term:
        return Z3Symbol(self.logic, -self.term)

    def __mul__(self, other: Term) -> Term:
        return Z3Symbol(self.logic, self.logic.times(self.term, bare(other)))

    def __rmul__(self, other: Term) -> Term:
        return Z3Symbol(self.logic, self.logic.times(bare(other), self.term))

    def __floordiv__(self, other: Term) -> Term:
        return Z3Symbol(self.logic, self.logic.floor_div(self.term, bare(other)))

    def __rfloordiv__(self, other: Term) -> Term:
        return Z3Symbol(self.logic, self.logic.floor_div(bare(other), self.term))

    def __mod__(self, other: Term) -> Term:
        return self - self // other * other

    __add__, __radd__ = _of_terms(operator.add), _of_terms(_turned(operator.add))
    __sub__, __rsub__ = _of_terms(operator.sub), _of_terms(_turned(operator.sub))
    __and__, __rand__ = _of_terms(z3.And), _of_terms(_turned(z3.And))
    __or__, __ror__ = _of_terms(z3.Or), _of_terms(_turned(z3.Or))
    __lt__, __le__ = _of_terms(operator.lt), _of_terms(operator.le)
    __gt__, __ge__ = _of_terms(operator.gt), _of_terms(operator.ge)
    __eq__, __ne__ = _of_terms(operator.eq), _of_terms(operator.ne)


def bare(value: Term) -> Term:
    """Z3's term of a symbol; the number of a kind; any other value as it is."""
    if isinstance(value, GroupKind):
        return KINDS.index(value)
    return value.term if isinstance(value, Z3Symbol) else value


class Z3Groups(Family):
    """Any number of groups: each attribute is an unknown function of the index.

    Attributes:
        logic: the interpretation that made them.
    """

    def __init__(self, logic: "Z3Interpretation", item: Callable[[Term], Group]) -> None:
        self.logic: Z3Interpretation = logic
        self._item = item
        self._known: dict[int, tuple[Term, Group]] = {}

    def __getitem__(self, index: Term) -> Group:
        """The group with an index, which need not be a value."""
        term = self.logic.at_index(index)
        if term.get_id() not in self._known:
            self._known[term.get_id()] = term, self._item(index)
        return self._known[term.get_id()][1]

    def for_each(self, holds: Callable[[Term, Group], Formula]) -> Formula:
        """The interpretation's quantifier."""
        return self.logic.for_each_group(lambda index: holds(index, self[index]))

    def map(self, change: Callable[[Group], Group]) -> "Z3Groups":
        """As many, each one changed."""
        return Z3Groups(self.logic, lambda index: change(self[index]))


class Z3Interpretation:
    """What the interpretations as Z3 terms share: all but products.

    Integers are unbounded, block sets are uninterpreted predicates, and quotients are fresh
    integers that are assumed to fit (lemmas show that they exist). Each interpretation has a
    context of its own, so that a result does not depend on what ran before it. It is the `Logic`
    of its symbols.

    Attributes:
        context: where the terms live.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self._assumptions: list[Term] = []
        self._memberships: list[Term] = []
        self._quotients: dict[tuple[object, int, int], tuple[Term, Term, Term]] = {}

    def assumptions(self) -> list[Term]:
        """The assumptions of the terms built so far, as Z3's terms."""
        return list(self._assumptions)

    def integer(self, name: str) -> Term:
        """A Z3 integer."""
        return self._symbol(z3.Int(name, self.context))

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """An uninterpreted predicate."""
        predicate = z3.Function(name, z3.IntSort(self.context), z3.BoolSort(self.context))

        def contains(block: Term) -> Formula:
            membership = predicate(self._term(block))
            self._memberships.append(membership)
            return self._symbol(membership)

        return contains

    def block_sets(self, name: str) -> Callable[[Term, Term], Formula]:
        """Each interpretation has its own."""
        raise NotImplementedError

    def compared(self, name: str) -> Term:
        """A Z3 integer."""
        return self.integer(name)

    def groups(self) -> Z3Groups:
        """Attributes are unknown functions of the index; one that a kind lacks is 1."""
        return Z3Groups(self, self._group)

    def _group(self, index: Term) -> Group:
        sizes = {name: self._attribute(name, index) for name in _SIZES}
        kind, ahead = sizes["kind"], sizes["ahead"]
        possible = (0 <= kind) & (kind < len(KINDS)) & (1 <= ahead)
        possible &= (1 <= sizes["block_size"]) & (1 <= sizes["window"]) & (1 <= sizes["chunk"])
        possible &= (kind == GroupKind.SLIDING_WINDOW) | (sizes["window"] == 1)
        possible &= (kind == GroupKind.CHUNKED_LOCAL) | (sizes["chunk"] == 1)
        self._assumptions.append(bare(possible))
        flags = (1 <= sizes["eagle"], 1 <= sizes["prefix_cacheable"])
        return Group(
            kind, sizes["block_size"], sizes["window"], flags[0], sizes["chunk"], flags[1], ahead
        )

    def _attribute(self, name: str, index: Term) -> Term:
        """Each interpretation has its own."""
        raise NotImplementedError

    def at_index(self, index: Term) -> Term:
        """Z3's term of the index of a group that is asked for."""
        return z3.simplify(self._term(index))

    def for_each_group(self, holds: Callable[[Term], Formula]) -> Formula:
        """Each interpretation has its own."""
        raise NotImplementedError

    # --- what operators mean, on Z3's terms

    def times(self, count: Term, unit: Term) -> Term:
        """Each interpretation has its own."""
        raise NotImplementedError

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """A fresh integer that `is_floor`."""
        return self._quotient(is_floor, dividend, divisor)

    # --- what the functions of `spec.terms` mean

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """A fresh integer that `is_ceiling`."""
        return self._symbol(self._quotient(is_ceiling, dividend, divisor))

    def max(self, left: Term, right: Term) -> Term:
        """A case distinction."""
        left, right = self._term(left), self._term(right)
        return self._symbol(z3.If(left >= right, left, right))

    def min(self, left: Term, right: Term) -> Term:
        """A case distinction."""
        left, right = self._term(left), self._term(right)
        return self._symbol(z3.If(left <= right, left, right))

    def for_all(self, start: Term, end: Term, holds: Callable[[Term], Formula]) -> Formula:
        """A quantifier, instantiated at the blocks whose membership is mentioned."""
        start, end = self._term(start), self._term(end)
        index = z3.FreshInt("index", self.context)
        assumptions, memberships = len(self._assumptions), len(self._memberships)
        body = bare(holds(self._symbol(index)))
        elsewhere = self._term(0)
        if any(
            not z3.substitute(assumption, (index, elsewhere)).eq(assumption)
            for assumption in self._assumptions[assumptions:]
        ):
            raise NotImplementedError("a quotient under a quantifier would not be one witness")
        # The name is part of a term: with one name, what is said twice is one term.
        each = z3.Int("each", self.context)
        body = z3.Implies((start <= index) & (index < end), body)
        body, *patterns = (
            z3.substitute(term, (index, each)) for term in (body, *self._memberships[memberships:])
        )
        return self._symbol(z3.ForAll([each], body, patterns=patterns))

    def implies(self, premise: Formula, conclusion: Formula) -> Formula:
        """Z3's implication."""
        return self._symbol(z3.Implies(bare(premise), bare(conclusion)))

    def not_(self, formula: Formula) -> Formula:
        """Z3's negation, also of a formula that turned out to be a plain truth value."""
        return self._symbol(z3.Not(bare(formula), self.context))

    def choose(self, condition: Formula, then: Term, otherwise: Term) -> Term:
        """A case distinction."""
        terms = (self._value(each) for each in (then, otherwise))
        return self._symbol(z3.If(bare(condition), *terms))

    def least(self, holds: Callable[[Term], Formula]) -> Term:
        """Each interpretation has its own."""
        raise NotImplementedError

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Term:
        """Each interpretation has its own."""
        raise NotImplementedError

    def _value(self, value: Term) -> Term:
        """Z3's term of a term or a formula."""
        return z3.BoolVal(value, self.context) if isinstance(value, bool) else self._term(value)

    def _quotient(
        self, fits: Callable[[Term, Term, Term], Formula], dividend: Term, divisor: Term
    ) -> Term:
        dividend, divisor = z3.simplify(self._term(dividend)), self._term(divisor)
        key = fits, dividend.get_id(), divisor.get_id()
        if key not in self._quotients:
            quotient = z3.FreshInt("quotient", self.context)
            self._quotients[key] = quotient, dividend, divisor
            fitting = fits(*map(self._symbol, (quotient, dividend, divisor)))
            # Without the guard a divisor of 0 would make the assumptions contradictory.
            self._assumptions.append(z3.Implies(divisor >= 1, bare(fitting)))
        return self._quotients[key][0]

    def _symbol(self, term: Term) -> Z3Symbol:
        return Z3Symbol(self, term)

    def _term(self, value: Term) -> Term:
        return z3.IntVal(value, self.context) if isinstance(value, int) else bare(value)


class Products(Z3Interpretation):
    """Real products and Z3's own division, to prove the lemmas that `Abstract` assumes."""

    def times(self, count: Term, unit: Term) -> Term:
        """Z3's product."""
        return self._term(count) * self._term(unit)

    def floor_div(self, dividend: Term, divisor: Term) -> Term:
        """SMT-LIB's ``div``, which rounds down for a positive divisor."""
        return self._term(dividend) / self._term(divisor)

    def ceil_div(self, dividend: Term, divisor: Term) -> Term:
        """Rounding down, mirrored."""
        return -(-dividend // divisor)


_DEEPEST = 2
"""How deep indices may lie in each other at which quantifiers over groups are instantiated."""


class Abstract(Z3Interpretation):
    """Uninterpreted products, so that what is left is linear."""

    _looks_into_groups = True

    def __init__(self) -> None:
        super().__init__()
        integers = z3.IntSort(self.context)
        self._product = z3.Function("times", integers, integers, integers)
        self._products: dict[tuple[int, int], tuple[Term, Term, Term]] = {}
        # Built once and filled in by Z3: in Python each axiom would take a hundred times as long.
        of_sums = [self.integer(name) for name in ("left", "right", "other", "unit")]
        self._of_sums = tuple(map(bare, of_sums))
        self._order_of_sums = bare(products_keep_order_of_sums(*of_sums))
        self._products.clear()
        self._depths: dict[int, tuple[Term, int]] = {}
        self._each: dict[int, tuple[Term, Term]] = {}
        self._quantified: list[tuple[Term, Callable[[Term], Formula]]] = []
        self._depth = self._within = 0
        self._instances: set[tuple[int, int]] = set()
        self._compared: list[Term] = []
        self._extremes: list[Callable[[Term], Term]] = []
        self._greatest: dict[tuple[int, ...], tuple[Term, tuple[Term, ...]]] = {}

    def assumptions(self) -> list[Term]:
        """The quotients' definitions, and the axioms of products at the products named.

        Sums are of a number or a count rounded up, and any other count. Nothing else is needed
        so far, and all sums would take most of the time.
        """
        self._instantiate()
        axioms: list[Term] = []
        rounded_up = {
            quotient.get_id()
            for (fits, *_), (quotient, *_) in self._quotients.items()
            if fits is is_ceiling
        }
        for key, unit in {unit.get_id(): unit for _, unit, _ in self._products.values()}.items():
            self.times(0, unit)
            neutral = bare(one_is_neutral(self._symbol(unit)))
            axioms.append(z3.Implies(unit >= 1, neutral))
            counts = [self._products[name][0] for name in self._products if name[1] == key]
            some = [c for c in counts if z3.is_int_value(c) or c.get_id() in rounded_up]
            sums = {frozenset((a.get_id(), b.get_id())): (a, b) for a in some for b in counts}
            for (left, right), other in product(sums.values(), counts):
                values = zip(self._of_sums, (left, right, other, unit), strict=True)
                axioms.append(z3.substitute(self._order_of_sums, *values))
        return super().assumptions() + axioms

    def block_sets(self, name: str) -> Callable[[Term, Term], Formula]:
        """An uninterpreted predicate of an index and a block."""
        integers = z3.IntSort(self.context)
        predicate = z3.Function(name, integers, integers, z3.BoolSort(self.context))

        def contains(index: Term, block: Term) -> Formula:
            membership = predicate(self._term(index), self._term(block))
            self._memberships.append(membership)
            return self._symbol(membership)

        return contains

    def compared(self, name: str) -> Term:
        """A Z3 integer, at which axioms on least and greatest ones are instantiated."""
        self._compared.append(self.integer(name))
        return self._compared[-1]

    def _attribute(self, name: str, index: Term) -> Term:
        integers = z3.IntSort(self.context)
        return self._symbol(z3.Function(name, integers, integers)(self._term(index)))

    def at_index(self, index: Term) -> Term:
        """Noted, as quantifiers are instantiated at each index that is asked for."""
        term = super().at_index(index)
        self._depths.setdefault(term.get_id(), (term, self._depth))
        return term

    def for_each_group(self, holds: Callable[[Term], Formula]) -> Formula:
        """A truth value; if it is false, it fails at an index that stands for any such one.

        Quantifiers are instantiated by `assumptions`: Z3 could not name the products in them.
        """
        of_any = self._of_any_group(holds)
        if of_any.get_id() in self._each:
            return self._symbol(self._each[of_any.get_id()][1])
        every = z3.FreshBool("each_group", self.context)
        self._each[of_any.get_id()] = of_any, every
        if not self._looks_into_groups:
            return self._symbol(every)
        number = bare(self.integer("num_groups"))
        fails = z3.FreshInt("group", self.context)
        self._quantified.append((every, holds))
        broken = self._value(self.not_(holds(self._symbol(fails))))
        self._assumptions.append(z3.Or(every, z3.And(0 <= fails, fails < number, broken)))
        return self._symbol(every)

    def _of_any_group(self, holds: Callable[[Term], Formula]) -> Term:
        """What is said of each group, by which it is known when it is said again."""
        said, quantified = len(self._assumptions), len(self._quantified)
        named = dict(self._depths)
        self._within += 1  # a quantifier in this one has a variable of its own
        any_one = z3.Int(f"any_group_{self._within}", self.context)
        formula = self._value(holds(self._symbol(any_one)))
        self._within -= 1
        del self._assumptions[said:], self._quantified[quantified:]
        self._depths = named
        return formula

    def least(self, holds: Callable[[Term], Formula]) -> Term:
        """A fresh integer. If it holds for any one, it is no greater, and it holds for it."""
        found = self._symbol(z3.FreshInt("least", self.context))

        def axiom(other: Term) -> Term:
            least = (1 <= found) & (found <= other) & holds(found)
            return bare(self.implies((1 <= other) & holds(other), least))

        self._extremes.append(axiom)
        return found

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Term:
        """A fresh integer: 0, or a multiple for which it holds. No other such one is greater.

        It is the same for what is said twice.
        """
        of_any = self._value(holds(self._symbol(z3.Int("any_multiple", self.context))))
        terms = self._term(step), self._term(limit), of_any
        key = tuple(each.get_id() for each in terms)
        if key in self._greatest:
            return self._greatest[key][0]
        found = self._symbol(z3.FreshInt("greatest", self.context))
        count = self._symbol(z3.FreshInt("count", self.context))
        some = (found == count * step) & (1 <= count) & (found <= limit) & holds(found)
        self._assumptions.append(bare((found == 0) | some))

        def axiom(other: Term) -> Term:
            eligible = (1 <= other) & (other <= limit) & is_multiple(other, step) & holds(other)
            equal = (other == found) & (1 <= found)
            return bare(self.implies(eligible, other <= found) & self.implies(equal, eligible))

        self._extremes.append(axiom)
        self._compared.append(found)
        self._greatest[key] = found, terms
        return found

    def _instantiate(self) -> None:
        """Instantiate what is said of each group and of each integer.

        At each index that is named, and at those for which it may fail there; no deeper.
        """
        while self._extremes:
            axiom = self._extremes.pop()
            self._assumptions += [axiom(each) for each in self._compared]
        number = bare(self.integer("num_groups"))
        while True:
            due = [
                (place, index, depth)
                for index, depth in list(self._depths.values())
                for place in range(len(self._quantified))
                if depth < _DEEPEST and (place, index.get_id()) not in self._instances
            ]
            if not due:
                return
            for place, index, depth in due:
                self._instances.add((place, index.get_id()))
                every, holds = self._quantified[place]
                self._depth = depth + 1
                held = self._value(holds(self._symbol(index)))
                self._depth = 0
                inside = z3.And(every, 0 <= index, index < number)
                self._assumptions.append(z3.Implies(inside, held))

    def times(self, count: Term, unit: Term) -> Term:
        """An uninterpreted product, noted for its axioms."""
        count, unit = self._term(count), self._term(unit)
        known = self._products.get((count.get_id(), unit.get_id()))
        if known is None:
            count = z3.simplify(count)
            known = count, unit, self._product(count, unit)
            self._products[count.get_id(), unit.get_id()] = known
        return known[2]


class Opaque(Abstract):
    """`Abstract`, but what is said of each group is one truth value, which nothing is known of."""

    _looks_into_groups = False


_MOST_GROUPS = 2
"""How many groups a search for models looks at."""


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
            value = bare(super().integer(name))
            self._integers[name] = value
            self._assumptions += [0 <= value, value <= self._bound]
        return self._symbol(self._integers[name])

    def block_set(self, name: str) -> Callable[[Term], Formula]:
        """A set of blocks from 0 to the bound."""
        members = self._members.setdefault(
            name, [z3.Bool(f"{name}_{block}", self.context) for block in range(self._bound + 1)]
        )
        asked = z3.Var(0, z3.IntSort(self.context))
        contains = z3.Or([(asked == number) & member for number, member in enumerate(members)])
        return lambda block: self._symbol(z3.substitute_vars(contains, self._term(block)))

    def block_sets(self, name: str) -> Callable[[Term, Term], Formula]:
        """A set for each group."""
        sets = [self.block_set(_numbered(name, index)) for index in range(_MOST_GROUPS)]

        def contains(index: Term, block: Term) -> Formula:
            each = enumerate(sets)
            inside = [bare((self._symbol(self._term(index)) == n) & of(block)) for n, of in each]
            return self._symbol(z3.Or(inside))

        return contains

    def groups(self) -> Z3Groups:
        """A few groups, each of them possible."""
        self._assumptions.append(bare(self.integer("num_groups") <= _MOST_GROUPS))
        for index in range(_MOST_GROUPS):
            self._group(index)
        return super().groups()

    def _attribute(self, name: str, index: Term) -> Term:
        values = [self.integer(_numbered(name, number)) for number in range(_MOST_GROUPS)]
        asked = self._symbol(self._term(index))
        found, *others = values
        for number, value in enumerate(others, 1):
            found = self.choose(asked == number, value, found)
        return found

    def for_each_group(self, holds: Callable[[Term], Formula]) -> Formula:
        """A conjunction over a few groups."""
        number = self.integer("num_groups")
        indices = [self._symbol(self._term(index)) for index in range(_MOST_GROUPS)]
        inside = [bare(self.implies(index < number, holds(index))) for index in indices]
        return self._symbol(z3.And(inside))

    def least(self, holds: Callable[[Term], Formula]) -> Term:
        """The first, which is within the bound."""
        found, some = self._symbol(self._term(0)), []
        for number in range(self._bound, 0, -1):
            some.append(self._value(holds(self._symbol(self._term(number)))))
            found = self.choose(self._symbol(some[-1]), number, found)
        self._assumptions.append(z3.Or(some))
        return found

    def greatest(self, step: Term, limit: Term, holds: Callable[[Term], Formula]) -> Term:
        """The last, within the bound."""
        found = self._symbol(self._term(0))
        self._assumptions.append(bare(limit <= self._bound))
        for number in range(1, self._bound + 1):
            value = self._symbol(self._term(number))
            fits = (value <= limit) & is_multiple(value, step) & holds(value)
            found = self.choose(fits, number, found)
        return found

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
        body = z3.Implies((start <= index) & (index < end), bare(holds(self._symbol(index))))
        at_any = self._assumptions[known:]
        del self._assumptions[known:]
        numbers = [self._term(number) for number in range(self._bound + 1)]
        self._assumptions += [z3.substitute(a, (index, n)) for a in at_any for n in numbers]
        return self._symbol(z3.And([z3.substitute(body, (index, number)) for number in numbers]))

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

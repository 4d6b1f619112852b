"""What is known on a path, what Z3 is told of it, and what follows.

Z3 is told of one path at a time. What two paths begin with it is told once: formulas are kept in
the order in which they were supposed, and a path takes over those that it has in common with the
path that was asked about last, with what was found out from these alone.

The values that Z3 finds are beside what is told: the module has more than 400 lines.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import z3

from hitproof.proofs.unbounded.terms import (
    Arithmetic,
    Monomial,
    Truth,
    terms_of,
    with_factor,
    without,
)
from hitproof.spec.terms import Formula, Term

_RESOURCES = 20_000_000
_FEW_RESOURCES = 100_000
_WAYS = 4
"""How often a question is put to Z3 that has to be answered, each time within its resources."""

_ROUNDS = 8
"""How often values are sought that are real products."""

_REMEMBERED = 8
"""How many values are kept to answer by."""

_FACTORS_APART = 2
"""Up to which difference of two factors their products are compared."""

Compared: TypeAlias = tuple[str, Monomial, Monomial]
"""A positive factor, and two numbers of which the products with it are compared."""


class GivenUp(Exception):
    """Z3 does not know, within its resources."""


@dataclass(frozen=True)
class _Part:
    """Some formulas that hold together, and what there was before them."""

    formulas: list[Formula]
    told: int
    undone: int
    facts: int


@dataclass
class _Seen:
    """Values that were found, with how much of what is told they agree, and if no more, where."""

    values: "Values"
    agrees: int
    breaks: int | None = None


class _Told:
    """Z3, and what it is told: formulas in order, and facts about what they speak of.

    Lemmas about products are added when values contradict them.

    Attributes:
        owner: the owner of these formulas.
    """

    def __init__(self, here: Arithmetic) -> None:
        self._here = here
        self.owner: Knowledge | None = None
        self._solver = z3.SimpleSolver(ctx=here.context)
        self._solver.set("rlimit", _RESOURCES)
        self._parts: list[_Part] = []
        self._formulas: list[Formula | Compared] = []
        self._names: set[str] = set()
        self._facts: set[Truth] = set()
        self._looked_at = 0
        self._products: set[Monomial] = set()
        self._factors: dict[str, list[Monomial]] = {}
        self._pending: dict[Compared, None] = {}  # in order, whatever the hash seed is
        self._impossible: set[frozenset[Formula]] = set()
        self._undo: list[Callable[[], object]] = []
        self._seen: deque[_Seen] = deque(maxlen=_REMEMBERED)

    def take(self, formulas: list[Formula], ends: Sequence[int]) -> None:
        """Let these hold, and no others; at ``ends`` another path may part from this one."""
        start = kept = 0
        for part in self._parts:
            end = start + len(part.formulas)
            if formulas[start:end] != part.formulas:
                break
            start, kept = end, kept + 1
        if kept < len(self._parts):
            self._forget(kept)
        for end in (*ends, len(formulas)):
            if end > start:
                self._begin(formulas[start:end])
                start = end

    def _begin(self, formulas: list[Formula]) -> None:
        self._parts.append(_Part(formulas, len(self._formulas), len(self._undo), self._looked_at))
        self._solver.push()
        self.speak_of(*formulas)
        for each in formulas:
            self._note(each)

    def _forget(self, kept: int) -> None:
        part = self._parts[kept]
        self._solver.pop(len(self._parts) - kept)
        del self._parts[kept:]
        del self._formulas[part.told :]
        while len(self._undo) > part.undone:
            self._undo.pop()()
        self._looked_at = part.facts
        for seen in self._seen:
            seen.agrees = min(seen.agrees, part.told)
            if seen.breaks is not None and seen.breaks >= part.told:
                seen.breaks = None

    def look_at_facts(self) -> None:
        """Add facts that came since, about what is spoken of."""
        every = self._here.every_fact
        while self._looked_at < len(every):
            needed, fact = every[self._looked_at]
            self._looked_at += 1
            if needed <= self._names and self._note_fact(fact):
                self.speak_of(fact)

    def speak_of(self, *formulas: Formula) -> None:
        """Add all facts about what the formulas speak of."""
        given = [each for each in formulas if isinstance(each, Truth)]
        while given:
            mentioned, products = self._here.mentions(given.pop())
            new = mentioned - self._names
            if new:
                self._names |= new
                self._undo.append(partial(self._names.difference_update, new))
            for name in sorted(new):
                for fact in self._here.facts(name, self._names):
                    if self._note_fact(fact) and isinstance(fact, Truth):
                        given.append(fact)
            for product in sorted(products):
                self._multiply(product)

    def _note_fact(self, fact: Formula) -> bool:
        if fact in self._facts:
            return False
        self._facts.add(fact)
        self._undo.append(partial(self._facts.discard, fact))
        self._note(fact)
        return True

    def _note(self, formula: Formula) -> None:
        self._formulas.append(formula)
        self._tell([self._here.expression(formula)])

    def _multiply(self, product: Monomial) -> None:
        """Compare a product with those that share a factor, and what is left of it as well."""
        if len(product) > 1 and product not in self._products:
            self._products.add(product)
            self._undo.append(partial(self._products.discard, product))
            for factor in sorted(self._here.positive.intersection(product)):
                rest = without(product, factor)
                self._compare(factor, rest)
                self._multiply(rest)

    def _compare(self, factor: str, number: Monomial) -> None:
        others = self._factors.setdefault(factor, [()])
        for other in others:
            compared = factor, number, other
            self._formulas.append(compared)
            if compared in self._here.lemmas:
                self._tell(self._lemma(compared))
            else:
                self._pending[compared] = None
                self._undo.append(partial(self._pending.pop, compared, None))
        others.append(number)
        self._undo.append(others.pop)

    def _tell(self, expressions: Iterable[Any]) -> None:
        context, solver = self._here.context.ref(), self._solver.solver
        for each in expressions:
            z3.Z3_solver_assert(context, solver, each.as_ast())

    def seen(self) -> Iterator["Values"]:
        """Values that were found before, and with which all holds that is told."""
        for each in reversed(self._seen):
            while each.breaks is None and each.agrees < len(self._formulas):
                if each.values.agrees(self._formulas[each.agrees]):
                    each.agrees += 1
                else:
                    each.breaks = each.agrees
            if each.breaks is None:
                yield each.values

    def values(self, formulas: Sequence[Formula], exact: bool, rounds: int) -> "Values | None":
        """See `Knowledge.values`."""
        self.speak_of(*formulas)
        asked = frozenset(formulas)
        if asked in self._impossible:
            return None
        self._here.queries += 1
        found = self._found([self._here.expression(each) for each in formulas], exact, rounds)
        if found is None:
            self._impossible.add(asked)
            self._undo.append(partial(self._impossible.discard, asked))
        else:
            self._seen.append(_Seen(found, len(self._formulas)))
        return found

    def in_short(self, formulas: Sequence[Formula]) -> "Values | None":
        """The same, but gives up soon."""
        self._solver.set("rlimit", _FEW_RESOURCES)
        try:
            return self.values(formulas, exact=False, rounds=0)
        finally:
            self._solver.set("rlimit", _RESOURCES)

    def _found(self, expressions: list[Any], exact: bool, rounds: int) -> "Values | None":
        told: list[Any] = []
        patient = rounds > 0
        self._solver.push()
        try:
            self._tell(expressions)
            while True:
                answer = self._answer(patient)
                if answer == z3.unknown:
                    raise GivenUp(f"Z3 gives up: {self._solver.reason_unknown()}")
                if answer == z3.unsat:
                    return None
                found = Values(self._here, self._solver.model())
                wrong = [each for each in self._pending if not found.agrees(each)]
                lemmas = [lemma for each in wrong for lemma in self._lemma(each)]
                if not wrong:
                    lemmas = self._inexact(found, exact) if rounds else []
                    rounds -= 1
                    if not lemmas:
                        return found
                for compared in wrong:
                    del self._pending[compared]
                self._undo.append(partial(self._pending.update, dict.fromkeys(wrong)))
                told += lemmas
                self._tell(lemmas)
        finally:
            self._solver.pop()
            self._tell(told)  # also after this question

    def _answer(self, patient: bool) -> Any:
        """What Z3 answers; ``patient`` lets it go on in other ways, if it gives up."""
        answer = self._solver.check()
        if not patient or answer != z3.unknown:
            return answer
        for seed in range(1, _WAYS):
            self._solver.set("random_seed", seed)
            answer = self._solver.check()
            if answer != z3.unknown:
                break
        self._solver.set("random_seed", 0)
        return answer

    def _lemma(self, compared: Compared) -> list[Any]:
        """As two numbers compare, so do their products with a positive factor.

        Without a second number it is 0.
        """
        known = self._here.lemmas.get(compared)
        if known is not None:
            return known
        factor, one, other = compared
        here, unit = self._here, (factor,)
        apart, products = {one: 1}, {with_factor(one, factor): 1}
        if other:
            apart[other], products[with_factor(other, factor)] = -1, -1
        lemmas = [here.implication(z3.Z3_mk_eq, apart, products)]
        for sign, least in itertools.product((1, -1), range(1, _FACTORS_APART + 1)):
            premise, conclusion = (
                {each: sign * times for each, times in terms.items()} for terms in (apart, products)
            )
            premise[()] = premise.get((), 0) - least
            conclusion[unit] = conclusion.get(unit, 0) - least
            lemmas.append(here.implication(z3.Z3_mk_ge, premise, conclusion))
        here.lemmas[compared] = lemmas
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
                rest = without(product, factor)
                unit, number = found.product((factor,)), found.product(rest)
                if found.product(product) == unit * number:
                    continue
                lemmas.append(z3.Implies(of((factor,)) == unit, of(product) == unit * of(rest)))
                if factor in positive:
                    bound = number * of((factor,))
                    lemmas.append(z3.Implies(of(rest) <= number, of(product) <= bound))
                    lemmas.append(z3.Implies(of(rest) >= number, of(product) >= bound))
        return lemmas


class Knowledge:
    """Formulas that hold together, with the facts about what they speak of."""

    def __init__(self, here: Arithmetic) -> None:
        self._here = here
        if here.solving is None:
            here.solving = _Told(here)
        self._told: _Told = here.solving
        self._formulas: list[Formula] = []
        self._ends: list[int] = []

    def add(self, formula: Formula) -> None:
        """From now on this holds, too."""
        if formula is not True:
            self._formulas.append(formula)
            if self._told.owner is self:
                self._told.owner = None

    def may_part(self) -> None:
        """What is added from here on other paths need not know."""
        self._ends.append(len(self._formulas))

    def _asked(self) -> _Told:
        told = self._told
        if told.owner is not self:
            told.take(self._formulas, self._ends)
            told.owner = self
        told.look_at_facts()
        return told

    def values(
        self, *formulas: Formula, exact: bool = False, in_short: bool = False
    ) -> "Values | None":
        """Values with which these hold as well, None if there are none. Raises `GivenUp`.

        ``exact`` tries to find values of real products, and ``in_short`` gives up soon.
        """
        told = self._asked()
        return told.in_short(formulas) if in_short else told.values(formulas, exact, _ROUNDS)

    def allows(self, formula: Formula) -> bool:
        """Whether values are remembered with which this holds as well."""
        told = self._asked()
        told.speak_of(formula)
        return any(values.holds(formula) for values in told.seen())

    def fails(self, conclusion: Callable[[], Formula]) -> "Values | None":
        """Values with which a conclusion does not hold at the position, None if it follows.

        It may quantify once. Raises `GivenUp`.
        """
        with self._here.concluding() as counterexamples:
            holds = conclusion()
        return self.values(*counterexamples, self._here.not_(holds), exact=True)

    def follows(self, formula: Formula) -> bool:
        """Whether a formula holds wherever these do. Raises `GivenUp`."""
        if isinstance(formula, bool):
            return formula
        otherwise = self._here.not_(formula)
        return not self.allows(otherwise) and self.values(otherwise) is None

    def weakened(self, families: Sequence[Sequence[Callable[[], Formula]]]) -> list[int]:
        """How many of the first of each family do not follow; each implies the next one."""
        dropped = [0 for _ in families]

        def first(number: int) -> Formula:
            """The first that is not dropped; True if all are."""
            family = families[number]
            while dropped[number] < len(family):
                formula = family[dropped[number]]()
                if formula is not False:
                    return formula
                dropped[number] += 1
            return True

        def drop(found: Values) -> None:
            for number, formula in list(open_.items()):
                while formula is not True and not found.holds(formula):
                    dropped[number] += 1
                    formula = first(number)
                open_[number] = formula
                if formula is True:
                    del open_[number]

        open_ = {n: f for n in range(len(families)) if (f := first(n)) is not True}
        told = self._asked()
        told.speak_of(*open_.values())
        for values in list(told.seen()):
            drop(values)
        while open_:
            denied = map(self._here.not_, open_.values())
            found = told.values([self._here.truth("or", *denied)], False, _ROUNDS)
            if found is None:
                break
            before = sum(dropped)
            drop(found)
            if before == sum(dropped):
                raise GivenUp("Z3 gives values that contradict themselves")
        return dropped


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

    def agrees(self, told: "Formula | Compared") -> bool:
        """Whether a formula holds, or two products with a factor compare as the numbers do."""
        if not isinstance(told, tuple):
            return self.holds(told)
        factor, one, other = told
        unit = self.product((factor,))
        apart, products_apart = self.product(one), self.product(with_factor(one, factor))
        if other:
            apart -= self.product(other)
            products_apart -= self.product(with_factor(other, factor))
        if apart == 0:
            return products_apart == 0
        least = min(abs(apart), _FACTORS_APART) * unit
        return products_apart >= least if apart > 0 else products_apart <= -least

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

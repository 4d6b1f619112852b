"""What is to be proved: statements, obligations, mutants and theorems."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from hitproof.proofs.interpretation import (
    Abstract,
    Bounded,
    Instance,
    Interpretation,
    Ones,
    Shifted,
    Z3Interpretation,
    bare,
)
from hitproof.spec.terms import Formula, Term, implies

Hypotheses: TypeAlias = tuple[tuple[str, Formula], ...]
"""Formulas that are taken for granted, each with one line that explains it."""


@dataclass(frozen=True)
class Statement:
    """Under the hypotheses, for all values of the unknowns, the conclusion.

    Attributes:
        hypotheses: each with one line that explains it.
        conclusion: what follows.
        given: what holds of everything that the theorem is about, so that users of the conclusion
            need not show it again: definitions, what other obligations prove, and in an induction
            what held a step before. Called on demand.
    """

    hypotheses: Hypotheses
    conclusion: Formula
    given: Callable[[], Hypotheses] = tuple

    def premises(self) -> Hypotheses:
        """All that the conclusion is proved from."""
        return (*self.hypotheses, *self.given())


State: TypeAlias = Callable[[Interpretation], Statement]
"""A statement, in any interpretation. Unknowns are named the most important first: models
make the first one smallest, then the second, and so on."""


def refutation(state: State, at: Z3Interpretation) -> list[Term]:
    """What a counterexample satisfies: it is contradictory if and only if the statement holds.

    These are Z3's terms.
    """
    statement = state(at)
    premises = [bare(premise) for _, premise in statement.premises()]
    return [*at.assumptions(), *premises, bare(at.not_(statement.conclusion))]


@dataclass(frozen=True)
class Mutant:
    """A statement with one deliberate error, which must be refuted.

    Attributes:
        name: what was broken.
        sentence: the false claim in one English sentence.
        state: the statement.
    """

    name: str
    sentence: str
    state: State


def slips(state: State) -> Iterator[Mutant]:
    """The mutants that any statement has: its conclusion, about one more or one less of something.

    Those of the most important unknowns come first. Some are true.
    """
    unknowns = Shifted(Bounded(1))
    state(unknowns)
    for name in unknowns.names:
        for by, how in ((1, "more"), (-1, "less")):
            yield Mutant(
                f"{name}_one_{how}",
                f"So it is of one {how} than {name}.",
                partial(_slipped, state, name, by),
            )


def _slipped(state: State, name: str, by: int, at: Interpretation) -> Statement:
    return replace(state(at), conclusion=state(Shifted(at, name, by)).conclusion)


@dataclass(frozen=True)
class Obligation:
    """One part of a theorem.

    Attributes:
        name: stable, unique within its theorem.
        sentence: what is proved, in one English sentence.
        state: the statement.
        mutants: errors that the statement must be strong enough to exclude. Without any, one of
            its `slips` must be refuted.
        interpretation: the one to prove it in.
    """

    name: str
    sentence: str
    state: State
    mutants: tuple[Mutant, ...] = ()
    interpretation: Callable[[], Z3Interpretation] = Abstract

    @cached_property
    def rests_on(self) -> tuple["Obligation", ...]:
        """The obligations that it takes for granted; it is proved only if they are."""
        premises = self.state(Ones()).premises()
        taken = (why.obligation for why, _ in premises if isinstance(why, Taken))
        return tuple(dict.fromkeys(taken))


class Taken(str):
    """Why a premise holds: another obligation proves it.

    Attributes:
        obligation: that one.
    """

    obligation: Obligation

    @classmethod
    def of(cls, obligation: Obligation) -> "Taken":
        """The obligation's sentence, as a reason."""
        why = cls(obligation.sentence)
        why.obligation = obligation
        return why


def taken(at: Interpretation, obligation: Obligation, **meanings: Any) -> tuple[str, Formula]:
    """A premise: what an obligation proves, where its unknowns have these meanings.

    It is built by the obligation's own statement, so that it cannot be anything else. A meaning is
    a term, or the membership test of a set; an unknown without one is the unknown of that name.
    """
    statement = obligation.state(Instance(at, meanings))
    return Taken.of(obligation), implies(all_of(statement.hypotheses), statement.conclusion)


def all_of(hypotheses: Hypotheses) -> Formula:
    """Whether all of them hold."""
    result: Formula = True
    for _, holds in hypotheses:
        result = result & holds
    return result


def chain(*conclusions: Obligation) -> tuple[Obligation, ...]:
    """The obligations that these rest on, and they, each after those that it rests on."""
    links: dict[Obligation, None] = {}
    for obligation in conclusions:
        links |= dict.fromkeys((*chain(*obligation.rests_on), obligation))
    return tuple(links)


@dataclass(frozen=True)
class Theorem:
    """The obligations that together prove one claim.

    Attributes:
        name: the claim's.
        obligations: all of them must be proved.
        covers: what of the claim they prove, in a sentence or two, and what they do not.
    """

    name: str
    obligations: tuple[Obligation, ...]
    covers: str = ""

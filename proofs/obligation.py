"""What is to be proved: statements, obligations, mutants and theorems."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from hitproof.proofs.interpretation import (
    Abstract,
    Bounded,
    Interpretation,
    Shifted,
    Z3Interpretation,
    bare,
)
from hitproof.spec.terms import Formula, Term

Hypotheses: TypeAlias = tuple[tuple[str, Formula], ...]
"""Formulas that are taken for granted, each with one line that explains it."""


@dataclass(frozen=True)
class Statement:
    """Under the hypotheses, for all values of the unknowns, the conclusion.

    Attributes:
        hypotheses: each with one line that explains it.
        conclusion: what follows.
    """

    hypotheses: Hypotheses
    conclusion: Formula


State: TypeAlias = Callable[[Interpretation], Statement]
"""A statement, in any interpretation. Unknowns are named the most important first: models
make the first one smallest, then the second, and so on."""


def refutation(state: State, at: Z3Interpretation) -> list[Term]:
    """What a counterexample satisfies: it is contradictory just when the statement holds.

    These are Z3's terms.
    """
    statement = state(at)
    hypotheses = [bare(hypothesis) for _, hypothesis in statement.hypotheses]
    return [*at.assumptions(), *hypotheses, bare(at.not_(statement.conclusion))]


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

    Those of the most important unknowns come first. Not every one is false.
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
    return Statement(state(at).hypotheses, state(Shifted(at, name, by)).conclusion)


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
        rests_on: the obligations before it in its theorem whose conclusions it takes for granted;
            it is proved only if they are.
    """

    name: str
    sentence: str
    state: State
    mutants: tuple[Mutant, ...] = ()
    interpretation: Callable[[], Z3Interpretation] = Abstract
    rests_on: tuple[str, ...] = ()


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

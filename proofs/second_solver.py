"""A second opinion: each obligation as SMT-LIB 2 text, and cvc5's answer.

The text is all that cvc5 is given: no term, tactic or search is shared with Z3. What the two
still share is the printer of the text and the encoding in `interpretation`.
"""

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import z3

from hitproof.proofs.errors import SecondSolverError
from hitproof.proofs.interpretation import Bounded, Z3Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, State, Theorem, refutation
from hitproof.spec.terms import Term


class Opinion(StrEnum):
    """How an answer of the second solver compares with the expected one."""

    AGREES = "agrees"
    UNKNOWN = "unknown"
    DISAGREES = "disagrees"


@dataclass(frozen=True)
class Query:
    """One question to a solver.

    Attributes:
        path: where it is written, relative to the directory of all queries.
        about: the facts that head the file.
        expected: ``unsat`` for an obligation: its premises and its negated conclusion
            contradict each other. ``sat`` for a mutant: a small model breaks it.
        text: the question in SMT-LIB 2, without the expected answer.
    """

    path: Path
    about: dict[str, str]
    expected: str
    text: str

    def file(self) -> str:
        """The whole file."""
        comment = "".join(f"; {key}: {value}\n" for key, value in self.about.items())
        return f"{comment}(set-info :status {self.expected})\n{self.text}"


def obligation_query(
    claim: str, obligation: Obligation, built: tuple[Z3Interpretation, list[Term]] | None = None
) -> Query:
    """The question that proves an obligation when it has no model.

    Its formulas take a while to build; ``built`` are they, where built already.
    """
    about = {"claim": claim, "obligation": obligation.name, "sentence": obligation.sentence}
    text = _smt2(*(built or _built(obligation.state, obligation.interpretation)))
    return Query(Path(claim, f"{_slug(obligation.name)}.smt2"), about, "unsat", text)


def mutant_query(claim: str, obligation: Obligation, mutant: Mutant, bound: int) -> Query:
    """The question that refutes a mutant when it has a model of numbers up to ``bound``."""
    about = {
        "claim": claim,
        "obligation": obligation.name,
        "mutant": mutant.name,
        "false sentence": mutant.sentence,
        "numbers": f"0 to {bound}",
    }
    text = _smt2(*_built(mutant.state, lambda: Bounded(bound)))
    name = f"{_slug(obligation.name)}.mutant.{_slug(mutant.name)}.smt2"
    return Query(Path(claim, name), about, "sat", text)


def queries(theorems: Iterable[Theorem], bound: int) -> Iterator[Query]:
    """All questions: each obligation, followed by its mutants."""
    for theorem in theorems:
        for obligation in theorem.obligations:
            yield obligation_query(theorem.name, obligation)
            for mutant in obligation.mutants:
                yield mutant_query(theorem.name, obligation, mutant, bound)


def write(directory: Path, theorems: Iterable[Theorem], bound: int) -> None:
    """Write each question to a file of its own."""
    for query in queries(theorems, bound):
        path = directory / query.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(query.file(), encoding="utf-8")


def available() -> bool:
    """Whether cvc5 is installed."""
    return importlib.util.find_spec("cvc5") is not None


def opinion(query: Query, resource_limit: int) -> Opinion:
    """What cvc5 thinks of the expected answer. Raises `SecondSolverError` as `ask` does."""
    answer = ask(query.text, resource_limit)
    if answer == "unknown":
        return Opinion.UNKNOWN
    return Opinion.AGREES if answer == query.expected else Opinion.DISAGREES


_last: list[object] = []
"""The solver that was asked last."""


def ask(text: str, resource_limit: int) -> str:
    """cvc5's answer: ``sat``, ``unsat`` or ``unknown``, the latter also at the resource limit.

    Raises `SecondSolverError` when cvc5 does not understand the text.
    """
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    # Without the last one the memory goes back to the system, and a third of the time goes into
    # fetching it again.
    _last[:] = [solver]
    solver.setOption("rlimit", str(resource_limit))
    solver.setOption("fresh-binders", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "query")
    output = ""
    try:
        while not (command := parser.nextCommand()).isNull():
            output += str(command.invoke(solver, parser.getSymbolManager()))
    except RuntimeError as error:
        raise SecondSolverError(f"cvc5 fails: {error}") from error
    answer = re.fullmatch(r"(sat|unsat|unknown)( \(\w+\))?", output.strip())
    if answer is None:
        raise SecondSolverError(f"cvc5 answers {output.strip()!r}")
    return answer[1]


def _built(
    state: State, interpretation: Callable[[], Z3Interpretation]
) -> tuple[Z3Interpretation, list[Term]]:
    at = interpretation()
    return at, refutation(state, at)


def _smt2(at: Z3Interpretation, formulas: list[Term]) -> str:
    solver = z3.SimpleSolver(ctx=at.context)
    solver.add(formulas)
    return text_of(solver)


def text_of(solver: Any) -> str:
    """In SMT-LIB 2, whether all that a Z3 solver is told by now holds together."""
    preamble, status, body = solver.to_smt2().partition("(set-info :status unknown)\n")
    if not status:
        raise SecondSolverError(f"Z3 prints something else than expected: {preamble[:200]}")
    return f"(set-logic ALL)\n{body}"


def _slug(name: str) -> str:
    """The name as part of a file name."""
    return re.sub(r"\W+", "-", name).strip("-")

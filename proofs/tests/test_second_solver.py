"""cvc5 is given the obligations themselves, and is believed only when it answers."""

import importlib.util
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hitproof.proofs.errors import SecondSolverError
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.lemmas import LEMMAS
from hitproof.proofs.obligation import Mutant, Obligation, Statement, slips
from hitproof.proofs.prover import DEFAULTS, prove_obligation
from hitproof.proofs.second_solver import (
    Opinion,
    Query,
    ask,
    mutant_query,
    obligation_query,
    opinion,
    queries,
    write,
)
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import Status

pytestmark = pytest.mark.slow

ALL = (LEMMAS, *THEOREMS.values())
LIMIT = DEFAULTS.second_resource_limit


def at_least(at: Interpretation, least: int, claimed: int) -> Statement:
    """An x of at least ``least`` is at least ``claimed``."""
    x = at.integer("x")
    return Statement((("x is not too small", least <= x),), claimed <= x)


FALSE = Mutant("swapped", "At least 2 is at least 3.", partial(at_least, least=2, claimed=3))
TRUE = Obligation(
    "o [a kind]", "At least 3 is at least 2.", partial(at_least, least=3, claimed=2), (FALSE,)
)


@pytest.fixture(scope="module")
def opinions() -> dict[Path, tuple[Query, Opinion]]:
    return {query.path: (query, opinion(query, LIMIT)) for query in queries(ALL, DEFAULTS.bound)}


@pytest.mark.long
def test_cvc5_disagrees_nowhere(opinions: dict[Path, tuple[Query, Opinion]]) -> None:
    given = {path: said for path, (query, said) in opinions.items() if query.expected == "unsat"}
    assert len(given) == sum(len(theorem.obligations) for theorem in ALL)
    assert Opinion.DISAGREES not in given.values()
    unknown = [path for path, said in given.items() if said is Opinion.UNKNOWN]
    assert len(unknown) * 10 <= len(given), unknown  # else the second opinion is hardly one


@pytest.mark.long
def test_cvc5_refutes_each_mutant(opinions: dict[Path, tuple[Query, Opinion]]) -> None:
    given = {path: said for path, (query, said) in opinions.items() if query.expected == "sat"}
    assert len(given) == sum(len(part.mutants) for theorem in ALL for part in theorem.obligations)
    assert {path for path, said in given.items() if said is not Opinion.AGREES} == set()


@pytest.mark.long
def test_cvc5_proves_no_mutant() -> None:
    """The text of an obligation is not contradictory by itself."""
    for theorem in ALL:
        for obligation in theorem.obligations:
            proved = (
                ask(obligation_query("c", replace(obligation, state=mutant.state)).text, LIMIT)
                == "unsat"
                for mutant in obligation.mutants or slips(obligation.state)
            )
            assert not (any if obligation.mutants else all)(proved), obligation.name


def test_wrong_expectation_is_a_disagreement() -> None:
    proof, refutation = obligation_query("c", TRUE), mutant_query("c", TRUE, FALSE, bound=6)
    assert opinion(proof, LIMIT) is opinion(refutation, LIMIT) is Opinion.AGREES
    assert (ask(proof.file(), LIMIT), ask(refutation.file(), LIMIT)) == ("unsat", "sat")
    assert opinion(replace(proof, expected="sat"), LIMIT) is Opinion.DISAGREES
    assert opinion(replace(refutation, expected="unsat"), LIMIT) is Opinion.DISAGREES


def test_false_obligation_is_a_disagreement() -> None:
    assert opinion(obligation_query("c", replace(TRUE, state=FALSE.state)), LIMIT) is (
        Opinion.DISAGREES
    )


def test_exhausted_resources_are_unknown() -> None:
    hard = obligation_query("c", LEMMAS.obligations[1])
    assert opinion(hard, LIMIT) is Opinion.AGREES
    assert opinion(hard, resource_limit=10) is Opinion.UNKNOWN


@pytest.mark.parametrize("text", ["(assert", "(assert no_such_name)(check-sat)", "", "(exit)"])
def test_text_that_cvc5_does_not_understand_is_an_internal_error(text: str) -> None:
    with pytest.raises(SecondSolverError):
        ask(f"(set-logic ALL){text}", LIMIT)


def test_prover_asks_on_what_is_proved_only() -> None:
    proved = prove_obligation("c", TRUE, DEFAULTS)
    assert (proved.status, proved.second_opinion) == (Status.PROVED, Opinion.AGREES)
    refuted = prove_obligation("c", replace(TRUE, state=FALSE.state), DEFAULTS)
    assert (refuted.status, refuted.second_opinion) == (Status.REFUTED, None)


def test_prover_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    result = prove_obligation("c", TRUE, DEFAULTS)
    assert (result.status, result.second_opinion) == (Status.PROVED, None)


@pytest.mark.long
def test_each_obligation_and_each_written_mutant_has_a_file(tmp_path: Path) -> None:
    write(tmp_path, ALL, DEFAULTS.bound)
    files = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    for theorem in ALL:
        for obligation in theorem.obligations:
            for mutant in (None, *obligation.mutants):
                sentence = obligation.sentence if mutant is None else mutant.sentence
                expected = "unsat" if mutant is None else "sat"
                about = [f"; claim: {theorem.name}\n", f"; obligation: {obligation.name}\n"]
                about += [] if mutant is None else [f"; mutant: {mutant.name}\n"]
                own = [
                    path
                    for path, text in files.items()
                    if text.startswith(about[0])
                    and all(line in text for line in (*about, f"sentence: {sentence}\n"))
                    and f"(set-info :status {expected})\n" in text
                ]
                assert len(own) == 1
                assert re.fullmatch(r"[\w.-]+\.smt2", own[0].name)
                assert (mutant is not None) is (".mutant." in own[0].name)
                del files[own[0]]
    assert files == {}

"""The prover calls nothing proved that is not."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import pytest
import z3

from hitproof.proofs import prover
from hitproof.proofs.errors import ReplayError
from hitproof.proofs.interpretation import Abstract, Interpretation, Model, Replay
from hitproof.proofs.obligation import Mutant, Obligation, State, Statement, Theorem, chain, taken
from hitproof.proofs.prover import (
    DEFAULTS,
    ProofResult,
    Settings,
    prove,
    prove_in_subprocess,
    prove_obligation,
)
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import Status
from hitproof.spec.terms import Formula

pytestmark = pytest.mark.slow

CLAIM = "mask_keeps_every_reachable_block"


def at_least(at: Interpretation, least: int, claimed: int) -> Statement:
    """An x of at least ``least`` is at least ``claimed``."""
    x = at.integer("x")
    return Statement((("x is not too small", least <= x),), claimed <= x)


TRUE = partial(at_least, least=3, claimed=2)
FALSE = partial(at_least, least=2, claimed=3)
MUTANT = Mutant("swapped", "At least 2 is at least 3.", FALSE)


def judged(obligation: Obligation) -> ProofResult:
    return prove_obligation("a claim", obligation, DEFAULTS)


def test_true_statement_is_proved_with_its_models() -> None:
    result = judged(Obligation("o", "s", TRUE, (MUTANT,)))
    assert (result.status, result.detail) == (Status.PROVED, "")
    assert result.premises == Model({"x": 3})
    assert result.mutants == {"swapped": Model({"x": 2})}
    assert result.resource_count > 0


def test_false_statement_is_refuted_with_the_small_model() -> None:
    result = judged(Obligation("o", "s", FALSE, (MUTANT,)))
    assert result.status is Status.REFUTED
    assert result.counterexample == Model({"x": 2})
    assert "x = 2" in result.detail


def test_false_statement_without_small_model_is_inconclusive() -> None:
    far = partial(at_least, least=1000, claimed=1001)
    result = judged(Obligation("o", "s", far, (MUTANT,)))
    assert result.status is Status.INCONCLUSIVE
    assert "not proved" in result.detail
    assert result.counterexample is None


def test_missing_axiom_is_inconclusive_and_not_refuted() -> None:
    def squares_are_positive(at: Interpretation) -> Statement:
        x = at.integer("x")
        return Statement((), x * x >= 0)

    result = judged(Obligation("o", "s", squares_are_positive, (MUTANT,)))
    assert result.status is Status.INCONCLUSIVE


def test_contradictory_premises_are_not_a_proof() -> None:
    def vacuous(at: Interpretation) -> Statement:
        x = at.integer("x")
        return Statement((("x is large", 2 <= x), ("x is small", x <= 1)), x == 17)

    result = judged(Obligation("o", "s", vacuous, (MUTANT,)))
    assert result.status is Status.INCONCLUSIVE
    assert "premises" in result.detail


def test_mutant_that_is_not_refuted_is_not_a_proof() -> None:
    harmless = Mutant("harmless", "At least 3 is at least 1.", partial(TRUE, claimed=1))
    result = judged(Obligation("o", "s", TRUE, (MUTANT, harmless)))
    assert result.status is Status.INCONCLUSIVE
    assert "harmless" in result.detail


def test_without_mutants_one_more_or_less_must_be_refuted() -> None:
    tight = judged(Obligation("o", "s", partial(TRUE, claimed=3)))
    assert (tight.status, tight.mutants) == (Status.PROVED, {"x_one_less": Model({"x": 3})})
    loose = judged(Obligation("o", "s", TRUE))
    assert loose.status is Status.INCONCLUSIVE
    assert "slips" in loose.detail


@pytest.mark.long
def test_exhausted_resources_are_inconclusive() -> None:
    results = prove(settings=Settings(resource_limit=10))
    assert {result.status for result in results} == {Status.INCONCLUSIVE}
    assert all("Z3 gives up" in result.detail for result in results)


def test_failing_z3_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise z3.Z3Exception("out of memory")

    monkeypatch.setattr(z3.Solver, "check", fail)
    result = judged(Obligation("o", "s", TRUE, (MUTANT,)))
    assert result.status is Status.INCONCLUSIVE
    assert "out of memory" in result.detail


def on_ints(at: Interpretation, terms: Formula, ints: Formula) -> Formula:
    """Two readings that differ, as a bug in an interpretation would make them."""
    return ints if isinstance(at, Replay) else terms


def broken_counterexample(at: Interpretation) -> Statement:
    x = at.integer("x")
    return Statement((), on_ints(at, x != 2, True))


def broken_premise(at: Interpretation) -> Statement:
    x = at.integer("x")
    return Statement((("x is 2", on_ints(at, x == 2, False)),), x == 2)


def broken_conclusion(at: Interpretation) -> Statement:
    x = at.integer("x")
    return Statement((), on_ints(at, x == x, False))


@pytest.mark.parametrize("state", [broken_counterexample, broken_premise, broken_conclusion])
def test_model_that_does_not_replay_is_an_internal_error(state: State) -> None:
    with pytest.raises(ReplayError, match="on ints"):
        judged(Obligation("o", "s", state, (MUTANT,)))
    mutant = Mutant("broken", "s", broken_counterexample)
    with pytest.raises(ReplayError, match="on ints"):
        judged(Obligation("o", "s", TRUE, (mutant,)))


def test_truth_value_that_is_no_bool_does_not_replay() -> None:
    with pytest.raises(ReplayError):
        prover.replay(lambda _: Statement((("1 is no truth value", 1),), True), Model(), False)


def test_unsound_axioms_are_an_internal_error() -> None:
    class Unsound(Abstract):
        def assumptions(self) -> list[Formula]:
            return [z3.BoolVal(False, self.context)]

    with pytest.raises(ReplayError, match="proves its mutant"):
        judged(Obligation("o", "s", TRUE, (MUTANT,), interpretation=Unsound))


def test_theorems_fall_with_a_lemma(monkeypatch: pytest.MonkeyPatch) -> None:
    lemmas = Theorem("lemmas", (Obligation("shaky", "s", FALSE, (MUTANT,)),))
    monkeypatch.setattr(prover, "LEMMAS", lemmas)
    first, *others = prove([CLAIM])
    assert first.status is Status.REFUTED
    assert len(others) == len(THEOREMS[CLAIM].obligations)
    assert {result.status for result in others} == {Status.INCONCLUSIVE}
    assert all("shaky" in result.detail for result in others)


def test_obligations_fall_with_what_they_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def resting_on(below: Obligation) -> State:
        return lambda at: replace(TRUE(at), given=lambda: (taken(at, below),))

    shaky = Obligation("shaky", "s", FALSE, (MUTANT,))
    lower = Obligation("above", "s", resting_on(shaky), (MUTANT,))
    parts = (
        *chain(Obligation("on_top", "s", resting_on(lower), (MUTANT,))),
        Obligation("beside", "s", TRUE, (MUTANT,)),
    )
    assert [each.name for each in parts] == ["shaky", "above", "on_top", "beside"]
    monkeypatch.setitem(THEOREMS, CLAIM, Theorem(CLAIM, parts))
    monkeypatch.setattr(prover, "LEMMAS", Theorem("none", ()))
    _, above, on_top, beside = prove([CLAIM])
    assert (above.status, on_top.status) == (Status.INCONCLUSIVE, Status.INCONCLUSIVE)
    assert "shaky" in above.detail
    assert "above" in on_top.detail
    assert beside.status is Status.PROVED


def test_unknown_claim_is_named() -> None:
    with pytest.raises(ValueError, match="no_such_claim"):
        prove([CLAIM, "no_such_claim"])
    with pytest.raises(ValueError, match="no_such_claim"):
        prove_in_subprocess(["no_such_claim"])


def verdicts(results: list[ProofResult]) -> list[tuple[object, ...]]:
    return [
        (r.claim, r.obligation, r.status, r.premises, r.mutants, r.resource_count) for r in results
    ]


@pytest.mark.long
def test_subprocess_returns_what_prove_returns() -> None:
    assert verdicts(prove_in_subprocess([CLAIM])) == verdicts(prove([CLAIM]))


def test_killed_subprocess_leaves_all_inconclusive() -> None:
    results = prove_in_subprocess([CLAIM], timeout_seconds=0)
    assert [(r.claim, r.obligation) for r in results] == [
        (r.claim, r.obligation) for r in prove([CLAIM])
    ]
    assert {r.status for r in results} == {Status.INCONCLUSIVE}
    assert all("in time" in r.detail for r in results)


@contextmanager
def pipe() -> Iterator[tuple[Connection, Connection]]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, sender:
        yield receiver, sender


def test_what_was_finished_before_the_end_is_kept() -> None:
    finished = ProofResult("a claim", "o", Status.PROVED)
    results: list[ProofResult] = []
    with pipe() as (receiver, sender):
        sender.send(finished)
        assert "in time" in prover._receive(receiver, results, 2, time.monotonic())
        sender.send(finished)
        sender.close()
        assert "died" in prover._receive(receiver, results, 3, time.monotonic() + 60)
    assert results == [finished, finished]


def test_internal_error_crosses_the_process_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Obligation("o", "s", broken_premise, (MUTANT,))
    monkeypatch.setitem(THEOREMS, CLAIM, Theorem(CLAIM, (broken,)))
    monkeypatch.setattr(prover, "LEMMAS", Theorem("none", ()))
    with pipe() as (receiver, sender):
        prover._work(sender, [CLAIM], DEFAULTS)
        with pytest.raises(ReplayError, match="x is 2"):
            prover._receive(receiver, [], 1, time.monotonic() + 60)

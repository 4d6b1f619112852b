"""`hitproof prove` as its user sees it: the second solver's column, its files and exit code."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hitproof.proofs.errors import SecondSolverError
from hitproof.proofs.prover import ProofResult, chosen, prove
from hitproof.proofs.second_solver import Opinion
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import Status
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.verdict import Verdict

CLAIM = "mask_keeps_every_reachable_block"
LONGEST = "common_hit_is_the_longest"
PROVER = "hitproof.proofs.prover.prove_in_subprocess"


@pytest.fixture(scope="module")
def proved() -> list[ProofResult]:
    return prove([CLAIM])


def run(
    monkeypatch: pytest.MonkeyPatch, results: list[ProofResult], *options: str
) -> tuple[int, str]:
    monkeypatch.setattr(PROVER, lambda *_, **__: results)
    outcome = CliRunner().invoke(cli.app, ["prove", CLAIM, *options])
    return outcome.exit_code, outcome.output


def test_agreement_is_shown(monkeypatch: pytest.MonkeyPatch, proved: list[ProofResult]) -> None:
    code, output = run(monkeypatch, proved)
    assert code == Verdict.CONFORMS
    assert "cvc5" in output
    assert f"{len(proved) - 6} agrees" in output
    code, output = run(monkeypatch, proved, "--format", "json")
    assert {entry["cvc5"] for entry in json.loads(output)} == {"agrees"}


def test_what_conclusions_rest_on_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "lookup_agrees_under_latest_retention"
    parts = THEOREMS[claim].obligations
    results = [ProofResult(claim, each.name, Status.PROVED) for each in parts]
    _, output = run(monkeypatch, results, "--graph")
    drawn = output.partition("proved dense_caching_serves_each_valid_hit:")[2].splitlines()
    assert "└── proved the_caches_agree_after_each_step, see above" in drawn[1]
    told = " ".join(re.sub(r"[│├└─]", " ", output).split())
    assert all(f"proved {each.name}: {each.sentence}" in told for each in parts)


def test_clauses_are_labelled_by_what_was_asked(
    monkeypatch: pytest.MonkeyPatch, proved: list[ProofResult]
) -> None:
    _, output = run(monkeypatch, proved)
    assert "4 clauses proved" in output
    _, output = run(monkeypatch, proved, "--format", "json")
    labels = dict.fromkeys(("in_mask", "next_boundary", "in_stored_mask", "is_due"), "proved")
    assert json.loads(output)[-1]["clauses"] == labels
    assert "what a connector stores" in json.loads(output)[-1]["covers"]
    partly = [replace(result, claim=LONGEST, clauses=("horizon",)) for result in proved]
    _, output = run(monkeypatch, partly, "--verbose")
    assert "1 clause tested, since no theorem notices some changes of them: horizon" in output
    assert "tested: horizon" in output
    _, output = run(monkeypatch, partly, "--format", "json")
    assert json.loads(output)[-1]["clauses"]["horizon"] == "tested"
    blind = [replace(result, clauses=()) for result in proved]
    _, output = run(monkeypatch, blind, "--verbose")
    assert "4 clauses not proved" in output
    assert "not proved: in_mask, in_stored_mask" in output
    _, output = run(monkeypatch, [replace(r, status=Status.REFUTED) for r in proved])
    assert "4 clauses not proved" in output


@pytest.mark.parametrize("said", [Opinion.UNKNOWN, None])
def test_no_opinion_is_shown_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, proved: list[ProofResult], said: Opinion | None
) -> None:
    results = [replace(result, second_opinion=said) for result in proved]
    code, output = run(monkeypatch, results)
    assert code == Verdict.CONFORMS
    assert ("unknown" if said else "not run") in output
    code, output = run(monkeypatch, results, "--format", "json")
    assert {entry["cvc5"] for entry in json.loads(output)} == {said and str(said)}


def test_disagreement_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, proved: list[ProofResult]
) -> None:
    *others, last = proved
    results = [*others, replace(last, second_opinion=Opinion.DISAGREES)]
    code, output = run(monkeypatch, results)
    assert code == Verdict.INTERNAL
    assert "1 disagrees" in output
    assert f"Z3 and cvc5 disagree on {last.obligation}" in output


def test_failing_second_solver_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> list[ProofResult]:
        raise SecondSolverError("cvc5 fails: no such symbol")

    monkeypatch.setattr(PROVER, fail)
    outcome = CliRunner().invoke(cli.app, ["prove", CLAIM])
    assert outcome.exit_code == Verdict.INTERNAL
    assert "no such symbol" in outcome.output


def test_smt2_files_are_written_for_the_chosen_claims(
    monkeypatch: pytest.MonkeyPatch, proved: list[ProofResult], tmp_path: Path
) -> None:
    code, _ = run(monkeypatch, proved, "--smt2", str(tmp_path / "new" / "directory"))
    assert code == Verdict.CONFORMS
    files = list((tmp_path / "new" / "directory").rglob("*.smt2"))
    assert {path.parent.name for path in files} == {CLAIM, "products_and_quotients"}
    planned = [part for theorem in chosen([CLAIM]) for part in theorem.obligations]
    assert len(files) == sum(1 + len(part.mutants) for part in planned)

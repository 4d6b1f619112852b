"""The registry is complete: every claim has a theorem and a check, and the other way round."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import spec
from conformance.checks import CHECKS
from proofs.theorems import THEOREMS
from spec.claims import CLAIMS, Claim

REGISTRIES: dict[str, dict[str, Any]] = {"theorem": dict(THEOREMS), "check": dict(CHECKS)}


def gaps(claims: dict[str, Claim]) -> list[str]:
    """What is missing between the claims, the theorems and the checks."""
    return [
        f"{name}: {what}"
        for what, registry in REGISTRIES.items()
        for name in claims.keys() ^ registry.keys()
    ]


def test_every_claim_has_a_theorem_and_a_check() -> None:
    assert gaps(CLAIMS) == []


@pytest.mark.parametrize("removed", CLAIMS)
def test_a_missing_claim_theorem_or_check_is_noticed(
    removed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(gaps({name: c for name, c in CLAIMS.items() if name != removed})) == 2
    for what, registry in REGISTRIES.items():
        with monkeypatch.context() as patch:
            patch.delitem(registry, removed)
            assert gaps(CLAIMS) == [f"{removed}: {what}"]


def test_claims_state_themselves() -> None:
    for name, claim in CLAIMS.items():
        assert name == claim.name
        assert claim.sentence.endswith(".")
        assert claim.symbols
        assert claim.clauses
        for clause in claim.clauses:
            module = inspect.getmodule(clause)
            assert module is not None
            assert module.__name__.startswith("spec.")
            assert inspect.getdoc(clause)


def test_every_public_clause_belongs_to_a_claim() -> None:
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    folder = Path(spec.__file__).parent
    stems = ("attention", "groups", "hits", "mask", "retention", "sharing", "pool")
    for stem in (*stems, "in_turn", "fine", "connector"):
        assert (folder / f"{stem}.py").exists()
        module = __import__(f"spec.{stem}", fromlist=["*"])
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                assert function in cited, f"{name} is in no claim"

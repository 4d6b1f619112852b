"""The registry is complete: every claim has a theorem and a check, and the other way round."""

import contextlib
import inspect
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

from hitproof import spec
from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import CLAIMS, Claim

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
            assert module.__name__.startswith("hitproof.spec.")
            assert inspect.getdoc(clause)


NO_CLAUSES = {f"hitproof.spec.{name}" for name in ("claims", "terms", "releases.policies")}
"""Modules that state nothing of a hit: the registry, arithmetic, and the policies of releases."""


def test_every_public_clause_belongs_to_a_claim() -> None:
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    modules = {module.name for module in walk_packages(spec.__path__, f"{spec.__name__}.")}
    judged = {name for name in modules - NO_CLAUSES if ".tests" not in name}
    assert len(judged) > 10
    for module in map(import_module, judged):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                # What only raises enforces a clause, and is none.
                raises_only = inspect.signature(function).return_annotation is None
                assert raises_only or function in cited, f"{name} is in no claim"


ONE_GROUP = {
    check: claim
    for claim, check in CHECKS.items()
    if any(is_about(claim, each) for each in configurations(Profile.QUICK))
}


@pytest.mark.parametrize("claim", ONE_GROUP.values(), ids=lambda claim: CHECKS[claim].__name__)
def test_what_is_not_asked_would_settle_nothing(claim: str) -> None:
    """A check is left out only where it ends before it asks the subject anything."""
    left_out = [
        each
        for each in configurations(Profile.DEFAULT)
        if each.ranks == (1, 1) and not is_about(claim, each)
    ]
    for configuration in left_out:
        subject = _Asked()
        result = CHECKS[claim](subject, configuration)
        assert (result.statuses, result.evidence, result.paths) == ({}, (), 0)
        assert not subject.asked


@pytest.mark.parametrize("claim", ONE_GROUP.values(), ids=lambda claim: CHECKS[claim].__name__)
def test_a_check_that_is_asked_asks_the_subject(claim: str) -> None:
    asked = [each for each in configurations(Profile.QUICK) if is_about(claim, each)]
    assert asked
    for configuration in asked:
        subject = _Asked()
        with contextlib.suppress(AttributeError):
            CHECKS[claim](subject, configuration)
        assert subject.asked


class _Asked:
    """A subject that has nothing, and notes that something is asked of it."""

    asked = False

    def __getattr__(self, name: str) -> Any:
        self.asked = True
        raise AttributeError(name)

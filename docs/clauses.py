"""What the pages of claims ask for; ``templates`` has their text."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from docs.pictures import picture
from docs.source import place, rests_on
from docs.tables import faults, survey
from hitproof.proofs.obligation import Theorem
from hitproof.spec.claims import CLAIMS, IN_VLLM, Basis, Claim, basis
from hitproof.vllm_integration.survey.faults import Fault

__all__ = ["IN_VLLM", "basis", "picture", "quote"]  # for templates

PROVED_FOR = (
    "all block sizes, windows, alignments and positions, the definition of a hit for any number of "
    "groups, and that their lookups, which take turns, find it"
)
"""How far the theorems reach, in README's words."""


def how_many_are_proved() -> str:
    """How many clauses are proved, and the names of the others."""
    clauses = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    rest = sorted(each.__name__ for each in clauses if basis(each) is not Basis.PROVED)
    return (
        f"{len(clauses) - len(rest)} of {len(clauses)} clauses are proved; the remaining "
        f"{len(rest)} clauses are tested, not proved: {', '.join(rest)}"
    )


_ROW = "| **proved, unbounded** |"


def written(text: str) -> str:
    """README with its line about what is proved."""
    row = (
        f"{_ROW} the clauses of the specification agree with each other and with what attention "
        f"reads (`hitproof prove`: Z3, then cvc5). {how_many_are_proved()} | {PROVED_FOR} |\n"
    )
    lines = text.splitlines(keepends=True)
    return "".join(row if line.startswith(_ROW) else line for line in lines)


def labelled() -> list[Callable[..., Any]]:
    """All clauses, those that are proved first."""
    clauses = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    return sorted(clauses, key=lambda each: (list(Basis).index(basis(each)), each.__name__))


def title(claim: str) -> str:
    """A claim's name as words."""
    words = claim.replace("_", " ").replace("eagle", "EAGLE")
    return words[0].upper() + words[1:]


def beneath(claim: Claim) -> list[Callable[..., Any]]:
    """What its clauses rest on, by name."""
    found = {each for clause in claim.clauses for each in rests_on(clause)}
    return sorted(found - set(claim.clauses), key=lambda each: each.__name__)


def unproved(claim: Claim) -> list[str]:
    """The clauses that are tested only."""
    return [each.__name__ for each in claim.clauses if basis(each) is not Basis.PROVED]


def modules(theorem: Theorem) -> list[str]:
    """The files that state its obligations."""
    return sorted({_module(each.state) for each in theorem.obligations})


def proved(theorem: Theorem) -> str:
    """Its obligations as a list."""
    return "\n".join(f"- {each.sentence}" for each in theorem.obligations)


def _module(state: Callable[..., Any]) -> str:
    """The file that states an obligation."""
    return place(state.func if isinstance(state, partial) else state).partition(":")[0]


def broken_by(claim: Claim) -> Iterator[Fault]:
    """The faults that break it in surveyed releases."""
    seen = [
        (sighting.signature, release.version)
        for release in survey()
        for sighting in release.sightings
        if sighting.signature.claim == claim.name
    ]
    for fault in faults():
        if any(fault.explains(signature, version) for signature, version in seen):
            yield fault

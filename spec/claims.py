"""The claim registry: each claim states what must hold, in one sentence, under a stable name.

The claims stand in ``claims.toml``, each with the clauses that state it and the symbols of vLLM
that it covers. A claim has a theorem of the same name in ``proofs`` and is checked on real code by
the check of the same name in ``conformance``; a test fails when either is missing.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from hitproof.spec.terms import TESTED


class Divergence(StrEnum):
    """The kinds of divergence from the spec, most severe first."""

    UNSOUND = "unsound"
    CRASH = "crash"
    WRONG_DRAFTS = "wrong drafts"
    """Only entries of draft layers are wrong: fewer drafts are accepted, outputs are right."""
    LOST_HIT = "lost hit"
    WASTE = "waste"
    WRONG_METRIC = "wrong metric"
    POLICY_CHANGE = "policy change"


Clause: TypeAlias = Callable[..., Any]
"""A public function of the spec."""


class Status(StrEnum):
    """The result for a claim, as a theorem or on real code."""

    PROVED = "proved"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not applicable"
    """The release predates the feature that the claim is about."""


class Basis(StrEnum):
    """What a clause rests on."""

    PROVED = "proved"
    """It serves ints and symbols: a solver sees it in the theorem of each claim that cites it, and
    with any single-point change that means something else some theorem is not proved."""
    TESTED = "tested"
    """A solver sees it, but there are single-point changes with which every theorem is still
    proved. Tests notice these."""


@dataclass(frozen=True)
class Claim:
    """One claim of the spec.

    Attributes:
        name: a stable name that says what is claimed.
        sentence: the claim in one English sentence.
        divergence: what it means for users, at worst, when real code violates it.
        clauses: the spec functions that state it.
        symbols: the vLLM symbols that it covers.
    """

    name: str
    sentence: str
    divergence: Divergence
    clauses: tuple[Clause, ...]
    symbols: tuple[str, ...]


_ROWS = tomllib.loads((Path(__file__).parent / "claims.toml").read_text(encoding="utf-8"))


def _named(name: str) -> Clause:
    """Resolve a name like ``hits.valid_hit`` in the spec."""
    module, _, clause = name.rpartition(".")
    found: Clause = getattr(import_module(f"hitproof.spec.{module}"), clause)
    return found


def _symbols(names: list[str]) -> tuple[str, ...]:
    """The names, with those of the lists that they begin with."""
    lists = _ROWS["symbols"]
    return tuple(
        symbol for name in names for symbol in (lists[name[1:]] if name.startswith("$") else [name])
    )


CLAIMS: dict[str, Claim] = {
    name: Claim(
        name,
        row["sentence"],
        Divergence(row["class"]),
        tuple(map(_named, row["clauses"])),
        _symbols(row["symbols"]),
    )
    for name, row in _ROWS["claims"].items()
}
"""Every claim, by name."""

IN_VLLM: dict[Clause, str] = {_named(name): text for name, text in _ROWS["in_vllm"].items()}
"""What does it in vLLM, of what the core names without a word of it."""


def basis(clause: Clause) -> Basis:
    """Whether a clause is proved, or seen by solvers but only tested in full."""
    return Basis.TESTED if clause in TESTED else Basis.PROVED

"""Equivalent mutants of targets: a file beside the ledger gives the reasons.

They are matched by the exact text of function and statement, never by their place.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from hitproof.conformance.ledger.ledger import read_entries, speaks_of
from hitproof.vllm_integration.families import Family


@dataclass(frozen=True)
class Change:
    """What identifies a mutant.

    Attributes:
        function: the qualified name of the function.
        original: the statement that is changed, on one line; of a compound one, its head.
        mutant: what becomes of it.
        occurrence: which of the places with that text, from 1.
    """

    function: str
    original: str
    mutant: str
    occurrence: int = 1


@dataclass(frozen=True)
class Equivalent:
    """An equivalent mutant.

    Attributes:
        change: the mutant.
        releases: the releases whose mutant it is, as a version specifier (PEP 440).
        reason: why no check can distinguish it from the target.
        family: the family of mutants that it is of.
        noticed_by: those of vLLM's own tests that notice it, as they look at how the same is said.
    """

    change: Change
    releases: SpecifierSet
    reason: str
    family: Family = Family.SINGLE_POINT
    noticed_by: tuple[str, ...] = ()

    def applies_to(self, version: str | None) -> bool:
        """Whether the entry speaks of ``version``; None stands for newer than any release."""
        return speaks_of(self.releases, version)

    def excuses(self, test: str) -> bool:
        """Whether one of vLLM's own tests, as ``file::function``, says nothing against it."""
        return test in self.noticed_by


def load(path: Path) -> tuple[Equivalent, ...]:
    """The entries of a file. Raises `LedgerError`."""
    return read_entries(path, "equivalent", "name another with --equivalents", _entry)


def _entry(raw: dict[str, Any]) -> Equivalent:
    change = Change(raw["function"], raw["original"], raw["mutant"], int(raw.get("occurrence", 1)))
    family = Family(raw.get("family", Family.SINGLE_POINT))
    noticed_by = tuple(raw.get("noticed_by", ()))
    return Equivalent(change, SpecifierSet(raw["releases"]), raw["reason"], family, noticed_by)

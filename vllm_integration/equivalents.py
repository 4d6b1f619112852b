"""Mutants of targets that mean the same as the target: a file beside the ledger says why.

They are matched by the exact text of function and statement, never by their place.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.ledger import LedgerError, speaks_of


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
    """A mutant that means the same.

    Attributes:
        change: the mutant.
        releases: the releases whose mutant it is, as a version specifier (PEP 440).
        reason: why no check can tell it from the target.
    """

    change: Change
    releases: SpecifierSet
    reason: str

    def applies_to(self, version: str | None) -> bool:
        """Whether the entry speaks of ``version``; None stands for newer than any release."""
        return speaks_of(self.releases, version)


def load(path: Path) -> tuple[Equivalent, ...]:
    """The entries of a file. Raises `LedgerError`."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be read ({error.strerror}); name another with --equivalents"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} is not TOML ({error}); mend that line") from error
    entries = data.pop("equivalent", [])
    if data or not isinstance(entries, list):
        raise LedgerError(f"{path} may hold [[equivalent]] entries only")
    return tuple(_entry(raw, f"{path}: entry {n}") for n, raw in enumerate(entries, 1))


def _entry(raw: dict[str, Any], where: str) -> Equivalent:
    try:
        change = Change(
            raw["function"], raw["original"], raw["mutant"], int(raw.get("occurrence", 1))
        )
        entry = Equivalent(change, SpecifierSet(raw["releases"]), raw["reason"])
    except KeyError as missing:
        raise LedgerError(f"{where} has no {missing}; add it") from missing
    except (TypeError, ValueError, InvalidSpecifier) as error:
        raise LedgerError(f"{where} cannot be read: {error}") from error
    if not entry.reason:
        raise LedgerError(f"{where} gives no reason; say why no check can tell it from the target")
    return entry

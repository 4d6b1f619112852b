"""Known findings of lockstep: each with its exact signature and a history that shows it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from conformance.findings import Signature
from conformance.history_json import read
from conformance.ledger import read_entries, read_signature, speaks_of


@dataclass(frozen=True)
class LockstepEntry:
    """A known finding.

    Attributes:
        signature: exactly the signature of the finding.
        history: a history that shows it, as JSON text; it is always played, so that an entry
            that no longer reproduces is noticed.
        releases: the releases that have it, as a version specifier (PEP 440).
        reason: what is wrong.
        link: where it is discussed; may be empty.
    """

    signature: Signature
    history: str
    releases: SpecifierSet
    reason: str
    link: str

    def applies_to(self, version: str | None) -> bool:
        """Whether the entry speaks of ``version``; None stands for newer than any release."""
        return speaks_of(self.releases, version)


def load(path: Path) -> tuple[LockstepEntry, ...]:
    """The entries of a ledger file, whose histories stand beside it. Raises `LedgerError`."""
    return read_entries(path, "finding", "name another with --ledger", partial(_entry, path.parent))


def _entry(directory: Path, raw: dict[str, Any]) -> LockstepEntry:
    try:
        text = (directory / raw["history"]).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"its history cannot be read ({error.strerror})") from error
    read(text, raw["history"])
    return LockstepEntry(
        signature=read_signature(raw["signature"]),
        history=text,
        releases=SpecifierSet(raw["releases"]),
        reason=raw["reason"],
        link=raw.get("link", ""),
    )

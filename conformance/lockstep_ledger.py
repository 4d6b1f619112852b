"""Known findings of lockstep: each with its exact signature and a history that shows it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.findings import Signature
from conformance.histories import HistoryError
from conformance.history_json import read
from conformance.ledger import LedgerError, speaks_of
from spec.claims import Divergence


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
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be read ({error.strerror}); name another with --ledger"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(f"the ledger {path} is not TOML ({error}); mend that line") from error
    entries = data.pop("finding", [])
    if data or not isinstance(entries, list):
        raise LedgerError(f"the ledger {path} may hold [[finding]] entries only")
    return tuple(_entry(raw, path, f"{path}: entry {n}") for n, raw in enumerate(entries, 1))


def _entry(raw: Any, path: Path, where: str) -> LockstepEntry:
    try:
        text = (path.parent / raw["history"]).read_text(encoding="utf-8")
        read(text, raw["history"])
        entry = LockstepEntry(
            signature=Signature(**raw["signature"]),
            history=text,
            releases=SpecifierSet(raw["releases"]),
            reason=raw["reason"],
            link=raw.get("link", ""),
        )
        Divergence(entry.signature.divergence)
    except KeyError as missing:
        raise LedgerError(f"{where} has no {missing}; add it") from missing
    except OSError as error:
        raise LedgerError(f"{where}: its history cannot be read ({error.strerror})") from error
    except (TypeError, ValueError, HistoryError, InvalidSpecifier) as error:
        raise LedgerError(f"{where} cannot be read: {error}") from error
    if not entry.reason:
        raise LedgerError(f"{where} gives no reason; say what is wrong")
    return entry

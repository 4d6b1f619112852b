"""The ledger: known divergences, matched by their exact signature, never by substring.

Beside them it may have `AcceptedRead`s: what the target reads although no check varies it.
"""

import tomllib
from collections.abc import Callable, Collection, Sequence, Sized
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, judged_from_json
from hitproof.conformance.words import count
from hitproof.spec.claims import CLAIMS, Divergence

E = TypeVar("E")
_TABLES = ("divergence", "accepted_read")
_NEWER_THAN_ANY = Version("999999")


class LedgerError(Exception):
    """The ledger file cannot be used; the message names the entry and the remedy."""


class CauseStatus(StrEnum):
    """Whether what diverges is wrong, or meant to be so."""

    FAULT = "fault"
    CHOICE = "upstream's choice"
    """Its authors say that it is meant so."""
    LIMIT = "limit of the design"
    """It follows from a design that its authors document."""

    def counted(self, causes: Sized) -> str:
        """How many such causes there are, in words."""
        match self:
            case CauseStatus.CHOICE:
                return count(causes, "upstream choice")
            case CauseStatus.LIMIT:
                return count(causes, self, "limits of the design")
        return count(causes, self)


@dataclass(frozen=True)
class Entry:
    """A known divergence.

    Attributes:
        signature: exactly the signature of the finding.
        configuration: a configuration, a layout or a history that shows it; the gate always
            judges it, so that an entry that no longer reproduces is noticed.
        releases: the releases that have it, as a version specifier (PEP 440).
        reason: what is wrong, and why it is tolerated.
        link: where it is discussed; may be empty.
        cause: entries that one change to vLLM would fix have the same one; the reason
            where the file names none.
        status: what its cause is; None where the file does not say.
    """

    signature: Signature
    configuration: Configuration | Layout | Play
    releases: SpecifierSet
    reason: str
    link: str
    cause: str
    status: CauseStatus | None = None

    def applies_to(self, version: str | None) -> bool:
        """Whether the entry speaks of ``version``; None stands for newer than any release."""
        return speaks_of(self.releases, version)

    def is_judged_on(self, version: str | None) -> bool:
        """Whether ``version`` is judged in its case: it is known there, or was fixed before.

        What was fixed can come back; it is a new finding then.
        """
        return self.applies_to(version) or self._was_fixed_before(_release(version))

    def _was_fixed_before(self, release: Version) -> bool:
        return any(
            each.operator == "<" and Version(each.version) <= release for each in self.releases
        )


@dataclass(frozen=True)
class AcceptedRead:
    """Something that a target reads of its inputs, and that no check need vary.

    Attributes:
        name: what is read, as `check` names it.
        releases: the releases that it is accepted of, as a version specifier (PEP 440).
        reason: why it cannot change an answer.
    """

    name: str
    releases: SpecifierSet
    reason: str


def speaks_of(releases: SpecifierSet, version: str | None) -> bool:
    """Whether ``releases`` has ``version``; None stands for newer than any release."""
    return releases.contains(_release(version), prereleases=True)


def _release(version: str | None) -> Version:
    return _NEWER_THAN_ANY if version is None else Version(version)


@dataclass(frozen=True)
class Judgement:
    """Findings compared with the ledger."""

    new: tuple[Finding, ...]
    known: tuple[tuple[Finding, Entry], ...]
    stale: tuple[Entry, ...]


def load(path: Path) -> tuple[Entry, ...]:
    """The known divergences of a ledger file. Raises `LedgerError`."""
    return _of_ledger(path, "divergence", partial(_entry, path.parent))


def accepted_reads(path: Path, version: str | None) -> dict[str, str]:
    """What a ledger file accepts that ``version`` reads, with the reasons. Raises `LedgerError`.

    None as version stands for newer than any release.
    """
    accepted = all_accepted_reads(path)
    return {read.name: read.reason for read in accepted if speaks_of(read.releases, version)}


def all_accepted_reads(path: Path) -> tuple[AcceptedRead, ...]:
    """What a ledger file accepts that some release reads. Raises `LedgerError`."""
    return _of_ledger(path, "accepted_read", _accepted_read)


def _of_ledger(path: Path, table: str, entry: Callable[[dict[str, Any]], E]) -> tuple[E, ...]:
    return read_entries(path, table, "name another with --ledger", entry, _TABLES)


def read_entries(
    path: Path,
    table: str,
    remedy: str,
    entry: Callable[[dict[str, Any]], E],
    tables: Sequence[str] = (),
) -> tuple[E, ...]:
    """The entries that a TOML file has, each a ``[[table]]``, made by ``entry``.

    Each says its reason. ``remedy`` is what to do about a file that is not there; ``tables`` are
    all that it may have where that is more than one. What ``entry`` raises for what it cannot read
    becomes a `LedgerError` that names the entry and the remedy.
    """
    tables = tables or (table,)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} is not TOML ({error}); fix that line") from error
    raw_entries = data.get(table, [])
    if data.keys() - {*tables} or not isinstance(raw_entries, list):
        allowed = " and ".join(f"[[{each}]]" for each in tables)
        raise LedgerError(f"{path} may hold {allowed} entries only")
    what = "entry" if table == tables[0] else table
    return tuple(
        _made(entry, raw, f"{path}: {what} {number}") for number, raw in enumerate(raw_entries, 1)
    )


def _made(entry: Callable[[dict[str, Any]], E], raw: Any, where: str) -> E:
    try:
        made = entry(raw)
        reason = raw["reason"]
    except KeyError as missing:
        raise LedgerError(f"{where} has no {missing}; add it") from missing
    except (TypeError, ValueError, InvalidSpecifier) as error:
        raise LedgerError(f"{where} cannot be read: {error}") from error
    if not reason:
        raise LedgerError(f"{where} gives no reason; say what is wrong and why it is tolerated")
    return made


def _entry(directory: Path, raw: dict[str, Any]) -> Entry:
    entry = Entry(
        signature=read_signature(raw["signature"]),
        configuration=(
            _play(directory, raw["history"])
            if "history" in raw
            else judged_from_json({"model": "", **raw["configuration"]})
        ),
        releases=SpecifierSet(raw["releases"]),
        reason=raw["reason"],
        link=raw.get("link", ""),
        cause=raw.get("cause", raw["reason"]),
        status=CauseStatus(raw["status"]) if "status" in raw else None,
    )
    if not isinstance(entry.configuration, Play):  # histories show crashes of calls, too
        if entry.signature.claim not in CLAIMS:
            raise ValueError(f"{entry.signature.claim} is a sanity rule; name its history instead")
        _ = entry.configuration.looked_up  # refuses sizes that do not fit together
    return entry


def _accepted_read(raw: dict[str, Any]) -> AcceptedRead:
    read = AcceptedRead(raw["name"], SpecifierSet(raw.get("releases", "")), raw["reason"])
    if not isinstance(read.name, str) or raw.keys() - {"name", "releases", "reason"}:
        raise ValueError("it needs a name and a reason, may have releases, and nothing else")
    return read


def _play(directory: Path, history: str) -> Play:
    """The history of an entry: its file beside the ledger, or its JSON."""
    if not isinstance(history, str):
        raise TypeError("its history is not a string")
    name, text = "in the ledger", history
    if not history.lstrip().startswith("{"):
        name = history
        try:
            text = (directory / history).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"its history cannot be read ({error.strerror})") from error
    play = Play(Origin.WRITTEN, name, text)
    if play.of_scheduler:
        play.workload()
    else:
        read(text, name)
    return play


def read_signature(raw: dict[str, Any]) -> Signature:
    """The signature that an entry names; raises ValueError or TypeError when it is none."""
    signature = Signature.from_json(raw)
    Divergence(signature.divergence)
    return signature


def judge(
    findings: Sequence[Finding], entries: Sequence[Entry], unsettled: Collection[Signature] = ()
) -> Judgement:
    """Sort findings into new and known, and name the entries that did not reproduce.

    ``entries`` are those that apply to the target. Those in ``unsettled`` are not stale: what
    shows them could not be judged.
    """
    by_signature = {entry.signature: entry for entry in entries}
    seen = {finding.signature for finding in findings}
    return Judgement(
        new=tuple(f for f in findings if f.signature not in by_signature),
        known=tuple(
            (f, by_signature[f.signature]) for f in findings if f.signature in by_signature
        ),
        stale=tuple(
            entry
            for entry in entries
            if entry.signature not in seen and entry.signature not in unsettled
        ),
    )

"""Records of footprints: how far the known divergences of a release reach, beside its ledger.

One file for each release, made by ``hitproof footprints`` and read as a diff, is in a directory
named after the ledger: ``ledger.footprints/0.33.0.json`` for ``ledger.toml``.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from hitproof.conformance.findings.footprints import (
    Footprint,
    Growth,
    Judged,
    growth,
    name_of,
    place_of,
)
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import Entry, LedgerError

UNRELEASED = "checkout"
"""The name of the record of a target whose release is not known: it is newer than any."""


@dataclass(frozen=True)
class Reach:
    """How far a signature reaches on one configuration, layout or history."""

    signature: Signature
    judged: Judged
    footprint: Footprint


@dataclass(frozen=True)
class Record:
    """What is on record of one target.

    Attributes:
        name: its release, `UNRELEASED`, or as the user named it.
        profiles: the profiles that it was judged with.
        footprints: by the names of the signature and of the place.
    """

    name: str
    profiles: frozenset[str]
    footprints: Mapping[str, Mapping[str, Footprint]]

    @staticmethod
    def of(name: str, profile: str, reached: Iterable[Reach]) -> "Record":
        """The record of what one run has found."""
        footprints: dict[str, dict[str, Footprint]] = {}
        for each in reached:
            places = footprints.setdefault(name_of(each.signature), {})
            places[place_of(each.judged)] = each.footprint
        return Record(name, frozenset({profile}), footprints)

    def and_also(self, other: "Record") -> "Record":
        """One record of both, which are of one target and of different profiles."""
        together = {name: dict(places) for name, places in self.footprints.items()}
        for name, places in other.footprints.items():
            together[name] = together.get(name, {}) | dict(places)
        return Record(self.name, self.profiles | other.profiles, together)

    def has(self, signature: Signature) -> bool:
        """Whether the target shows that signature anywhere."""
        return name_of(signature) in self.footprints

    def at(self, signature: Signature, place: str) -> Footprint | None:
        """The footprint of a signature in the place of that name."""
        return self.footprints.get(name_of(signature), {}).get(place)


@dataclass(frozen=True)
class Outside:
    """A known divergence outside its footprint, in one place.

    Attributes:
        reach: what was found there.
        growth: how it has grown.
        recorded: what is on record there; None where nothing is.
    """

    reach: Reach
    growth: Growth
    recorded: Footprint | None


@dataclass(frozen=True)
class Shrunk:
    """A known divergence that does not reach as far as its record says.

    Attributes:
        entry: the ledger's entry.
        places: in each place with less, by its name, what is on record and what was found.
    """

    entry: Entry
    places: tuple[tuple[str, Footprint, Footprint | None], ...]


def outside(
    reached: Iterable[Reach], record: Record, known: Collection[Signature]
) -> list[Outside]:
    """Where known signatures are found outside their footprints."""
    found = []
    for each in reached:
        if each.signature in known:
            recorded = record.at(each.signature, place_of(each.judged))
            how = growth(recorded, each.footprint)
            if how not in (None, Growth.LESS):
                found.append(Outside(each, how, recorded))
    return found


def shrunk(
    reached: Iterable[Reach],
    record: Record,
    entries: Sequence[Entry],
    settled: Set[tuple[str, str]],
) -> tuple[Shrunk, ...]:
    """The entries that reach less far than the record says.

    ``settled`` has the claim and the name of each place that was judged, and claim "" for each
    history. Entries that were found nowhere are stale, which is more than this says.
    """
    now = {(each.signature, place_of(each.judged)): each.footprint for each in reached}
    shown = {signature for signature, _ in now}
    found = []
    for entry in {entry.signature: entry for entry in entries}.values():
        signature = entry.signature
        if signature not in shown:
            continue
        places = tuple(
            (place, footprint, now.get((signature, place)))
            for place, footprint in record.footprints.get(name_of(signature), {}).items()
            if not settled.isdisjoint({(signature.claim, place), ("", place)})
            and growth(footprint, now.get((signature, place))) is Growth.LESS
        )
        if places:
            found.append(Shrunk(entry, places))
    return tuple(found)


def directory_of(ledger: Path) -> Path:
    """Where the records of a ledger are."""
    return ledger.with_suffix(".footprints")


def path_of(ledger: Path, version: str | None) -> Path:
    """The file of a release's record; None stands for a release that is not known."""
    return directory_of(ledger) / f"{version or UNRELEASED}.json"


def choose(ledger: Path, version: str | None) -> Record | None:
    """The record that a target of that version is held against, if there is one.

    That of its release; for one newer than any on record, the newest. Raises `LedgerError`.
    """
    paths = {path.stem: path for path in directory_of(ledger).glob("*.json")}
    name = version or UNRELEASED
    if name not in paths and paths:
        newest = max(paths, key=_age)
        if _age(name) > _age(newest):
            name = newest
    return read(paths[name]) if name in paths else None


def _age(name: str) -> tuple[bool, Version]:
    if name == UNRELEASED:
        return True, Version("0")
    try:
        return False, Version(name)
    except InvalidVersion:
        raise LedgerError(f"a record is called {name}; name it after its release") from None


def read(path: Path) -> Record:
    """The record in a file. Raises `LedgerError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Record(
            str(data["name"]),
            frozenset(data["profiles"]),
            {
                name: {place: _read(told) for place, told in places.items()}
                for name, places in data["footprints"].items()
            },
        )
    except OSError as error:
        raise LedgerError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{path} is no record of footprints ({error}); remove it and run hitproof footprints"
        ) from error


def _read(told: str) -> Footprint:
    size, digest = told.split()
    return Footprint(int(size), digest)


def to_json(record: Record) -> str:
    """The record as the text of its file: a line for each place, in an order of its own."""
    data: dict[str, Any] = {
        "name": record.name,
        "profiles": sorted(record.profiles),
        "footprints": {
            name: {place: f"{each.size} {each.digest}" for place, each in sorted(places.items())}
            for name, places in sorted(record.footprints.items())
        },
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

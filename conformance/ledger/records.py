"""Records of footprints: how far the known divergences of a release reach, beside its ledger.

They are in one file, ``ledger.footprints.json`` for ``ledger.toml``, made by ``hitproof
footprints`` and read as a diff. It has a line for each place of a signature, which says from which
release on how many cases diverge there, and with which digest: ``0.30.0 8 f3564c003c1a; 0.33.0
none``. It also has the histories that start-up of each release refuses, so that nothing of them
is judged.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from hitproof.conformance.findings.footprints import (
    Footprint,
    Growth,
    Judged,
    growth,
    name_of,
    place_of,
    play_at,
)
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Entry, LedgerError

UNRELEASED = "checkout"
"""The name of the record of a target whose release is not known: it is newer than any."""
_NONE = "none"


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
        name: its release or `UNRELEASED`; for one that is judged now, as the user named it.
        profiles: the profiles that it was judged with.
        footprints: by the names of the signature and of the place.
        refused: the places of scheduler histories for which its start-up refuses the deployment.
    """

    name: str
    profiles: frozenset[str]
    footprints: Mapping[str, Mapping[str, Footprint]]
    refused: frozenset[str] = frozenset()

    @staticmethod
    def of(
        name: str, profile: str, reached: Iterable[Reach], refused: Iterable[str] = ()
    ) -> "Record":
        """The record of what one run has found, and of the places that were ``refused``."""
        footprints: dict[str, dict[str, Footprint]] = {}
        for each in reached:
            places = footprints.setdefault(name_of(each.signature), {})
            places[place_of(each.judged)] = each.footprint
        return Record(name, frozenset({profile}), footprints, frozenset(refused))

    def and_also(self, other: "Record") -> "Record":
        """One record of both, which are of one target and of different profiles."""
        together = {name: dict(places) for name, places in self.footprints.items()}
        for name, places in other.footprints.items():
            together[name] = together.get(name, {}) | dict(places)
        refused = self.refused | other.refused
        return Record(self.name, self.profiles | other.profiles, together, refused)

    def has(self, signature: Signature) -> bool:
        """Whether the target shows that signature anywhere."""
        return name_of(signature) in self.footprints

    def at(self, signature: Signature, place: str) -> Footprint | None:
        """The footprint of a signature in the place of that name."""
        return self.footprints.get(name_of(signature), {}).get(place)

    def history(self, signature: Signature, own: Play, written: Mapping[str, Play]) -> Play:
        """A history that shows a signature: ``own`` if it does, otherwise the first on record.

        ``written`` has the written histories by the names of their places. ``own`` too where no
        history is on record.
        """
        places = self.footprints.get(name_of(signature), {})
        if place_of(own) in places:
            return own
        shown = (written.get(place) or play_at(place) for place in places)
        return next((play for play in shown if play is not None), own)


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


def path_of(ledger: Path) -> Path:
    """Where the records of a ledger are."""
    return ledger.with_suffix(".footprints.json")


def choose(records: Mapping[str, Record], version: str | None) -> Record | None:
    """The record that a target of that version is compared with, if there is one.

    That of its release; for one newer than any on record, the newest.
    """
    name = version or UNRELEASED
    if name in records or not records:
        return records.get(name)
    newest = max(records, key=_age)
    return records[newest] if _age(name) > _age(newest) else None


def _age(name: str) -> tuple[bool, Version]:
    return (True, Version("0")) if name == UNRELEASED else (False, Version(name))


def read(ledger: Path) -> dict[str, Record]:
    """The records of a ledger, by release; none where there is no file. Raises `LedgerError`."""
    path = path_of(ledger)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        releases = sorted(data["releases"], key=_age)
        found: dict[str, dict[str, dict[str, Footprint]]] = {each: {} for each in releases}
        for name, places in data["footprints"].items():
            for place, told in places.items():
                for release, footprint in _since(told, releases):
                    found[release].setdefault(name, {})[place] = footprint
        refused: dict[str, set[str]] = {each: set() for each in releases}
        for place, by in data["refused"].items():
            for release in by.split():
                refused[release].add(place)
        return {
            each: Record(
                each, frozenset(data["releases"][each]), found[each], frozenset(refused[each])
            )
            for each in releases
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        sentence = f"{path} cannot be read ({error.strerror}); name another ledger with --ledger"
        raise LedgerError(sentence) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{path} has no footprints ({error!r}); remove it and run hitproof footprints"
        ) from error


def _since(told: str, releases: Sequence[str]) -> Iterator[tuple[str, Footprint]]:
    """The footprint of each release, where there is one, from what `_told` writes."""
    changes = dict(change.split(" ", 1) for change in told.split("; "))
    now = _NONE
    for release in releases:
        now = changes.get(release, now)
        if now != _NONE:
            size, digest = now.split(" ")
            yield release, Footprint(int(size), digest)


def _told(of_releases: Mapping[str, Footprint], releases: Sequence[str]) -> str:
    """The footprints of one place: from which release on which, so that a new one adds little."""
    changes, now = [], _NONE
    for release in releases:
        each = of_releases.get(release)
        then = _NONE if each is None else f"{each.size} {each.digest}"
        if then != now:
            changes.append(f"{release} {then}")
        now = then
    return "; ".join(changes)


def to_json(records: Mapping[str, Record]) -> str:
    """The records as the text of their file: a line for each place, in an order of its own."""
    releases = sorted(records, key=_age)
    together: dict[str, dict[str, dict[str, Footprint]]] = {}
    for release in releases:
        for name, places in records[release].footprints.items():
            for place, footprint in places.items():
                together.setdefault(name, {}).setdefault(place, {})[release] = footprint
    data: dict[str, Any] = {
        "releases": {each: sorted(records[each].profiles) for each in releases},
        "footprints": {
            name: {place: _told(each, releases) for place, each in sorted(places.items())}
            for name, places in sorted(together.items())
        },
        "refused": {
            place: " ".join(each for each in releases if place in records[each].refused)
            for place in sorted(set().union(*(each.refused for each in records.values())))
        },
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def write(ledger: Path, record: Record) -> Path:
    """Write a record beside a ledger, in place of that of the same release.

    Raises `LedgerError`.
    """
    path, records = path_of(ledger), read(ledger)
    try:
        path.write_text(to_json(records | {record.name: record}), encoding="utf-8")
    except OSError as error:
        sentence = f"{path} cannot be written ({error.strerror}); copy the ledger elsewhere and "
        raise LedgerError(f"{sentence}name the copy with --ledger") from error
    return path

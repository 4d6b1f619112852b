"""What failed in the last check of a target: tried first in the next, and compared with it."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.footprints import name_of, place_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.vllm_integration.gate.growth import settled_places
from hitproof.vllm_integration.gate.report import Report, SinceThen
from hitproof.vllm_integration.gate.selection import Selection
from hitproof.vllm_integration.targets.target import Target

MOST_TARGETS = 100
"""Targets whose failures are kept."""


@dataclass(frozen=True)
class Failure:
    """A new finding of an earlier check.

    Attributes:
        names: the claims and codes by which it is asked for.
        headline: what is broken where, in a line.
        places: where it was found: the claim and the name of the place, claim "" for histories.
    """

    names: frozenset[str]
    headline: str
    places: tuple[tuple[str, str], ...]


_FAILURES = TypeAdapter(dict[str, Failure])


class LastFailed:
    """The failures of the last check of a target, whatever its code was.

    They are in a file below ``directory``. One that cannot be read counts as none, and what cannot
    be written is forgotten.
    """

    def __init__(self, directory: Path, target: Target, python: str) -> None:
        self._file = directory / f"{sha256(_name(target, python).encode()).hexdigest()}.json"
        self._before: dict[str, Failure] = {}
        self._made: float | None = None
        with suppress(OSError, ValueError):
            self._before = _FAILURES.validate_json(self._file.read_bytes())
            self._made = self._file.stat().st_mtime if self._before else None

    @property
    def places(self) -> frozenset[str]:
        """Where something failed."""
        return frozenset(place for each in self._before.values() for _, place in each.places)

    def since_then(self, report: Report) -> SinceThen:
        """Compare what failed with a report; from then on, keep what fails now."""
        now = {name_of(finding.signature): finding for finding in report.judgement.new}
        known = {name_of(finding.signature) for finding, _ in report.judgement.known}
        selection = Selection() if report.restricted is None else report.restricted.selection
        judged = settled_places(report)
        gone = {name: each for name, each in self._before.items() if name not in {*now, *known}}
        fixed = {
            name
            for name, each in gone.items()
            if judged.issuperset(each.places) and selection.names_any(each.names)
        }
        left = {name: each for name, each in gone.items() if name not in fixed}
        self._keep(left | {name: _failure(finding, report) for name, finding in now.items()})
        return SinceThen(
            self._made,
            _headlines(now[name].signature for name in now if name in self._before),
            tuple(gone[name].headline for name in gone if name in fixed),
            _headlines(now[name].signature for name in now if name not in self._before),
            tuple(each.headline for name, each in self._before.items() if name in known),
            tuple(each.headline for each in left.values()),
        )

    def _keep(self, failures: dict[str, Failure]) -> None:
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            written = self._file.with_suffix(f".{os.getpid()}")
            written.write_bytes(_FAILURES.dump_json(failures))
            written.replace(self._file)
            kept = sorted(self._file.parent.iterdir(), key=lambda each: each.stat().st_mtime)
            for each in kept[:-MOST_TARGETS]:
                each.unlink()


def _headlines(signatures: Iterable[Signature]) -> tuple[str, ...]:
    return tuple(signature.headline for signature in signatures)


def _failure(finding: Finding, report: Report) -> Failure:
    signature, grown = finding.signature, finding.grown
    found = signature if grown is None else grown.of
    places = [
        ("" if isinstance(each.judged, Play) else found.claim, place_of(each.judged))
        for each in report.reached
        if each.signature == found
    ]
    if grown is not None:
        places = [(claim, place) for claim, place in places if place in grown.places]
    names = {signature.claim, str(signature.code), str(found.code)}
    return Failure(frozenset(names), signature.headline, tuple(places))


def _name(target: Target, python: str) -> str:
    """What a target is called from one check to the next, whatever its code is meanwhile."""
    classes = ",".join((*target.managers, *target.coordinators))
    path, at, _ = target.name.rpartition("@")
    if target.root is None:
        place = f"{target.name} of {python}"
    elif target.is_release:
        place = f"release {target.version}"
    elif at and not os.path.isdir(target.name):
        place = os.path.abspath(path or ".")
    else:
        place = str(target.root)
    return f"{place} with {classes}" if classes else place

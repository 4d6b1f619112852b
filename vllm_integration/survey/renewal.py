"""The record renewed by histories alone, after a change of them or of what judges them.

``python -m hitproof.vllm_integration.survey.renewal [RELEASE...]`` plays on surveyed releases, the
newest first, the histories of the usual profiles and of the ledger that are judged there, and
replaces what the survey and the footprints have of histories. What checks have found stays as it
is. A finding that no fault of BUGS explains is printed and left out.
"""

import json
import sys
from collections.abc import Sequence, Set
from dataclasses import replace

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.histories.plays import Origin
from hitproof.conformance.ledger import records
from hitproof.conformance.ledger.ledger import Entry, load
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.obligations import Played, histories
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.survey import (
    Checked,
    Release,
    Sighting,
    read,
    this_state,
    to_json,
)
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def renewed(kept: Release, of_checks: Record, entries: Sequence[Entry]) -> tuple[Release, Record]:
    """What is on record of a release, with its histories played anew.

    ``of_checks`` is what is on record of it, whose histories are replaced; ``entries`` are those
    that are judged on it.
    """
    version = kept.version
    run = Run(resolve(version), Profile.DEFAULT, entries, Limits(timeout=300.0))
    with opened(run) as sessions:
        actual, detail = sessions.policies()
        assert not detail, detail
        granularity = actual["hit_granularity"]
        usual = (Profile.QUICK, Profile.DEFAULT)
        every = [play for each in usual for play in histories(each, entries, granularity)]
        _, played = sessions.settle([], list(dict.fromkeys(every)), lambda *_: None)
        record = with_histories(of_checks, played)
        known = {sighting.signature: sighting for sighting in kept.sightings}
        found = {signature for each in played for signature in each.signatures}
        told = faults.load()
        new = {s for s in found - known.keys() if faults.cause(told, s, version)}
        shown = [replace(e, signatures=tuple(new.intersection(e.signatures))) for e in played]
        known |= {each.signature: Sighting.of(each) for each in sessions.findings([], shown)}
    for each in played:
        if each.unsettled:
            print(f"{version}: {each.unsettled}")
        for signature in found - known.keys():
            if signature in each.signatures:
                print(f"{version}: not documented: {name_of(signature)} ({each.play.describe()})")
    there = [each for signature, each in known.items() if record.has(signature)]
    gone = known.keys() - {each.signature for each in there}
    for signature in gone:
        print(f"{version}: gone: {name_of(signature)}")
    for signature in new:
        print(f"{version}: new: {name_of(signature)}")
    there.sort(key=lambda each: SEVERITY.index(each.signature.divergence))
    release = replace(kept, sightings=tuple(there), judged_by=this_state())
    own = {place_of(each) for each in histories(Profile.DEFAULT, entries, granularity, record)}
    return replace(release, checked=_checked(release, record, entries, own)), record


def with_histories(record: Record, played: Sequence[Played]) -> Record:
    """The record with these histories instead of those that it has; what is unsettled is kept."""
    kept = {place_of(each.play) for each in played if each.unsettled}
    now: dict[str, dict[str, Footprint]] = {
        name: {
            place: each for place, each in places.items() if place in kept or not _is_play(place)
        }
        for name, places in record.footprints.items()
    }
    for each in played:
        for signature, footprint in zip(each.signatures, each.footprints, strict=True):
            now.setdefault(name_of(signature), {})[place_of(each.play)] = footprint
    refused = frozenset(place_of(each.play) for each in played if each.refused)
    return replace(
        record,
        footprints={name: places for name, places in now.items() if places},
        refused=refused | (record.refused & kept),
    )


def _is_play(place: str) -> bool:
    return place.startswith(tuple(f"{origin} history " for origin in Origin))


def _checked(release: Release, record: Record, entries: Sequence[Entry], own: Set[str]) -> Checked:
    """What `check` says of a release by its record."""
    applicable = {e.signature for e in entries if e.applies_to(release.version)}
    shown: set[Signature] = {
        each.signature
        for each in release.sightings
        if any(
            place in own or not _is_play(place)
            for place in record.footprints[name_of(each.signature)]
        )
    }
    new = tuple(e.signature for e in release.sightings if e.signature in shown - applicable)
    stale = len(applicable - shown)
    verdict = Verdict.DIVERGES if new or stale else Verdict.CONFORMS
    detail = release.checked.detail if release.checked else ""
    return Checked(verdict.label, len(shown & applicable), new, stale, detail)


def main(names: Sequence[str]) -> None:
    """Renew the record of some releases, of all by default."""
    for name in names or [each.version for each in reversed(read())]:
        kept = next(each for each in read() if each.version == name)
        entries = [entry for entry in load(LEDGER) if entry.is_judged_on(name)]
        release, record = renewed(kept, records.read(LEDGER)[name], entries)
        releases = [release if each.version == name else each for each in read()]
        SURVEY.write_text(json.dumps(to_json(releases), indent=2) + "\n", encoding="utf-8")
        records.write(LEDGER, record)
        print(f"{name}: {len(release.sightings)} findings, {release.checked}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

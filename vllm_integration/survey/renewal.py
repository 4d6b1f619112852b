"""The record renewed by histories alone, after a change of them or of what judges them.

``python -m hitproof.vllm_integration.survey.renewal [RELEASE...]`` plays on surveyed releases, the
newest first, the histories of the usual profiles and of the ledger that are judged there, and
replaces what the survey and the footprints have of histories. What checks have found stays as it
is, and so does the state of hitproof that a release was judged by. A finding that no fault of BUGS
explains is printed and is no sighting; `check` calls it new.
"""

import json
import sys
from collections.abc import Collection, Sequence, Set
from dataclasses import replace

from hitproof.conformance.findings.footprints import Footprint, is_history, name_of, place_of
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.ledger import records
from hitproof.conformance.ledger.ledger import Entry, LedgerError, load
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.obligations import Played, histories
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.survey import Checked, Release, Sighting, read, to_json
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def renewed(kept: Release, of_checks: Record, entries: Sequence[Entry]) -> tuple[Release, Record]:
    """What is on record of a release, with its histories played anew.

    ``of_checks`` is what is on record of it, whose histories are replaced; ``entries`` are those
    that are judged on it. Raises `LedgerError` where the release cannot be asked.
    """
    version = kept.version
    run = Run(resolve(version), Profile.DEFAULT, entries, Limits(timeout=300.0))
    with opened(run) as sessions:
        actual, detail = sessions.policies()
        if detail:
            raise LedgerError(f"the record of {version} stays as it was: {detail}")
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
    there = [each for signature, each in known.items() if record.has(signature)]
    there.sort(key=lambda each: SEVERITY.index(each.signature.divergence))
    untold = found - known.keys()
    gone = known.keys() - {each.signature for each in there}
    for what, some in ("not documented", untold), ("gone", gone), ("new", new):
        for signature in some:
            print(f"{version}: {what}: {name_of(signature)}")
    own = {place_of(each) for each in histories(Profile.DEFAULT, entries, granularity, record)}
    open_ = {e.unsettled for e in played if e.unsettled and place_of(e.play) in own}
    signatures = [*(each.signature for each in there), *untold]
    release = replace(kept, sightings=tuple(there))
    return replace(
        release, checked=checked(release, signatures, record, entries, own, open_)
    ), record


def with_histories(record: Record, played: Sequence[Played]) -> Record:
    """The record with these histories instead of those that it has; what is unsettled is kept."""
    kept = {place_of(each.play) for each in played if each.unsettled}
    now: dict[str, dict[str, Footprint]] = {
        name: {
            place: each for place, each in places.items() if place in kept or not is_history(place)
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


def checked(
    release: Release,
    found: Collection[Signature],
    record: Record,
    entries: Sequence[Entry],
    own: Set[str],
    unsettled: Collection[str],
) -> Checked:
    """What `check` says of a release, of which all that is ``found`` is on record.

    ``own`` has the places of the histories that it plays, ``unsettled`` why some of them could not
    be judged.
    """
    applicable = {entry.signature for entry in entries if entry.applies_to(release.version)}
    shown = {
        signature
        for signature in found
        if any(
            place in own or not is_history(place) for place in record.footprints[name_of(signature)]
        )
    }
    new = tuple(signature for signature in found if signature in shown - applicable)
    stale = len(applicable - shown)
    before = release.checked.detail if release.checked else ""
    detail = "; ".join(filter(None, [before, *sorted(unsettled)]))
    verdict = Verdict.INCONCLUSIVE if detail else Verdict.CONFORMS
    verdict = Verdict.DIVERGES if new or stale else verdict
    return Checked(verdict.label, len(shown & applicable), new, stale, detail)


def main(names: Sequence[str]) -> None:
    """Renew the record of some releases, of all by default. Raises `LedgerError`."""
    surveyed = {each.version: each for each in read()}
    for name in names or [*surveyed][::-1]:
        if name not in surveyed:
            raise LedgerError(f"{name} is not surveyed; name some of {', '.join(surveyed)}")
        entries = [entry for entry in load(LEDGER) if entry.is_judged_on(name)]
        surveyed[name], record = renewed(surveyed[name], records.read(LEDGER)[name], entries)
        written = json.dumps(to_json([*surveyed.values()]), indent=2) + "\n"
        SURVEY.write_text(written, encoding="utf-8")
        records.write(LEDGER, record)
        print(
            f"{name}: {len(surveyed[name].sightings)} findings, {surveyed[name].checked}",
            flush=True,
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LedgerError as error:
        sys.exit(f"hitproof: {error}")

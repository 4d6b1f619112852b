"""Known divergences compared with the recorded footprints: which have grown, and which shrunk."""

from collections.abc import Sequence
from dataclasses import replace

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import Evidence, smallest
from hitproof.conformance.findings.findings import Finding, Grown
from hitproof.conformance.findings.footprints import Growth, in_words, place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.ledger.records import Outside, Reach, Record, outside, shrunk
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.obligations import Played, Task
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.sessions import Outcome, Sessions


def reached(
    todo: Sequence[Task], settled: Sequence[Outcome], played: Sequence[Played]
) -> list[Reach]:
    """How far each signature reaches in each place."""
    by_checks = [
        Reach(signature, task.configuration, footprint)
        for task, outcome in zip(todo, settled, strict=True)
        for signature, footprint in outcome.footprints.items()
    ]
    by_histories = [
        Reach(signature, each.play, footprint)
        for each in played
        for signature, footprint in zip(each.signatures, each.footprints, strict=True)
    ]
    return by_checks + by_histories


def hold(
    report: Report,
    record: Record | None,
    entries: Sequence[Entry],
    evidence: Sequence[tuple[Task, Evidence]],
    sessions: Sessions,
    remedy: str,
) -> list[Finding]:
    """What has grown, as findings; the report gets what has shrunk, and what is not on record.

    ``entries`` are those that apply to the target, ``evidence`` is what each task has shown,
    ``remedy`` says how to record footprints.
    """
    known = {entry.signature for entry in entries}
    if record is None:
        if any(each.signature in known for each in report.reached):
            report.unrecorded = f"no footprints of {report.target.name} are recorded, so "
            report.unrecorded += f"known divergences may have regressed unnoticed; {remedy}"
        return []
    report.record = record
    found = outside(report.reached, record, known)
    if report.profile not in record.profiles:
        unjudged = [each for each in found if each.growth is Growth.ELSEWHERE]
        found = [each for each in found if each.growth is not Growth.ELSEWHERE]
        if unjudged:
            places = count({place_of(each.reach.judged) for each in unjudged}, "place")
            report.unrecorded = f"the footprints of {record.name} on record are not of the "
            report.unrecorded += f"profile {report.profile}, in which known divergences are found "
            report.unrecorded += f"in {places} more; {remedy}"
    report.shrunk = shrunk(report.reached, record, entries, settled_places(report))
    together: dict[Signature, list[Outside]] = {}
    for each in found:
        together.setdefault(each.reach.signature, []).append(each)
    shown = [_smallest(signature, many, evidence) for signature, many in together.items()]
    cases = [case for case, _ in shown]
    return [
        _grown(finding, first, together[first.reach.signature], record)
        for finding, (_, first) in zip(sessions.as_found(cases), shown, strict=True)
    ]


def held_start_ups(played: Sequence[Played], record: Record | None) -> list[Played]:
    """What was played; a start-up that refuses, but not on ``record``, is left unsettled."""
    if record is None:
        return list(played)
    return [
        replace(each, unsettled=_newly_refused(each, record))
        if each.refused and not each.signatures and place_of(each.play) not in record.refused
        else each
        for each in played
    ]


def _newly_refused(played: Played, record: Record) -> str:
    return f"start-up refuses a deployment that {record.name} accepts: {played.refused}"


def settled_places(report: Report) -> set[tuple[str, str]]:
    """The claim and the place of all that was judged; claim "" for histories."""
    by_checks = {
        (each.claim, place_of(each.configuration))
        for each in report.obligations
        if each.status in (Status.PROVED, Status.REFUTED)
    }
    return by_checks | {("", place_of(each.play)) for each in report.played if not each.unsettled}


def _smallest(
    signature: Signature, found: Sequence[Outside], evidence: Sequence[tuple[Task, Evidence]]
) -> tuple[Evidence | tuple[Signature, Play], Outside]:
    """The smallest case of a divergence outside its footprint, and where that is.

    The place is that of the task: evidence has the configuration as its policy has it judged.
    """
    places = {place_of(each.reach.judged): each for each in found}
    outside_of = [
        (case, places[place])
        for task, case in evidence
        if case.signature == signature and (place := place_of(task.configuration)) in places
    ]
    shown = smallest(case for case, _ in outside_of)
    if signature in shown:
        return next(each for each in outside_of if each[0] is shown[signature])
    for each in found:
        if isinstance(each.reach.judged, Play):
            return (signature, each.reach.judged), each
    raise AssertionError(f"nothing shows {signature}")


def _grown(finding: Finding, first: Outside, found: Sequence[Outside], record: Record) -> Finding:
    signature = first.reach.signature
    defect = Defect.of(
        Code.KNOWN_DIVERGENCE_GROWN, extent=str(first.growth), of=str(signature.defect)
    )
    names = [place_of(each.reach.judged) for each in (first, *found)]
    places = tuple(dict.fromkeys(names))
    facts = [
        f"the footprint of {record.name}: {in_words(first.recorded, first.reach.footprint)}"
        f" ({places[0]})"
    ]
    if len(places) > 1:
        facts.append(f"it reaches further in {count(places, 'place')}")
    return replace(
        finding,
        signature=replace(signature, defect=defect),
        given=(*finding.given, *facts),
        grown=Grown(signature, places),
    )

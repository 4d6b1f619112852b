"""Reports as people and as programs read them."""

from collections import Counter
from operator import attrgetter
from typing import Any

from rich.console import Console

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.ledger.ledger import CauseStatus, Entry
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.gate.policies import costs_of
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.unbounded import proved_in_words
from hitproof.vllm_integration.reports.branches import counted_json
from hitproof.vllm_integration.reports.causes import Cause, causes, classes_in_words, known_from, of
from hitproof.vllm_integration.reports.policies import cost_json, costs_in_words
from hitproof.vllm_integration.reports.printing import plain, print_text, said, sentence
from hitproof.vllm_integration.survey.faults import status_of

_MOST_INCONCLUSIVE = 5
_MOST_PLACES = 3


def print_report(report: Report, console: Console, verbose: bool) -> None:
    """The report of `hitproof check` for people."""
    obligations, most = report.obligations, None if verbose else _MOST_INCONCLUSIVE
    unplayed: dict[str, list[Played]] = {}
    for each in report.unplayed:
        unplayed.setdefault(each.reason, []).append(each)
    print_text(
        console,
        "check.txt",
        report=report,
        verbose=verbose,
        found=causes(report.judgement.new, report.target.version),
        by_cause=by_cause(report),
        reasons_of=lambda known: {entry.reason: entry for _, entry in known},
        status_of=status_of,
        most=_MOST_INCONCLUSIVE,
        shown=lambda every: list(every)[:most],
        unsettled=Counter(each.detail for each in report.unsettled),
        unplayed=unplayed,
        open_ones=Counter(each.claim for each in report.unsettled),
        every=Counter(each.claim for each in obligations),
        rows=[
            (o.claim, o.configuration.describe(), o.configuration.bound_in_words, o.status, o.paths)
            for o in obligations
        ],
        costs=costs_in_words(report.policies),
        coverage=coverage_in_words(report),
        proved=proved_in_words(report.unbounded, verbose) if report.unbounded else (),
        against=sum(map(report.is_new, report.judgement.new)),
        known_in_words=known_in_words,
        what_diverges=what_diverges,
    )


def verdict_line(report: Report) -> str:
    """The verdict in one line."""
    return plain(said("verdict", report, known_in_words(report), what_diverges(report)))


def by_cause(report: Report) -> dict[str, list[tuple[Finding, Entry]]]:
    """The known divergences, those of one cause together."""
    causes: dict[str, list[tuple[Finding, Entry]]] = {}
    for finding, entry in report.judgement.known:
        causes.setdefault(entry.cause, []).append((finding, entry))
    return causes


def known_in_words(report: Report) -> str:
    """The known divergences and their causes, counted by status, those of faults by class, too."""
    by_status: dict[CauseStatus, list[list[Finding]]] = {status: [] for status in CauseStatus}
    for known in by_cause(report).values():
        by_status[status_of(known[0][1])].append([finding for finding, _ in known])
    parts = []
    for status, group in by_status.items():
        found = [finding for each in group for finding in each]
        classes = f" ({classes_in_words(found)})" if status is CauseStatus.FAULT else ""
        if group:
            parts.append((len(found), f"{status.counted(group)}{classes}"))
    total = count(report.judgement.known, "known divergence")
    if len(parts) == 1:
        return f"{total} of {parts[0][1]}"
    return f"{total}: {', '.join(f'{number} of {those}' for number, those in parts)}"


def coverage_in_words(report: Report) -> str:
    """How much was judged, and how it ended."""
    states, paths, runs = (
        report.tasks_total(attrgetter(name)) for name in ("states", "paths", "runs")
    )
    statuses = Counter(each.status for each in report.obligations)
    counts = {status: statuses[status] for status in Status if statuses[status]}
    return sentence("coverage", report, len(MODELS), _scientific(states), paths, runs, counts)


def what_diverges(report: Report) -> str:
    """What makes the target diverge, counted."""
    found = causes(report.judgement.new, report.target.version)
    return sentence("diverging", report, len(found))


def _scientific(number: int) -> str:
    """A count of states, which soon has forty digits."""
    digits = str(number)
    if len(digits) <= 6:
        return digits
    return f"{digits[0]}.{digits[1]}e{len(digits) - 1}"


def report_json(report: Report) -> dict[str, Any]:
    """The report of `hitproof check` as JSON."""
    known = [
        f.as_json() | {"reason": e.reason, "cause": e.cause, "status": status_of(e)}
        for f, e in report.judgement.known
    ]
    costs = costs_of(report.policies)
    found = causes(report.judgement.new, report.target.version)
    cause_of = {id(f): number for number, cause in enumerate(found) for f in cause.findings}
    return {
        "verdict": report.verdict_label,
        "exit_code": int(report.verdict),
        "seconds": round(report.seconds, 1),
        "policies": [
            {
                **picked(standing, "actual", "expected", policy="policy.name", value="in_force"),
                "chosen": standing.chosen is not None,
                "change": standing in report.policy_changes,
                "cost": cost_json(costs.get(standing.policy.name)),
            }
            for standing in report.policies
        ],
        "coverage": {
            "configurations": report.num_configurations,
            "paths": report.tasks_total(lambda o: o.paths),
            "states": report.tasks_total(lambda o: o.states),
            "runs": report.tasks_total(lambda o: o.runs),
            "histories": len(report.of_managers),
            "steps": sum(each.steps for each in report.of_managers),
            "lookups": sum(each.lookups for each in report.played),
            "scheduler_histories": len(report.of_schedulers),
            "scheduler_steps": sum(each.steps for each in report.of_schedulers),
        },
        "branches": None if report.branches is None else counted_json(report.branches),
        "obligations": [
            picked(each, *_OBLIGATION, refuted_by="signatures") for each in report.obligations
        ],
        "unsettled_histories": [
            each.play.as_json() | {"detail": each.unsettled} for each in report.unplayed
        ],
        "left_out_histories": dict(sorted(report.left_out.items())),
        "findings": [
            finding.as_json()
            | {
                "new_against_baseline": report.is_new(finding),
                "cause": cause_of[id(finding)],
                "faults": [f.number for f in known_from(of(finding), report.target.version)],
            }
            for finding in report.judgement.new
        ],
        "causes": [cause_json(cause) for cause in found],
        "known_divergences": known,
        "known_causes": [
            {
                "cause": cause,
                "status": status_of(found[0][1]),
                "findings": len(found),
                "conditions": report.conditions.get(cause, []),
            }
            for cause, found in by_cause(report).items()
        ],
        "stale_ledger_entries": [
            picked(entry, "signature", "reason") for entry in report.judgement.stale
        ],
        "shrunk_divergences": [
            {
                **picked(each.entry, "signature", "reason"),
                "places": [
                    {"place": place, "recorded": before.size, "now": now.size if now else 0}
                    for place, before, now in each.places
                ],
            }
            for each in report.shrunk
        ],
        "footprints": None
        if report.record is None
        else {"of": report.record.name, "profiles": sorted(report.record.profiles)},
        **picked(report, "restricted", "target", "profile", "policies_detail", "reads"),
        **picked(report, "unbounded", footprints_detail="unrecorded", last_failed="since_then"),
    }


_OBLIGATION = "claim", "configuration", "status", "paths", "states", "runs", "detail"


def cause_json(cause: Cause) -> dict[str, Any]:
    """A cause: its worst finding in short, and how many findings there are."""
    return {
        **picked(cause.worst.signature, "headline", "code", **{"class": "divergence"}),
        "findings": len(cause.findings),
        "faults": [fault.number for fault in cause.known_from],
        **picked(cause.worst, "location"),
    }

"""The report of `hitproof check` as programs read it."""

from typing import Any

from hitproof.vllm_integration.gate.policies import costs_of
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.branches import counted_json
from hitproof.vllm_integration.reports.causes import Cause, causes, known_from, of
from hitproof.vllm_integration.reports.policies import cost_json
from hitproof.vllm_integration.reports.text import by_cause
from hitproof.vllm_integration.survey.faults import status_of


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
        "restricted": None if report.restricted is None else report.restricted.as_json(),
        "target": report.target.as_json(),
        "profile": str(report.profile),
        "seconds": round(report.seconds, 1),
        "policies": [
            {
                "policy": standing.policy.name,
                "value": standing.in_force,
                "actual": standing.actual,
                "expected": standing.expected,
                "chosen": standing.chosen is not None,
                "change": standing in report.policy_changes,
                "cost": cost_json(costs.get(standing.policy.name)),
            }
            for standing in report.policies
        ],
        "policies_detail": report.policies_detail,
        "reads": report.reads.as_json(),
        "unbounded": [each.as_json() for each in report.unbounded],
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
            {
                "claim": o.claim,
                "configuration": o.configuration.as_json(),
                "status": str(o.status),
                "paths": o.paths,
                "states": o.states,
                "runs": o.runs,
                "detail": o.detail,
                "refuted_by": [signature.as_json() for signature in o.signatures],
            }
            for o in report.obligations
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
            {"cause": cause, "status": status_of(found[0][1]), "findings": len(found)}
            for cause, found in by_cause(report).items()
        ],
        "stale_ledger_entries": [
            {"signature": entry.signature.as_json(), "reason": entry.reason}
            for entry in report.judgement.stale
        ],
        "shrunk_divergences": [
            {
                "signature": each.entry.signature.as_json(),
                "reason": each.entry.reason,
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
        "footprints_detail": report.unrecorded,
        "last_failed": None if report.since_then is None else report.since_then.as_json(),
    }


def cause_json(cause: Cause) -> dict[str, Any]:
    """A cause: its worst finding in short, and how many findings there are."""
    where = cause.worst.location
    return {
        "headline": cause.worst.signature.headline,
        "class": cause.worst.signature.divergence,
        "code": cause.worst.signature.code,
        "findings": len(cause.findings),
        "faults": [fault.number for fault in cause.known_from],
        "location": None if where is None else where.as_json(),
    }

"""The report of `hitproof check` as programs read it."""

from typing import Any

from hitproof.conformance.picking import picked
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

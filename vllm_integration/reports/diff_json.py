"""The report of `hitproof diff` as programs read it."""

from typing import Any

from hitproof.conformance.comparison.records import Observable
from hitproof.conformance.comparison.schedules import Decision
from hitproof.conformance.picking import picked
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.side_by_side import Example
from hitproof.vllm_integration.reports.causes import causes
from hitproof.vllm_integration.reports.check_json import cause_json
from hitproof.vllm_integration.reports.diff import is_harm, one_sided, summary


def diff_json(diff: Diff) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "verdict": diff.verdict.label,
        "exit_code": int(diff.verdict),
        "base": diff.base.target.as_json(),
        "head": diff.head.target.as_json(),
        "profile": str(diff.head.profile),
        "seconds": round(diff.seconds, 1),
        "changed": diff.changed,
        "summary": summary(diff),
        "changes": [
            picked(group.smallest, "effect", "given", "base", "head", configuration="judged")
            | picked(group, "configurations", "models", kinds="smallest.judged.kinds")
            | {"harmful": is_harm(group, diff)}
            for group in diff.groups
        ]
        + [
            picked(change, "effect", "observable", "histories", "tokens", histories_first="first")
            | {"harmful": is_harm(change, diff), **_example_json(change.example)}
            for change in diff.histories.changes
        ],
        "footprints": [picked(each, *_REACH, configuration="judged") for each in diff.reaches],
        "causes": [cause_json(each) for each in causes(diff.brought, diff.head.target.version)],
        "findings_not_judged": [
            finding.as_json() | {"reason": reason} for finding, reason in diff.unjudged
        ],
        "became_inconclusive": [
            {"about": about, "reason": reason} for about, reason in diff.became_unsettled
        ],
        "policies": [
            {"name": name, "base": base, "head": head} for name, base, head in diff.policies
        ],
        "coverage": {
            **picked(diff, "registrations", **_COMPARED),
            **picked(diff.histories, "histories", "steps", "scheduler_steps", **_PLAYED),
            "on_one_only": one_sided(diff),
            "observables": [
                *(str(each) for each in Observable if each is not Observable.CALLS),
                *map(str, Decision),
            ],
        },
    } | picked(
        diff,
        findings_brought="brought",
        findings_gone="gone",
        findings_of_both="shared",
        equivalence="versions",
        unsettled="open_questions",
    )


_REACH = "signature", "harmful", "grown", "shrunk", "otherwise", "base", "head"
_COMPARED = {
    "proved_on_both": "proved",
    "compared": "covered",
    "lookup_answers": "answers",
    "not_answered_by_both": "unmatched",
}
_PLAYED = {
    "scheduler_histories": "schedulers",
    "lookups_in_histories": "lookups",
    "histories_adapted_to_both": "adapted",
    "histories_of_which_the_end_is_not_compared": "stopped",
    "histories_not_compared": "uncompared",
}


def _example_json(example: Example | None) -> dict[str, Any]:
    none: dict[str, Any] = {"configurations": 0, "models": []}
    if example is None:
        return none | {"kinds": "", "given": [], "base": "", "head": ""}
    return none | picked(example, "kinds", "given", "base", "head", configuration="play")

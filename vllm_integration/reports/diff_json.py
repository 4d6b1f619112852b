"""The report of `hitproof diff` as programs read it."""

from typing import Any

from hitproof.conformance.comparison.records import Observable
from hitproof.conformance.comparison.schedules import Decision
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
            {
                "effect": str(group.smallest.effect),
                "harmful": is_harm(group, diff),
                "kinds": group.smallest.judged.kinds,
                "configurations": group.configurations,
                "models": list(group.models),
                "given": list(group.smallest.given),
                "base": group.smallest.base,
                "head": group.smallest.head,
                "configuration": group.smallest.judged.as_json(),
            }
            for group in diff.groups
        ]
        + [
            {
                "effect": str(change.effect),
                "harmful": is_harm(change, diff),
                "observable": str(change.observable),
                "histories": change.histories,
                "histories_first": change.first,
                "tokens": change.tokens,
                **_example_json(change.example),
            }
            for change in diff.histories.changes
        ],
        "footprints": [
            {
                "signature": each.signature.as_json(),
                "harmful": each.harmful,
                "grown": each.grown,
                "shrunk": each.shrunk,
                "otherwise": each.otherwise,
                "configuration": each.judged.as_json(),
                "base": each.base,
                "head": each.head,
            }
            for each in diff.reaches
        ],
        "findings_brought": [finding.as_json() for finding in diff.brought],
        "causes": [cause_json(each) for each in causes(diff.brought, diff.head.target.version)],
        "findings_gone": [finding.as_json() for finding in diff.gone],
        "findings_not_judged": [
            finding.as_json() | {"reason": reason} for finding, reason in diff.unjudged
        ],
        "became_inconclusive": [
            {"about": about, "reason": reason} for about, reason in diff.became_unsettled
        ],
        "findings_of_both": [finding.as_json() for finding in diff.shared],
        "policies": [
            {"name": name, "base": base, "head": head} for name, base, head in diff.policies
        ],
        "equivalence": diff.versions.as_json(),
        "coverage": {
            "proved_on_both": diff.proved,
            "compared": diff.covered,
            "lookup_answers": diff.answers,
            "registrations": diff.registrations,
            "not_answered_by_both": diff.unmatched,
            "on_one_only": one_sided(diff),
            "histories": diff.histories.histories,
            "steps": diff.histories.steps,
            "scheduler_histories": diff.histories.schedulers,
            "scheduler_steps": diff.histories.scheduler_steps,
            "lookups_in_histories": diff.histories.lookups,
            "histories_adapted_to_both": diff.histories.adapted,
            "histories_of_which_the_end_is_not_compared": diff.histories.stopped,
            "histories_not_compared": dict(diff.histories.uncompared),
            "observables": [
                *(str(each) for each in Observable if each is not Observable.CALLS),
                *map(str, Decision),
            ],
        },
        "unsettled": diff.open_questions,
    }


def _example_json(example: Example | None) -> dict[str, Any]:
    if example is None:
        return {"kinds": "", "configurations": 0, "models": [], "given": [], "base": "", "head": ""}
    return {
        "kinds": example.kinds,
        "configurations": 0,
        "models": [],
        "given": list(example.given),
        "base": example.base,
        "head": example.head,
        "configuration": example.play.as_json(),
    }

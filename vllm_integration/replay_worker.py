"""The worker's side of replay: one history judged on the imported vLLM."""

from functools import cache
from typing import Any

from conformance.history_json import read
from conformance.promises import JudgedPolicies
from conformance.replay import ReplayFinding, replay
from conformance.subjects import CannotJudge
from vllm_integration.adapter import VllmSubject
from vllm_integration.managers import VllmManagers

_managers = cache(VllmManagers)


def judge_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Play the history in ``message`` and judge it under the policies that the target shows."""
    history = read(message["history"])
    try:
        managers = _managers()
        policies = _policies(subject, managers)
        outcome = replay(history, managers, policies)
    except CannotJudge as reason:
        return {"cannot": str(reason)}
    return {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "told": outcome.told,
        "lookups": [vars(lookup) for lookup in outcome.lookups],
        "findings": [_as_json(finding) for finding in outcome.findings],
    }


def _policies(subject: VllmSubject, managers: VllmManagers) -> JudgedPolicies:
    return JudgedPolicies.of(subject.policies(), managers.keeps_every_state)


def _as_json(finding: ReplayFinding) -> dict[str, Any]:
    return {
        "signature": finding.signature.as_json(),
        "spec": finding.violation.spec,
        "actual": finding.violation.actual,
        "step": finding.step,
        "call": finding.call,
        "times": finding.times,
    }

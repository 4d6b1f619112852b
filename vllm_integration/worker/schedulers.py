"""The worker's side of scheduler histories: one played and judged on the imported vLLM."""

from functools import cache
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.workload_json import write_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.outcome import SchedulerOutcome
from hitproof.conformance.scheduling.player import play as play_history
from hitproof.conformance.scheduling.shrinking import shrink
from hitproof.conformance.subject.failures import refusal_of
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.judging import policies_of

_schedulers = cache(VllmSchedulers)


def judged(subject: VllmSubject, history: SchedulerHistory) -> SchedulerOutcome:
    """Play a scheduler history. Raises `CannotJudge`."""
    return play_history(history, _schedulers(), policies_of(subject))


def judge_workload(subject: VllmSubject, play: Play) -> dict[str, Any]:
    """Play a scheduler history, and say what became of it, as of other histories."""
    try:
        policies = policies_of(subject)
        outcome = judged(subject, _history(play))
    except Exception as error:
        return {"cannot": refusal_of(error)}
    return {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "steps": [""] * outcome.steps,
        "lookups": [],
        "findings": [found.as_json() for found in outcome.findings],
        "footprints": [cause.footprint.as_json() for cause in outcome.causes],
        "ended": outcome.ended,
        "expected": [],
        "scheduler": outcome.as_json(),
    }


def finding(subject: VllmSubject, play: Play, wanted: Signature, budget: int) -> dict[str, Any]:
    """What a scheduler history shows, as a finding; see `vllm_integration.worker.findings`."""

    def shown(history: SchedulerHistory) -> Occurrence | None:
        causes = judged(subject, history).causes
        return next((each for each in causes if each.signature == wanted), None)

    try:
        small = shrink(_history(play), lambda history: shown(history) is not None, budget)
        found = shown(small)
    except Exception as error:
        return {"finding": None, "demonstration": {"detail": refusal_of(error)}}
    if found is None:
        detail = "played once more it does not show again"
        return {"finding": None, "demonstration": {"detail": detail}}
    detail = "`hitproof replay` plays the history on the target's own scheduler"
    return {
        "finding": found.as_json() | {"history": write_workload(small)},
        "demonstration": {"detail": detail},
    }


def _history(play: Play) -> SchedulerHistory:
    """The history, adapted to the release unless it is written out."""
    history = play.workload()
    return _schedulers().possible(history) if play.origin is Origin.SCHEDULER else history

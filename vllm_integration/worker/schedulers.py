"""The worker's side of scheduler histories: one played and judged on the imported vLLM."""

import re
from functools import cache
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.workload_json import workload_as_json, write_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.outcome import SchedulerOutcome
from hitproof.conformance.scheduling.playing import play as play_history
from hitproof.conformance.scheduling.shrinking import shrink
from hitproof.conformance.subject.failures import refusal_of
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.reproduce.scheduler_case import scheduler_case
from hitproof.vllm_integration.worker.judging import policies_of

_schedulers = cache(VllmSchedulers)

_REPLAYED = "`hitproof replay` plays the history on the target's own scheduler"


def judged(subject: VllmSubject, history: SchedulerHistory) -> SchedulerOutcome:
    """Play a scheduler history. Raises `CannotJudge`."""
    return play_history(history, _schedulers(), policies_of(subject))


def played(subject: VllmSubject, play: Play) -> SchedulerOutcome:
    """Play one of the gate's scheduler histories. Raises `CannotJudge`."""
    return judged(subject, _history(play))


def judge_workload(subject: VllmSubject, play: Play, record: bool) -> dict[str, Any]:
    """Play a scheduler history, and say what became of it, as of other histories.

    With ``record`` say how it was played, and what each step computed, too.
    """
    try:
        policies, history = policies_of(subject), _history(play)
        outcome = judged(subject, history)
    except Exception as error:
        return {"cannot": refusal_of(error)}
    recorded = {"history": write_workload(history), "plans": outcome.plans} if record else {}
    return recorded | {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "steps": [""] * outcome.steps,
        "lookups": [],
        "findings": [found.as_json() for found in outcome.findings],
        "footprints": [cause.footprint.as_json() for cause in outcome.causes],
        "ended": outcome.ended,
        "expected": [],
        "left_out": not history.requests and bool(play.workload().requests),
        "scheduler": outcome.as_json(),
    }


def finding(
    subject: VllmSubject, play: Play, wanted: Signature, budget: int, name: str
) -> dict[str, Any]:
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
        detail = "it did not reproduce when replayed"
        return {"finding": None, "demonstration": {"detail": detail}}
    return {
        "finding": found.as_json() | {"history": write_workload(small)},
        "demonstration": _demonstrated(small, found.violation, re.sub(r"\W+", "_", name)),
    }


def _demonstrated(history: SchedulerHistory, violation: Violation, name: str) -> dict[str, Any]:
    """What a history shows, as a demonstration by a test named so."""
    if not name:
        return {}
    try:
        case = scheduler_case(_schedulers(), history, violation, name)
    except Exception as error:
        return {"name": name, "detail": f"{refusal_of(error)}; {_REPLAYED}"}
    if not case.fails:
        return {"name": name, "reproduced": False, "detail": f"its test passes; {_REPLAYED}"}
    return {
        "name": name,
        "reproduced": True,
        "vector": workload_as_json(history),
        "pytest": case.text,
        "error": case.error,
    }


def _history(play: Play) -> SchedulerHistory:
    """The history, adapted to the release unless it is written out."""
    history = play.workload()
    return _schedulers().possible(history) if play.origin is not Origin.WRITTEN else history

"""The worker's side of replay: one history judged on the imported vLLM."""

from typing import Any

from hitproof.conformance.comparison.recording import Recorder
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Abilities, Play
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.tracing import States, trace_of
from hitproof.conformance.subject.failures import refusal_of
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker import schedulers
from hitproof.vllm_integration.worker.findings import Shown, of_history
from hitproof.vllm_integration.worker.judging import abilities_of, judged, managers, policies_of


def played(subject: VllmSubject, play: Play) -> ReplayOutcome:
    """Replay one of the gate's histories. Raises `CannotJudge`."""
    return judged(subject, _history(subject, play))


def judge_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Replay a history under the policies that the target shows, and say what became of it.

    With ``record`` say what was observed, too, and of the step ``values`` in full; with ``trace``
    give the trace; with ``numeric`` compute the history, too.
    """
    if (play := Play.from_json(message["play"])).of_scheduler:
        return schedulers.judge_workload(subject, play, message.get("record", False))
    record, wanted = message.get("record", False), message.get("values")
    states, numbers = States() if message.get("trace") else None, None
    try:
        policies = policies_of(subject)
        history = _history(subject, play, message.get("abilities"))
        recorder = Recorder(managers(), history, wanted) if record else None
        if recorder is not None:
            outcome = replay(history, recorder, policies, recorder.step_ends)
        elif message.get("numeric"):
            from hitproof.conformance.numeric.computed_replay import numeric_replay  # imports torch

            outcome, numbers = numeric_replay(history, managers(), policies, states)
        else:
            outcome = replay(history, managers(), policies, noted=states)
    except Exception as error:
        return {"cannot": refusal_of(error)}
    answer = {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "steps": outcome.steps,
        "lookups": [vars(lookup) for lookup in outcome.lookups],
        "findings": [found.as_json() for found in outcome.findings],
        "footprints": [cause.footprint.as_json() for cause in outcome.causes],
        "ended": outcome.ended,
        "expected": [vars(each) for each in outcome.comparisons],
        "left_out": not history.steps,
    }
    if recorder is not None:
        answer |= {"record": recorder.record.as_json(), "values": recorder.values}
    if numbers is not None:
        answer["numeric"] = numbers.as_json()
    if states is not None:
        answer["trace"] = trace_of(history, outcome, states, policies).as_json()
    return answer


def abilities(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What histories can ask of the target."""
    del message
    try:
        return {"abilities": abilities_of(subject).as_json()}
    except Exception as error:
        return {"cannot": refusal_of(error)}


def finding(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What a history shows, as a finding; see `vllm_integration.worker.findings`."""
    wanted = Signature.from_json(message["signature"])
    if (play := Play.from_json(message["play"])).of_scheduler:
        return schedulers.finding(subject, play, wanted, message["budget"], message["name"])

    def shown(history: History) -> Shown | None:
        for each in judged(subject, history).causes:
            if each.signature == wanted:
                return Shown(each.step, each.as_json(), each.violation)
        return None

    history = _history(subject, play)
    return of_history(subject, history, shown, message, policies_of(subject).player)


def _history(subject: VllmSubject, play: Play, given: dict[str, Any] | None = None) -> History:
    """The history as the target can play it, or as one of the ``given`` abilities can."""
    return play.history(Abilities.from_json(given) if given else abilities_of(subject))

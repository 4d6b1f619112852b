"""The worker's side of replay: one history judged on the imported vLLM."""

from functools import cache
from typing import Any

from hitproof.conformance.comparison.recording import Recorder
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Abilities, Play
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.judge.replay import replay
from hitproof.conformance.subject.failures import refusal_of
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.findings import Shown, of_history

_managers = cache(VllmManagers)


def played(subject: VllmSubject, play: Play) -> ReplayOutcome:
    """Replay one of the gate's histories. Raises `CannotJudge`."""
    return _replay(subject, _history(subject, play))


def judge_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Replay a history under the policies that the target shows, and say what became of it.

    With ``record`` say what was observed, too, and of the step ``values`` in full.
    """
    record, wanted = message.get("record", False), message.get("values")
    try:
        play, policies = Play.from_json(message["play"]), _policies(subject)
        history = _history(subject, play, message.get("abilities"))
        recorder = Recorder(_managers(), history, wanted) if record else None
        if recorder is not None:
            outcome = replay(history, recorder, policies, recorder.step_ends)
        else:
            outcome = _replay(subject, history)
    except Exception as error:
        return {"cannot": refusal_of(error)}
    answer = {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "steps": outcome.steps,
        "lookups": [vars(lookup) for lookup in outcome.lookups],
        "findings": [found.as_json() for found in outcome.findings],
        "footprints": [cause.footprint.as_json() for cause in outcome.causes],
        "ended": outcome.ended,
    }
    if recorder is not None:
        answer |= {"record": recorder.record.as_json(), "values": recorder.values}
    return answer


def abilities(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What histories can ask of the target."""
    del message
    try:
        return {"abilities": _abilities(subject).as_json()}
    except Exception as error:
        return {"cannot": refusal_of(error)}


def finding(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What a history shows, as a finding; see `vllm_integration.worker.findings`."""
    wanted = Signature.from_json(message["signature"])

    def shown(history: History) -> Shown | None:
        for each in _replay(subject, history).causes:
            if each.signature == wanted:
                return Shown(each.step, each.as_json(), each.violation)
        return None

    return of_history(subject, _history(subject, Play.from_json(message["play"])), shown, message)


def _history(subject: VllmSubject, play: Play, given: dict[str, Any] | None = None) -> History:
    """The history as the target can play it, or as one of the ``given`` abilities can."""
    return play.history(Abilities.from_json(given) if given else _abilities(subject))


@cache
def _abilities(subject: VllmSubject) -> Abilities:
    managers, policies = _managers(), _policies(subject)
    return Abilities(
        registers_tails=managers.registers_tails,
        retained_kinds=[kind for kind in SPARSE_KINDS if policies.thins_out(kind)],
        fits_whole=managers.fits_whole,
        # Replay judges them where the end of a prompt is kept for resends.
        exports_states=managers.exports_states and policies.fine_tail is FineTail.RESEND,
        keeps_shared_states=managers.keeps_shared_states,
        hashes_look_ahead=managers.hashes_look_ahead,
    )


def _replay(subject: VllmSubject, history: History) -> ReplayOutcome:
    return replay(history, _managers(), _policies(subject))


@cache
def _policies(subject: VllmSubject) -> JudgedPolicies:
    return JudgedPolicies.of(subject.policies(), _managers().keeps_every_state)

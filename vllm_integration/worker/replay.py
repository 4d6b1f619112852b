"""The worker's side of replay: one history judged on the imported vLLM."""

from functools import cache
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.plays import Abilities, Play
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.judge.replay import ReplayFinding, ReplayOutcome, replay
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.subject.failures import refusal_of
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker import cases as case_worker

_managers = cache(VllmManagers)


def played(subject: VllmSubject, play: Play) -> ReplayOutcome:
    """Replay one of the gate's histories. Raises `CannotJudge`."""
    return _replay(subject, _history(subject, play))


def play(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Replay one of the gate's histories; what it shows, without how."""
    try:
        outcome = played(subject, Play.from_json(message["configuration"]))
    except Exception as error:
        return {"cannot": refusal_of(error)}
    return {
        "steps": len(outcome.told),
        "lookups": len(outcome.lookups),
        "signatures": [finding.signature.as_json() for finding in outcome.causes],
    }


def shrink_play(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The smallest history that shows the same, and the finding in it.

    ``budget`` is how many histories are tried; one that is written out stays as it is with 0.
    """
    wanted = Signature(**message["signature"])

    def finding(history: History) -> ReplayFinding | None:
        shown = _replay(subject, history).causes
        return next((each for each in shown if each.signature == wanted), None)

    first = _history(subject, Play.from_json(message["configuration"]))
    smallest = shrink(first, lambda h: finding(h) is not None, message["budget"])
    found = finding(smallest)
    if found is None:
        return {"cannot": "replayed once more it does not show again"}
    return {
        "history": write(smallest),
        "finding": _as_json(found),
        "case": case_worker.of_violation(smallest, found.violation, found.step, message["name"]),
    }


def _history(subject: VllmSubject, play: Play) -> History:
    managers, policies = _managers(), _policies(subject)
    abilities = Abilities(
        registers_tails=managers.registers_tails,
        retained_kinds=[kind for kind in SPARSE_KINDS if policies.thins_out(kind)],
        fits_whole=managers.fits_whole,
        # Replay judges them where the end of a prompt is kept for resends.
        exports_states=managers.exports_states and policies.fine_tail is FineTail.RESEND,
        keeps_shared_states=managers.keeps_shared_states,
        hashes_look_ahead=managers.hashes_look_ahead,
    )
    return play.history(abilities)


def _replay(subject: VllmSubject, history: History) -> ReplayOutcome:
    return replay(history, _managers(), _policies(subject))


def judge_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Play the history in ``message`` and judge it under the policies that the target shows."""
    history = read(message["history"])
    try:
        policies = _policies(subject)
        outcome = _replay(subject, history)
    except Exception as error:
        return {"cannot": refusal_of(error)}
    return {
        "policies": {name: str(value) for name, value in vars(policies).items()},
        "told": outcome.told,
        "lookups": [vars(lookup) for lookup in outcome.lookups],
        "findings": [_as_json(finding) for finding in outcome.findings],
    }


@cache
def _policies(subject: VllmSubject) -> JudgedPolicies:
    return JudgedPolicies.of(subject.policies(), _managers().keeps_every_state)


def _as_json(finding: ReplayFinding) -> dict[str, Any]:
    return {
        "signature": finding.signature.as_json(),
        "spec": finding.violation.spec,
        "actual": finding.violation.actual,
        "step": finding.step,
        "call": finding.call,
        "times": finding.times,
    }

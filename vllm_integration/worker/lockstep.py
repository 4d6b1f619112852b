"""The worker's side of lockstep: histories played on the imported vLLM and on the reference."""

import time
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.plays import Abilities, possible
from hitproof.conformance.lockstep.lockstep import run
from hitproof.conformance.lockstep.outcome import Difference, LockstepFinding, Outcome
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import refusal_of
from hitproof.reference import policies
from hitproof.reference.policies import Policies, ReplayPolicy
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker import cases as case_worker

_managers = cache(VllmManagers)


def lockstep(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Play generated histories from ``first`` on for ``seconds``, at most ``count``."""
    total, found, number = Outcome(), [], message["first"]
    until = time.monotonic() + message["seconds"]
    end = number + message["count"]
    while number < end:
        generated = _history(message | {"history": number})
        outcome = _run(subject, message, generated)
        if isinstance(outcome, str):
            return {"cannot": f"history {number}: {outcome}"}
        total.steps += outcome.steps
        total.calls += outcome.calls
        if outcome.findings or outcome.fault:
            found.append(_as_json(outcome) | {"history": number})
        number += 1
        if time.monotonic() > until:
            break
    return {"next": number, "steps": total.steps, "calls": total.calls, "found": found}


def shrink_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The smallest history that shows the same finding, or the same fault."""
    wanted = message["shows"]

    def shows(candidate: Any) -> bool:
        outcome = _run(subject, message, candidate)
        return not isinstance(outcome, str) and wanted in _shown(outcome)

    smallest = shrink(_history(message), shows, message["budget"])
    outcome = _run(subject, message, smallest)
    if isinstance(outcome, str):
        return {"cannot": outcome}
    found = next((f for f in outcome.findings if f.signature.as_json() == wanted), None)
    case: dict[str, Any] = {"detail": "the fault is the reference's"}
    if found is not None:
        signature = found.signature
        name = f"{signature.claim} {signature.kind} {signature.pattern}"
        name += " with eagle" if signature.eagle else ""
        case = case_worker.of_violation(smallest, found.violation, found.step, name)
    return {"history": write(smallest), "case": case} | _as_json(outcome)


def _history(message: dict[str, Any]) -> Any:
    if isinstance(message["history"], str):
        return read(message["history"])
    managers = _managers()
    generated = history(f"{message['seed']}:{message['history']}", managers.registers_tails)
    return possible(generated, Abilities(hashes_look_ahead=managers.hashes_look_ahead))


def _run(subject: VllmSubject, message: dict[str, Any], played: Any) -> Outcome | str:
    """What became of the history; a sentence when the target cannot be judged on it."""
    release = _policies(subject, message["policies"])
    reference = ReferenceManagers(release)
    try:
        return run(played, _managers(), reference, release.horizon, tuple(message["compared"]))
    except Exception as error:
        return refusal_of(error)


@cache
def _policies(subject: VllmSubject, name: str) -> Policies:
    """The release's policies, with the horizon that the target itself shows.

    What retention promises is no policy: a block that it leaves out is a finding.
    """
    known: Policies = getattr(policies, name)
    return replace(known, horizon=subject.lookahead_horizon, replays=ReplayPolicy.PROMISED)


def _shown(outcome: Outcome) -> list[Any]:
    """What an outcome shows, as `shrink_history` is asked for it."""
    shown: list[Any] = [finding.signature.as_json() for finding in outcome.findings]
    if outcome.fault is not None:
        shown.append([outcome.fault.call, outcome.fault.field])
    return shown


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "findings": [_finding(finding) for finding in outcome.findings],
        "fault": None if outcome.fault is None else _difference(outcome.fault),
    }


def _finding(finding: LockstepFinding) -> dict[str, Any]:
    return {
        "signature": finding.signature.as_json(),
        "spec": finding.violation.spec,
        "actual": finding.violation.actual,
        "step": finding.step,
        "resynchronised": finding.resynchronised,
        "difference": None if finding.difference is None else _difference(finding.difference),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {name: v[:500] if isinstance(v, str) else v for name, v in asdict(difference).items()}

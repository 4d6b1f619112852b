"""The worker's side of lockstep: histories played on the imported vLLM and on the reference."""

import time
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from hitproof.conformance.emulation import releases
from hitproof.conformance.emulation.releases import Policies, ReplayPolicy
from hitproof.conformance.findings.violations import Difference, Occurrence
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.plays import possible
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.lockstep.outcome import Outcome
from hitproof.conformance.lockstep.playing import run
from hitproof.conformance.picking import picked
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import refusal_of
from hitproof.spec.releases.policies import Junctions
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.findings import Shown, of_history
from hitproof.vllm_integration.worker.judging import abilities_of, managers


def lockstep(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Play generated histories from ``first`` on for ``seconds``, at most ``count``."""
    total, found, number = Outcome(), [], message["first"]
    until = time.monotonic() + message["seconds"]
    end = number + message["count"]
    while number < end:
        generated = _history(subject, message | {"history": number})
        try:
            outcome = _run(subject, message, generated)
        except Exception as error:
            return {"cannot": f"history {number}: {refusal_of(error)}"}
        total.steps += outcome.steps
        total.calls += outcome.calls
        if outcome.findings or outcome.fault:
            found.append(_as_json(outcome) | {"history": number})
        number += 1
        if time.monotonic() > until:
            break
    return {"next": number, "steps": total.steps, "calls": total.calls, "found": found}


def finding(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What a history shows, as a finding; see `vllm_integration.worker.findings`.

    ``shows`` is the signature of the finding, or the call and the field of a fault.
    """
    wanted = message["shows"]

    def shown(candidate: History) -> Shown | None:
        outcome = _run(subject, message, candidate)
        for found in outcome.findings:
            if found.signature.as_json() == wanted:
                return Shown(found.step, _finding(found), found.violation)
        fault = outcome.fault
        if fault is not None and [fault.call, fault.field] == wanted:
            return Shown(fault.step, _difference(fault), None)
        return None

    return of_history(subject, _history(subject, message), shown, message)


def _history(subject: VllmSubject, message: dict[str, Any]) -> History:
    abilities = abilities_of(subject)
    generated = history(f"{message['seed']}:{message['history']}", abilities.registers_tails)
    return possible(generated, abilities)


def _run(subject: VllmSubject, message: dict[str, Any], played: History) -> Outcome:
    """What became of the history. Raises `CannotJudge`."""
    release = _policies(subject, message["policies"])
    reference = ReferenceManagers(release)
    junctions = Junctions.KEPT if release.junctions else Junctions.DROPPED
    judged = JudgedPolicies(horizon=release.horizon, junctions=junctions)
    return run(played, managers(), reference, judged, tuple(message["compared"]))


@cache
def _policies(subject: VllmSubject, name: str) -> Policies:
    """The release's policies, with the horizon that the target itself shows.

    Retention's promises are not a policy: a block left out is a finding.
    """
    known: Policies = getattr(releases, name)
    return replace(known, horizon=subject.lookahead_horizon, replays=ReplayPolicy.PROMISED)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "findings": [_finding(finding) for finding in outcome.findings],
        "fault": None if outcome.fault is None else _difference(outcome.fault),
    }


def _finding(finding: Occurrence) -> dict[str, Any]:
    return {
        **picked(finding.violation, "signature", "spec", "actual"),
        **picked(finding, "step", "resynchronised"),
        "difference": None if finding.difference is None else _difference(finding.difference),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {name: v[:500] if isinstance(v, str) else v for name, v in asdict(difference).items()}

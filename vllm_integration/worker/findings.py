"""The worker's operation ``finding``: from a divergence to a finding for a report.

A divergence is shrunk, shown on a whole manager and written as a test, all in one operation. A
check has evidence on a part of the target, for which a history of a whole manager is searched.
Replay and lockstep have a history already, which is shrunk.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.checks.shrinking import shrink as shrink_evidence
from hitproof.conformance.findings.evidence import Evidence, StepsEvidence
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import History
from hitproof.conformance.playing.player import Player, Playing
from hitproof.conformance.playing.shrinking import shrink as shrink_history
from hitproof.conformance.reproduce.reproduction import play
from hitproof.conformance.subject.failures import refusal_of
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.adapter.tracing import Tracing
from hitproof.vllm_integration.worker import cases
from hitproof.vllm_integration.worker.judging import trace


@dataclass(frozen=True)
class Shown:
    """What a history shows.

    Attributes:
        step: the step, an index.
        finding: what the gate makes the finding of, as JSON.
        violation: how the target breaks the spec; None where it is the reference that does.
    """

    step: int
    finding: dict[str, Any]
    violation: Violation | None


def of_evidence(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The smallest ``evidence``, which code it is about, and its demonstration.

    Evidence may get too small to be shown on a whole manager; then it is shown as it was found.
    """
    found, name = Evidence.from_json(message["evidence"]), message["name"]
    small = shrink_evidence(subject, found, message["budget"])
    case = cases.reproduce(subject, small, name) if name else {}
    if case.get("reproduced") is False and small != found:
        case = cases.reproduce(subject, found, name)
    about: dict[str, Any] = {"evidence": small.as_json(), "source": subject.source(small.entry)}
    if name:
        about["passed"] = _passed_by_check(subject, small, case.get("vector"))
    if (vector := case.get("vector")) is not None:
        shown = read(json.dumps(vector))
        about["trace"] = trace(subject, shown, len(shown.steps))
    return {"finding": about, "demonstration": case}


def _passed_by_check(
    subject: VllmSubject, evidence: Evidence, vector: dict[str, Any] | None
) -> dict[str, Any]:
    """What the history of a demonstration runs, or without one the check on its configuration."""
    tracing = Tracing(subject.entry_point(evidence.entry))
    with tracing.running(), contextlib.suppress(Exception):  # the finding may be that it raises
        if vector is not None:
            history = read(json.dumps(vector))
            play(history, VllmManagers().start(history.engine))
        elif not isinstance(evidence, StepsEvidence):  # thousands of operations on the pool
            CHECKS[evidence.signature.claim](subject, evidence.configuration)
    return tracing.passed(evidence.signature.divergence == Divergence.CRASH).as_json()


def _passed_by_history(
    subject: VllmSubject, history: History, shown: Callable[[History], Shown | None], found: Shown
) -> dict[str, Any]:
    """What a history runs up to the step that shows a violation."""
    assert found.violation is not None
    signature, entry = found.violation.signature, None
    kinds = signature.kind.split(" + ")
    with contextlib.suppress(Exception):  # what the target lacks is not where it goes wrong
        if all(kind in list(GroupKind) for kind in kinds):
            looked_up = found.finding.get("call") == "get_computed_blocks"
            several = looked_up and len(kinds) > 1
            what = "lookup" if looked_up else "mask"
            entry = subject.entry_point(f"{what} {'several' if several else kinds[0]}")
        else:
            entry = subject.entry_point(signature.kind)
    tracing = Tracing(entry)
    with tracing.running():
        shown(replace(history, steps=history.steps[: found.step + 1]))
    return tracing.passed(signature.divergence == Divergence.CRASH).as_json()


def of_history(
    subject: VllmSubject,
    first: History,
    shown: Callable[[History], Shown | None],
    message: dict[str, Any],
    playing: Playing = Player,
) -> dict[str, Any]:
    """The smallest history that is ``shown`` to show the same as ``first``, and what it shows."""
    try:
        small = shrink_history(first, lambda h: shown(h) is not None, message["budget"])
        found = shown(small)
    except Exception as error:
        return {"finding": None, "demonstration": {"detail": refusal_of(error)}}
    if found is None:
        detail = "it did not reproduce when replayed"
        return {"finding": None, "demonstration": {"detail": detail}}
    case: dict[str, Any] = {}
    about = found.finding | {"history": write(small)}
    if found.violation is None:
        case = {"detail": "the fault is the reference's"}
    elif message["name"]:
        case = cases.of_violation(small, found.violation, found.step, message["name"], playing)
        about["passed"] = _passed_by_history(subject, small, shown, found)
        about["trace"] = trace(subject, small, found.step)
    return {"finding": about, "demonstration": case}

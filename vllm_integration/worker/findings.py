"""The worker's operation ``finding``: from a divergence to a finding that others can see.

In one go a divergence is made as small as it gets, shown on a whole manager and written as a test.
A check has evidence of it, of a part of the target, for which a history of a whole manager is
looked for. Replay and lockstep have a history already, which is shrunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.checks.shrinking import shrink as shrink_evidence
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.json_format import write
from hitproof.conformance.histories.schema import History
from hitproof.conformance.playing.shrinking import shrink as shrink_history
from hitproof.conformance.subject.failures import refusal_of
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker import cases


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
    return {
        "finding": {"evidence": small.as_json(), "source": subject.source(small.entry)},
        "demonstration": case,
    }


def of_history(
    first: History, shown: Callable[[History], Shown | None], message: dict[str, Any]
) -> dict[str, Any]:
    """The smallest history that is ``shown`` to show the same as ``first``, and what it shows."""
    try:
        small = shrink_history(first, lambda h: shown(h) is not None, message["budget"])
        found = shown(small)
    except Exception as error:
        return {"finding": None, "demonstration": {"detail": refusal_of(error)}}
    if found is None:
        detail = "played once more it does not show again"
        return {"finding": None, "demonstration": {"detail": detail}}
    case: dict[str, Any] = {}
    if found.violation is None:
        case = {"detail": "the fault is the reference's"}
    elif message["name"]:
        case = cases.of_violation(small, found.violation, found.step, message["name"])
    return {"finding": found.finding | {"history": write(small)}, "demonstration": case}

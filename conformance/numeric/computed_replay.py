"""Replay in numbers: a history judged, and computed by the small model in the manager's blocks."""

from collections.abc import Callable
from functools import partial

from hitproof.conformance.explain.traces import State
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.numeric.content import NumericContent
from hitproof.conformance.numeric.outcome import Errors, NumericOutcome
from hitproof.conformance.subject.managers import ManagerSubject


def numeric_replay(
    history: History,
    subject: ManagerSubject,
    policies: JudgedPolicies | None = None,
    noted: Callable[[State, bool], None] | None = None,
) -> tuple[ReplayOutcome, NumericOutcome]:
    """Replay a history, and compute it; see `conformance.judge.judged_replay.replay`."""
    found, step = NumericOutcome(), 0

    def report(request: str, token: int, errors: Errors) -> None:
        found.add(step, request, token, errors)

    def step_ends() -> None:
        nonlocal step
        step += 1

    content = partial(NumericContent, report=report)
    return replay(history, subject, policies, step_ends, noted, content), found

"""Replay of a scheduler history on a target: played and judged in a worker."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass
class SchedulerReport:
    """What became of a scheduler history.

    Attributes:
        target: the target.
        history: the history.
        policies: the policies that the target shows, by name; it was judged under them.
        lives: what became of each request (`conformance.scheduling.outcome.Life`, as JSON).
        findings: in the order of their first time; those with a cause follow from others.
        steps: how many steps were scheduled.
        ended: why the history ended early, "" when it did not.
        unsettled: why the history could not be judged, "" when it could.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    history: SchedulerHistory
    policies: dict[str, str] = field(default_factory=dict)
    lives: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Occurrence] = field(default_factory=list)
    steps: int = 0
    ended: str = ""
    unsettled: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict. There is no ledger: every finding counts."""
        if self.unsettled:
            return Verdict.INCONCLUSIVE
        return Verdict.DIVERGES if self.findings else Verdict.CONFORMS


def run_scheduler(
    target: Target,
    history: SchedulerHistory,
    limits: Limits,
    policies: Mapping[str, str] | None = None,
) -> SchedulerReport:
    """Play ``history`` on a scheduler of the target, and judge every step.

    Arguments and exceptions are those of `vllm_integration.gate.replay.run`.
    """
    with closing(Session.of(target, limits, policies)) as session:
        return judged_scheduler(session, target, history)


def judged_scheduler(
    session: Session, target: Target, history: SchedulerHistory
) -> SchedulerReport:
    """Play ``history`` in a session of the target."""
    report, play = SchedulerReport(target, history), Play.written_workload(history, "")
    if not history.requests:
        report.unsettled = "the history has no requests, so nothing was judged; add requests"
        return report
    answer, report.unsettled = session.replay(play)
    if report.unsettled:
        return report
    played = answer["scheduler"]
    if played["refused"] and not answer["findings"]:
        report.unsettled = (
            f"the target's start-up refuses the deployment ({played['refused']}); change it there"
        )
    report.policies, report.ended = answer["policies"], answer["ended"]
    report.lives, report.steps = played["lives"], played["steps"]
    report.findings = [Occurrence.from_json(found) for found in answer["findings"]]
    return report

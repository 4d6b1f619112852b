"""Replay of histories of managers and schedulers on a target: played and judged in a worker."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.explain.reasons import Reason
from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.places import Location
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.histories.schema import History
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.judge.outcome import Comparison
from hitproof.conformance.numeric.outcome import NumericOutcome
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass(kw_only=True)
class _Report:
    """What became of a history.

    Attributes:
        target: the target.
        policies: the policies that the target shows, by name; it was judged under them.
        findings: in the order of their first time; those with a cause follow from others.
        ended: why the history ended early, "" when it did not.
        unsettled: why the history could not be judged, "" when it could.
        lookups: every lookup: the step, the request, the expected hit, the hit served.
        locations: for findings without a cause, the line that decides, as far as it is known.
        reasons: for such findings, why they occur, if they are new among the histories of a run.
        expected: what the history itself expects, with what there is.
        numeric: what computing the history gave, if that was asked for.
        seconds: wall clock, filled in by the caller.

    Of a history of a scheduler, nothing from the lookups to the numbers is known.
    """

    target: Target
    policies: dict[str, str] = field(default_factory=dict)
    findings: list[Occurrence] = field(default_factory=list)
    ended: str = ""
    unsettled: str = ""
    lookups: list[dict[str, Any]] = field(default_factory=list)
    locations: dict[Signature, Location] = field(default_factory=dict)
    reasons: dict[Signature, tuple[Reason, ...]] = field(default_factory=dict)
    expected: list[Comparison] = field(default_factory=list)
    numeric: NumericOutcome | None = None
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict. There is no ledger: every finding counts."""
        if self.unsettled:
            return Verdict.INCONCLUSIVE
        wrong = self.unmet or (self.numeric is not None and self.numeric.wrong)
        return Verdict.DIVERGES if self.findings or wrong else Verdict.CONFORMS

    @property
    def unmet(self) -> list[Comparison]:
        """The history's own expectations that are not met."""
        return [each for each in self.expected if not each.is_met]


@dataclass(kw_only=True)
class ReplayReport(_Report):
    """What became of a history of a manager.

    Attributes:
        history: the history.
        steps: how each step that was played deviated; "" when it was done as asked.
        trace: the history step by step, if it was asked for.
    """

    history: History
    steps: list[str] = field(default_factory=list)
    trace: Trace | None = None


@dataclass(kw_only=True)
class SchedulerReport(_Report):
    """What became of a scheduler history.

    Attributes:
        history: the history.
        lives: what became of each request (`conformance.scheduling.outcome.Life`, as JSON).
        steps: how many steps were scheduled.
    """

    history: SchedulerHistory
    lives: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: int = 0


def run_mixed(
    of: Run, histories: Sequence[History | SchedulerHistory]
) -> list[ReplayReport | SchedulerReport]:
    """Play histories of managers and of schedulers; see `run`."""
    with closing(Session.of(of.target, of.limits, of.policies)) as session:
        known: dict[Signature, Location | None] = {}
        return [
            _judged_scheduler(session, of.target, each)
            if isinstance(each, SchedulerHistory)
            else _judged(session, of.target, each, trace=False, numeric=False, known=known)
            for each in histories
        ]


def run(
    of: Run, histories: Sequence[History], *, trace: bool = False, numeric: bool = False
) -> list[ReplayReport]:
    """Play each of ``histories`` on a manager of its own of the target, and judge every step.

    With ``trace`` each report has a trace, with ``numeric`` what computing the history gave. Raises
    the exceptions of `Worker` when the target cannot be imported or hitproof itself is wrong.
    """
    with closing(Session.of(of.target, of.limits, of.policies)) as session:
        known: dict[Signature, Location | None] = {}
        return [_judged(session, of.target, each, trace, numeric, known) for each in histories]


def _judged(
    session: Session,
    target: Target,
    history: History,
    trace: bool,
    numeric: bool,
    known: dict[Signature, Location | None],
) -> ReplayReport:
    """The report on one history; ``known`` are the lines of findings of those before it."""
    report, play = ReplayReport(target=target, history=history), Play.written(history, "")
    if not history.steps:
        report.unsettled = "the history has no steps, so nothing was judged; add steps"
        return report
    asked = {"numeric": True} if numeric else {}
    answer, report.unsettled = session.replay(play, trace=trace, **asked)
    if report.unsettled:
        return report
    report.policies, report.steps = answer["policies"], answer["steps"]
    report.lookups, report.ended = answer["lookups"], answer["ended"]
    report.expected = [Comparison(**each) for each in answer["expected"]]
    report.findings = [Occurrence.from_json(found) for found in answer["findings"]]
    report.trace = Trace.model_validate(answer["trace"]) if trace else None
    report.numeric = NumericOutcome.from_json(answer["numeric"]) if numeric else None
    for found in report.findings:
        if found.cause is None and found.signature not in known:
            shown = session.finding((found.signature, play), found.signature.claim)
            known[found.signature] = shown.location
            if shown.trace is not None:
                code = str(found.signature.defect)
                reasons = Trace.model_validate(shown.trace).why(found.signature.claim, code)
                report.reasons[found.signature] = reasons
        if found.cause is None and (location := known[found.signature]) is not None:
            report.locations[found.signature] = location
    return report


def _judged_scheduler(
    session: Session, target: Target, history: SchedulerHistory
) -> SchedulerReport:
    """Play ``history`` in a session of the target."""
    report = SchedulerReport(target=target, history=history)
    play = Play.written_workload(history, "")
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


def worst(reports: Sequence[ReplayReport | SchedulerReport]) -> Verdict:
    """The verdict on all of them: one that diverges outweighs one that is not settled."""
    verdicts = {report.verdict for report in reports}
    order = Verdict.DIVERGES, Verdict.INCONCLUSIVE, Verdict.CONFORMS
    return next(verdict for verdict in order if verdict in verdicts)


@dataclass
class Replays:
    """What became of several histories; ``seconds`` are of all, filled in by the caller."""

    reports: Sequence[ReplayReport | SchedulerReport]
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst one."""
        return worst(self.reports)

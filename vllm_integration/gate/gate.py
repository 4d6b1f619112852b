"""The gate: judges a target against the spec and says conforms, diverges or inconclusive."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.findings.footprints import Footprint
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.judge.policy_costs import costs
from hitproof.conformance.ledger.ledger import Entry, judge
from hitproof.conformance.ledger.records import Reach, Record, outside
from hitproof.spec.claims import Status
from hitproof.spec.releases.fine import HitGranularity
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate.growth import held_start_ups, hold, reached
from hitproof.vllm_integration.gate.obligations import (
    Obligation,
    Played,
    Task,
    histories,
    of_entries,
    tasks,
)
from hitproof.vllm_integration.gate.policies import expected_value, held_against
from hitproof.vllm_integration.gate.reads import ReadsReport
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Restricted
from hitproof.vllm_integration.gate.sessions import Around, Outcome, Session, Sessions
from hitproof.vllm_integration.gate.unbounded import (
    Unbounded,
    check_agreement,
    resting,
    statements,
    unless_known,
)
from hitproof.vllm_integration.sandbox.driver import Workers


def check(run: Run, progress: Callable[[int, int], None]) -> Report:
    """Judge a target. ``progress`` is called with the checks done and their number.

    Raises the exceptions of `Workers` when the target cannot be imported or hitproof itself is
    wrong, and `NothingSelected`.
    """
    if not run.wanted.selection.is_all:
        speaking = [entry for entry in run.entries if entry.is_judged_on(run.target.version)]
        every = tasks(run.profile, speaking)
        replays = histories(run.profile, speaking, HitGranularity.FINE)
        run.wanted.selection.check_any(every, replays)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_foresee, run)
        with opened(run) as sessions:
            return judged(sessions, run, progress)


def _foresee(run: Run) -> None:
    """Work out while the target is imported what will be asked, and is remembered.

    That is if the target behaves as its release.
    """
    histories(run.profile, (), HitGranularity.FINE)
    version = run.target.version
    as_released = {name: expected_value(each, version) for name, each in POLICIES.items()}
    costs(as_released | dict(run.policies))


@contextmanager
def opened(run: Run, around: Around | None = None) -> Iterator[Sessions]:
    """Workers for the target of a run; exceptions as for `check`, ``around`` as for `Session`."""
    limits = run.limits
    with Workers(run.target, limits, run.policies) as workers:
        start = lambda: Session(workers.start, limits.timeout, around)  # noqa: E731
        with closing(Sessions(limits.jobs, start)) as sessions:
            yield sessions


def judged(sessions: Sessions, run: Run, progress: Callable[[int, int], None]) -> Report:
    """Judge the target in the ``sessions`` that are open for it; otherwise as `check`."""
    plan = planned(run, sessions)
    return _judged(plan, _asked(plan, sessions, progress), sessions)


@dataclass(frozen=True)
class Plan:
    """What a target is asked.

    Attributes:
        run: what the run is about.
        entries: the known divergences that apply to the target.
        every: all checks of the run.
        todo: those that are wanted.
        own: all histories of the run.
        replays: those that are wanted, and those that are replayed besides.
        actual: the policies that the target shows, by name.
        detail: why these are not known.
    """

    run: Run
    entries: Sequence[Entry]
    every: Sequence[Task]
    todo: Sequence[Task]
    own: Sequence[Play]
    replays: Sequence[Play]
    actual: Mapping[str, str]
    detail: str

    @property
    def known(self) -> frozenset[Signature]:
        """The signatures of known divergences."""
        return frozenset(entry.signature for entry in self.entries)

    @property
    def record(self) -> Record | None:
        """The footprints on record, if they are of the run's profile."""
        record = self.run.record
        return record if record and self.run.profile in record.profiles else None


def planned(run: Run, sessions: Sessions) -> Plan:
    """The checks and histories of a run, which depend on the policies that the target shows."""
    version, selection = run.target.version, run.wanted.selection
    applicable = [entry for entry in run.entries if entry.applies_to(version)]
    fixed = (entry for entry in run.entries if entry.is_judged_on(version))
    speaking = list(dict.fromkeys([*applicable, *fixed, *run.cases]))
    every = tasks(run.profile, speaking)
    actual, detail = sessions.policies()
    granularity = {**actual, **run.policies}.get("hit_granularity", "")
    own = histories(run.profile, speaking, granularity, run.record)
    replays = list(dict.fromkeys([*run.also, *selection.histories(own)]))
    return Plan(run, applicable, every, selection.tasks(every), own, replays, actual, detail)


@dataclass(frozen=True)
class _Asked:
    """What the target answered: of checks, histories, reads and proofs, and whether it was all."""

    settled: Sequence[Outcome]
    played: Sequence[Played]
    reads: ReadsReport
    proofs: Sequence[Unbounded]
    ended: bool


def _asked(plan: Plan, sessions: Sessions, progress: Callable[[int, int], None]) -> _Asked:
    run, ends = plan.run, _Ends(plan)
    is_all = run.wanted.selection.is_all
    with ThreadPoolExecutor(1) as beside:
        traced = run.accepted_reads is not None and is_all
        reads = beside.submit(sessions.reads, run.accepted_reads or {}) if traced else None
        settled, played = sessions.settle(
            plan.todo,
            plan.replays,
            progress,
            run.keep_facts,
            first=run.wanted.first,
            ends=lambda task, outcome: ends.at(reached([task], [outcome], [])),
            ends_at=lambda played: ends.at(reached([], [], [played])),
        )
        read = ReadsReport() if reads is None else reads.result()
    proofs: list[Unbounded] = []
    if is_all and not ends.ended:
        proofs = sessions.unbounded(statements(run.profile), run.proved)
        run.proved.keep()
    return _Asked(settled, played, read, proofs, ends.ended)


def _judged(plan: Plan, asked: _Asked, sessions: Sessions) -> Report:
    """The report on the answers; the ``sessions`` show the findings."""
    run, known, selection = plan.run, plan.known, plan.run.wanted.selection
    report = Report(run.target, run.profile, policies_detail=plan.detail, reads=asked.reads)
    if not plan.detail:
        report.policies = held_against(run.target, plan.actual, run.policies)
    report.besides = frozenset(run.also).difference(plan.own)
    report.played = held_start_ups(asked.played, plan.record)
    report.unbounded = resting(unless_known(asked.proofs, {each.cause for each in plan.entries}))
    refuted = [each.evidence for each in report.unbounded if each.evidence is not None]
    answers = [*zip(plan.todo, asked.settled, strict=True), *map(_refuting, refuted)]
    todo, settled = [task for task, _ in answers], [outcome for _, outcome in answers]
    for task, outcome in answers:
        report.obligations += filter(selection.has_obligation, outcome.obligations)
        if run.keep_facts:
            report.facts[task] = outcome.facts
    check_agreement(report.unbounded, report.obligations)
    evidence = [(task, each) for task, outcome in answers for each in outcome.evidence]
    of_check = [each for each in report.played if each.play not in report.besides]
    report.reached = reached(todo, settled, of_check)
    shown = {each.signature for each in report.reached if selection.has(each.signature)}
    findings = sessions.findings(
        [each for _, each in evidence if each.signature in shown],
        [replace(each, signatures=_among(shown, each.signatures)) for each in report.played],
        frozenset() if run.shows_known else known,
    )
    grown = hold(report, run.record, plan.entries, evidence, sessions, run.remedy)
    unplayed = {each.play for each in report.unplayed}
    open_ = {(each.claim, each.configuration) for each in report.unsettled}
    unsettled = {
        *(e.signature for e in plan.entries if (e.signature.claim, e.configuration) in open_),
        *(
            signature
            for signature, play in of_entries(plan.entries, run.record)
            if play in unplayed
        ),
    }
    judgement = judge(findings, plan.entries, unsettled)
    new = sorted((*judgement.new, *grown), key=lambda found: found.signature.severity)
    report.judgement = replace(judgement, new=tuple(new))
    if not selection.is_all or asked.ended:
        report.judgement, others = selection.judgement(report.judgement)
        others += len({each.signature for each in report.reached} - shown - known)
        report.shrunk = ()  # what was not judged may diverge as it did
        checked = len(todo) - sum(outcome.skipped for outcome in settled)
        report.restricted = Restricted(
            selection,
            asked.ended,
            (checked, max(len(plan.every), len(todo))),
            (len(of_check), len(plan.own)),
            others,
        )
    return report


def _refuting(evidence: LookupEvidence) -> tuple[Task, Outcome]:
    """A counterexample to what is stated for all lengths, as what a check of its case finds."""
    signature, configuration = evidence.signature, evidence.configuration
    obligation = Obligation(
        signature.claim, configuration, Status.REFUTED, 0, 0, "", (signature,), runs=1
    )
    outcome = Outcome([obligation], evidence=[evidence], footprints={signature: Footprint.of(())})
    return Task(signature.claim, configuration), outcome


class _Ends:
    """Whether a run has come to its end with the first new finding, if that is wanted."""

    def __init__(self, plan: Plan) -> None:
        self._wanted, self._known, self._record = plan.run.wanted, plan.known, plan.record
        self.ended = False

    def at(self, found: Sequence[Reach]) -> bool:
        if not self._wanted.exit_first:
            return False
        found = [each for each in found if self._wanted.selection.has(each.signature)]
        grown = self._record is not None and outside(found, self._record, self._known)
        if grown or any(each.signature not in self._known for each in found):
            self.ended = True
        return self.ended


def _among(shown: Set[Signature], signatures: Sequence[Signature]) -> tuple[Signature, ...]:
    return tuple(signature for signature in signatures if signature in shown)


def recorded(run: Run, name: str, progress: Callable[[int, int], None]) -> tuple[Record, list[str]]:
    """The footprints of a target, by the checks and histories of `check`, as a record of that name.

    The entries are judged whatever releases they speak of. Why something could not be judged, so
    that it is not in the record, comes with it.
    """
    with opened(run) as sessions:
        plan = planned(replace(run, entries=(), cases=run.entries), sessions)
        settled, played = sessions.settle(plan.every, plan.own, progress)
    obligations = [each for outcome in settled for each in outcome.obligations]
    detail, profile = plan.detail, run.profile
    report = Report(run.target, profile, obligations, played=played, policies_detail=detail)
    found = Record.of(name, profile, reached(plan.every, settled, played), report.refused)
    return found, report.open_questions

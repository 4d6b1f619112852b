"""The gate: judges a target against the spec and says conforms, diverges or inconclusive."""

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.findings.footprints import Footprint
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.judge.policy_costs import costs
from hitproof.conformance.ledger.ledger import judge
from hitproof.conformance.ledger.records import Reach, Record, outside
from hitproof.spec.claims import Status
from hitproof.spec.releases.fine import HitGranularity
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate.growth import held_start_ups, hold, reached
from hitproof.vllm_integration.gate.obligations import (
    Obligation,
    Task,
    histories,
    of_entries,
    tasks,
)
from hitproof.vllm_integration.gate.policies import expected_value, held_against
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Restricted, Wanted
from hitproof.vllm_integration.gate.sessions import Around, Outcome, Session, Sessions
from hitproof.vllm_integration.gate.unbounded import (
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
    target, profile, entries, wanted = run.target, run.profile, run.entries, run.wanted
    record, keep_facts = run.record, run.keep_facts
    applicable = [entry for entry in entries if entry.applies_to(target.version)]
    known = {entry.signature for entry in applicable}
    fixed = (entry for entry in entries if entry.is_judged_on(target.version))
    speaking = list(dict.fromkeys([*applicable, *fixed, *run.cases]))
    selection = wanted.selection
    report = Report(target, profile)
    every = tasks(profile, speaking)
    todo = selection.tasks(every)
    actual, report.policies_detail = sessions.policies()
    if not report.policies_detail:
        report.policies = held_against(target, actual, run.policies)
    granularity = {**actual, **run.policies}.get("hit_granularity", "")
    own = histories(profile, speaking, granularity, record)
    replays = list(dict.fromkeys([*run.also, *selection.histories(own)]))
    report.besides = frozenset(run.also).difference(own)
    of_profile = record if record and profile in record.profiles else None
    ends = _Ends(wanted, known, of_profile)
    with ThreadPoolExecutor(1) as beside:
        traced = run.accepted_reads is not None and selection.is_all
        reads = traced and beside.submit(sessions.reads, run.accepted_reads or {})
        settled, report.played = sessions.settle(
            todo,
            replays,
            progress,
            keep_facts,
            first=wanted.first,
            ends=lambda task, outcome: ends.at(reached([task], [outcome], [])),
            ends_at=lambda played: ends.at(reached([], [], [played])),
        )
        if reads:
            report.reads = reads.result()
    if selection.is_all and not ends.ended:
        proofs = sessions.unbounded(statements(profile), run.proved)
        run.proved.keep()
        report.unbounded = resting(unless_known(proofs, {each.cause for each in applicable}))
        refuted = [each.evidence for each in report.unbounded if each.evidence is not None]
        for found in refuted:
            task, outcome = _refuting(found)
            todo, settled = [*todo, task], [*settled, outcome]
    report.played = held_start_ups(report.played, of_profile)
    for task, outcome in zip(todo, settled, strict=True):
        report.obligations += filter(selection.has_obligation, outcome.obligations)
        if keep_facts:
            report.facts[task] = outcome.facts
    check_agreement(report.unbounded, report.obligations)
    evidence = [
        (task, each)
        for task, outcome in zip(todo, settled, strict=True)
        for each in outcome.evidence
    ]
    of_check = [each for each in report.played if each.play not in report.besides]
    report.reached = reached(todo, settled, of_check)
    shown = {each.signature for each in report.reached if selection.has(each.signature)}
    unshown = frozenset() if run.shows_known else known
    findings = sessions.findings(
        [each for _, each in evidence if each.signature in shown],
        [replace(each, signatures=_among(shown, each.signatures)) for each in report.played],
        unshown,
    )
    grown = hold(report, record, applicable, evidence, sessions, run.remedy)
    unplayed = {each.play for each in report.unplayed}
    open_ = {(each.claim, each.configuration) for each in report.unsettled}
    unsettled = {
        *(e.signature for e in applicable if (e.signature.claim, e.configuration) in open_),
        *(signature for signature, play in of_entries(applicable, record) if play in unplayed),
    }
    judgement = judge(findings, applicable, unsettled)
    new = sorted((*judgement.new, *grown), key=lambda found: found.signature.severity)
    report.judgement = replace(judgement, new=tuple(new))
    if not selection.is_all or ends.ended:
        report.judgement, others = selection.judgement(report.judgement)
        others += len({each.signature for each in report.reached} - shown - known)
        report.shrunk = ()  # what was not judged may diverge as it did
        checked = len(todo) - sum(outcome.skipped for outcome in settled)
        report.restricted = Restricted(
            selection,
            ends.ended,
            (checked, max(len(every), len(todo))),
            (len(of_check), len(own)),
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

    def __init__(self, wanted: Wanted, known: Set[Signature], record: Record | None) -> None:
        self._wanted, self._known, self._record = wanted, known, record
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
    target, profile, entries = run.target, run.profile, run.entries
    todo = tasks(profile, entries)
    with opened(run) as sessions:
        actual, detail = sessions.policies()
        granularity = {**actual, **run.policies}.get("hit_granularity", "")
        replays = histories(profile, entries, granularity)
        settled, played = sessions.settle(todo, replays, progress)
    obligations = [each for outcome in settled for each in outcome.obligations]
    report = Report(target, profile, obligations, played=played, policies_detail=detail)
    found = Record.of(name, profile, reached(todo, settled, played), report.refused)
    return found, report.open_questions

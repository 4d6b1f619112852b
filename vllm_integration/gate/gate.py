"""The gate: judges a target against the spec and says conforms, diverges or inconclusive."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.findings.footprints import Footprint
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.judge.policy_costs import costs
from hitproof.conformance.ledger.ledger import Entry, judge
from hitproof.conformance.ledger.records import Reach, Record, outside
from hitproof.conformance.scope.profiles import Profile
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
from hitproof.vllm_integration.gate.recall import Recall, Recalling
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.selection import EVERYTHING, Restricted, Wanted
from hitproof.vllm_integration.gate.sessions import Outcome, Session, Sessions
from hitproof.vllm_integration.gate.store import Store
from hitproof.vllm_integration.gate.unbounded import check_agreement, statements
from hitproof.vllm_integration.sandbox.driver import Answers, Workers
from hitproof.vllm_integration.targets.target import Target


def check(
    target: Target,
    profile: Profile,
    entries: Sequence[Entry],
    *,
    python: str,
    timeout: float,
    memory: int,
    progress: Callable[[int, int], None],
    jobs: int = 1,
    policies: Mapping[str, str] | None = None,
    keep_facts: bool = False,
    also: Sequence[Play] = (),
    record: Record | None = None,
    remedy: str = "",
    accepted_reads: Mapping[str, str] | None = None,
    shows_known: bool = True,
    store: Store | None = None,
    wanted: Wanted = EVERYTHING,
) -> Report:
    """Judge ``target``. ``timeout`` (seconds) bounds each check, ``memory`` (bytes) each worker.

    ``jobs`` workers share the checks; the report is the same for any number of them.
    ``policies`` are values of policies to judge by, by name; the others are those that the target
    shows. ``keep_facts`` asks for what the target did, too; ``also`` has histories to be replayed
    besides. ``record`` has the footprints that known divergences are held against, and ``remedy``
    says how to make one where there is none. ``accepted_reads`` asks for what the target reads of
    its inputs, too, of which these are accepted unseen, for their reasons. Unless somebody is
    shown known divergences (``shows_known``), they stay as they were found, neither shrunk nor
    demonstrated. ``progress`` is called with the checks done and their number. What ``store`` has
    of unchanged code is not judged again. ``wanted`` may restrict what is judged. Raises the
    exceptions of `Workers` when the target cannot be imported or hitproof itself is wrong, and
    `NothingSelected`.
    """
    if not wanted.selection.is_all:
        speaking = [entry for entry in entries if entry.is_judged_on(target.version)]
        every = tasks(profile, speaking)
        wanted.selection.check_any(every, histories(profile, speaking, HitGranularity.FINE))
    recall = _recall(store, target, python, memory, policies)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_foresee, target, profile, policies or {})
        with opened(target, python, timeout, memory, jobs, policies, recall) as sessions:
            report = judged(
                sessions,
                target,
                profile,
                entries,
                progress,
                dict(policies or {}),
                keep_facts,
                also,
                record,
                remedy,
                accepted_reads,
                shows_known,
                wanted,
            )
    report.recall = recall
    return report


def _recall(
    store: Store | None,
    target: Target,
    python: str,
    memory: int,
    policies: Mapping[str, str] | None,
) -> Recall | None:
    return None if store is None else Recall(store, target, python, memory, policies or {})


def _foresee(target: Target, profile: Profile, chosen: Mapping[str, str]) -> None:
    """Work out while the target is imported what will be asked, and is remembered.

    That is if the target behaves as its release.
    """
    histories(profile, (), HitGranularity.FINE)
    as_released = {name: expected_value(each, target.version) for name, each in POLICIES.items()}
    costs(as_released | dict(chosen))


@contextmanager
def opened(
    target: Target,
    python: str,
    timeout: float,
    memory: int,
    jobs: int,
    policies: Mapping[str, str] | None = None,
    recall: Recall | None = None,
) -> Iterator[Sessions]:
    """Workers for ``target``; arguments and exceptions as for `check`.

    What ``recall`` has is not asked them again.
    """
    with Workers(target, python, memory, dict(policies or {})) as workers:

        def start() -> Answers:
            return workers.start() if recall is None else Recalling(workers, recall)

        try:
            with closing(Sessions(jobs, lambda: Session(start, timeout))) as sessions:
                yield sessions
        finally:
            if recall is not None:
                recall.keep(workers.imported)


def judged(
    sessions: Sessions,
    target: Target,
    profile: Profile,
    entries: Sequence[Entry],
    progress: Callable[[int, int], None],
    chosen: Mapping[str, str],
    keep_facts: bool,
    also: Sequence[Play],
    record: Record | None = None,
    remedy: str = "",
    accepted_reads: Mapping[str, str] | None = None,
    shows_known: bool = True,
    wanted: Wanted = EVERYTHING,
    cases: Sequence[Entry] = (),
) -> Report:
    """Judge ``target`` in the ``sessions`` that are open for it; arguments as for `check`.

    What ``cases`` are about is judged as well, and what diverges there is not known.
    """
    applicable = [entry for entry in entries if entry.applies_to(target.version)]
    known = {entry.signature for entry in applicable}
    fixed = (entry for entry in entries if entry.is_judged_on(target.version))
    speaking = list(dict.fromkeys([*applicable, *fixed, *cases]))
    selection = wanted.selection
    report = Report(target, profile)
    every = tasks(profile, speaking)
    todo = selection.tasks(every)
    actual, report.policies_detail = sessions.policies()
    if not report.policies_detail:
        report.policies = held_against(target, actual, chosen)
    granularity = {**actual, **chosen}.get("hit_granularity", "")
    own = histories(profile, speaking, granularity, record)
    replays = list(dict.fromkeys([*also, *selection.histories(own)]))
    report.besides = frozenset(also).difference(own)
    of_profile = record if record and profile in record.profiles else None
    ends = _Ends(wanted, known, of_profile)
    with ThreadPoolExecutor(1) as beside:
        traced = accepted_reads is not None and selection.is_all
        reads = traced and beside.submit(sessions.reads, accepted_reads or {})
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
        report.unbounded = sessions.unbounded(statements(profile))
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
    unshown = frozenset() if shows_known else known
    findings = sessions.findings(
        [each for _, each in evidence if each.signature in shown],
        [replace(each, signatures=_among(shown, each.signatures)) for each in report.played],
        unshown,
    )
    grown = hold(report, record, applicable, evidence, sessions, remedy)
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


def recorded(
    target: Target,
    profile: Profile,
    entries: Sequence[Entry],
    *,
    name: str,
    python: str,
    timeout: float,
    memory: int,
    progress: Callable[[int, int], None],
    jobs: int = 1,
    policies: Mapping[str, str] | None = None,
    store: Store | None = None,
) -> tuple[Record, list[str]]:
    """The footprints of ``target``, by the checks and histories of `check`; arguments as there.

    ``name`` is that of the record. ``entries`` are judged whatever releases they speak of. Why
    something could not be judged, so that it is not in the record, comes with it.
    """
    todo = tasks(profile, entries)
    recall = _recall(store, target, python, memory, policies)
    with opened(target, python, timeout, memory, jobs, policies, recall) as sessions:
        actual, detail = sessions.policies()
        granularity = {**actual, **(policies or {})}.get("hit_granularity", "")
        replays = histories(profile, entries, granularity)
        settled, played = sessions.settle(todo, replays, progress)
    obligations = [each for outcome in settled for each in outcome.obligations]
    report = Report(target, profile, obligations, played=played, policies_detail=detail)
    found = Record.of(name, profile, reached(todo, settled, played), report.refused)
    return found, report.open_questions

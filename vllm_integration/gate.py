"""The gate: judges a target against the spec and says conforms, diverges or inconclusive."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from conformance.behaviour import Fact
from conformance.checks import CHECKS, is_about
from conformance.configurations import Configuration, Profile, configurations
from conformance.demonstration import Demonstration
from conformance.findings import Evidence, Finding, Signature, finding, smallest
from conformance.layouts import Layout, layouts
from conformance.ledger import Entry, Judgement, judge
from spec.claims import CLAIMS, Status
from vllm_integration.driver import EnvironmentFailure, Worker, WorkerGone
from vllm_integration.policies import Standing, held_against
from vllm_integration.targets import Target


class Verdict(IntEnum):
    """The verdict; its value is the exit code."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INTERNAL = 4


@dataclass(frozen=True)
class Obligation:
    """One claim on one configuration, and how it ended.

    Attributes:
        claim: the claim.
        configuration: the configuration or layout, which holds the bound.
        status: proved up to the bound, refuted, or inconclusive.
        paths: runs of the target that were compared with the spec.
        states: cache states that those runs cover.
        detail: why it is inconclusive.
        signatures: what was found where it is refuted.
    """

    claim: str
    configuration: Configuration | Layout
    status: Status
    paths: int
    states: int
    detail: str
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True)
class Task:
    """One check on one configuration or layout; it settles every claim that shares the check."""

    claim: str
    configuration: Configuration | Layout

    @property
    def entry(self) -> tuple[str, str]:
        """The entry point that it runs."""
        return CHECKS[self.claim].__name__, self.configuration.kinds


@dataclass
class Report:
    """What `check` found.

    Attributes:
        target: the target.
        profile: how much was covered.
        obligations: every claim on every configuration.
        judgement: findings new and known, and stale ledger entries.
        policies: the policies, and what the target is judged by; empty if they are not known.
        policies_detail: why the policies are not known.
        facts: what the target did in each check, if that was asked for.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    profile: Profile
    obligations: list[Obligation] = field(default_factory=list)
    judgement: Judgement = field(default_factory=lambda: Judgement((), (), ()))
    policies: list[Standing] = field(default_factory=list)
    policies_detail: str = ""
    facts: dict[Task, list[Fact]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict: a divergence counts before what could not be judged."""
        if self.judgement.new or self.judgement.stale or self.policy_changes:
            return Verdict.DIVERGES
        judged = {o.claim for o in self.obligations if o.status is not Status.INCONCLUSIVE}
        if self.unsettled or judged != CLAIMS.keys() or self.policies_detail:
            return Verdict.INCONCLUSIVE
        return Verdict.CONFORMS

    @property
    def policy_changes(self) -> list[Standing]:
        """Where the target does not behave as its release does, and nobody asked for that.

        The checks judge by how the target behaves, so nothing else would tell.
        """
        return [each for each in self.policies if each.chosen is None and not each.agrees]

    @property
    def unsettled(self) -> list[Obligation]:
        """The obligations that could not be settled."""
        return [o for o in self.obligations if o.status is Status.INCONCLUSIVE]

    @property
    def num_configurations(self) -> int:
        """How many different configurations were judged."""
        return len({(o.configuration, o.configuration.model) for o in self.obligations})

    def tasks_total(self, count: Callable[[Obligation], int]) -> int:
        """Sum over the checks that were run; claims that share a check count once."""
        once = {(CHECKS[o.claim].__name__, o.configuration.describe()): o for o in self.obligations}
        return sum(count(obligation) for obligation in once.values())


def tasks(profile: Profile, entries: Sequence[Entry]) -> list[Task]:
    """What the gate runs: each check on each configuration, ledger configurations included."""
    representatives = list({check: claim for claim, check in CHECKS.items()}.values())
    judged: list[Configuration | Layout] = [*configurations(profile), *layouts(profile)]
    wanted = [Task(c, j) for j in judged for c in representatives if is_about(c, j)]
    shared = {CHECKS[claim]: claim for claim in representatives}
    wanted += [Task(shared[CHECKS[e.signature.claim]], e.configuration) for e in entries]
    return list(dict.fromkeys(wanted))


def check(
    target: Target,
    profile: Profile,
    entries: Sequence[Entry],
    *,
    python: str,
    timeout: float,
    memory: int,
    progress: Callable[[int, int], None],
    policies: Mapping[str, str] | None = None,
    keep_facts: bool = False,
) -> Report:
    """Judge ``target``. ``timeout`` (seconds) bounds each check, ``memory`` (bytes) the worker.

    ``policies`` are values of policies to judge by, by name; the others are those that the target
    shows. ``keep_facts`` asks for what the target did, too. ``progress`` is called with the checks
    done and their number. Raises the exceptions of
    `Worker` when the target cannot be imported or hitproof itself is wrong.
    """
    applicable = [entry for entry in entries if entry.applies_to(target.version)]
    chosen = dict(policies or {})
    session = _Session(target, python, timeout, memory, chosen)
    operation = "behave" if keep_facts else "check"
    report = Report(target, profile)
    try:
        actual, report.policies_detail = session.policies()
        if not report.policies_detail:
            report.policies = held_against(target, actual, chosen)
        todo = tasks(profile, applicable)
        for done, task in enumerate(todo):
            progress(done, len(todo))
            obligations, facts = session.run(operation, task)
            report.obligations += obligations
            if keep_facts:
                report.facts[task] = facts
        progress(len(todo), len(todo))
        findings = session.findings()
    finally:
        session.close()
    unsettled = {(o.claim, o.configuration) for o in report.unsettled}
    report.judgement = judge(findings, applicable, unsettled)
    return report


class _Session:
    """Runs tasks in a worker, replaces it when it dies, and gathers what diverged."""

    def __init__(
        self,
        target: Target,
        python: str,
        timeout: float,
        memory: int,
        policies: Mapping[str, str],
    ) -> None:
        self._start: Callable[[], Worker] = lambda: Worker(target, python, memory, policies)
        self._timeout = timeout
        self._worker: Worker | None = self._start()
        self._cannot_start = ""
        self._fatal: dict[tuple[str, str], str] = {}
        self._evidence: list[Evidence] = []

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def policies(self) -> tuple[dict[str, str], str]:
        """How the target behaves where releases differ, or why that cannot be found out."""
        try:
            answer = self._ask(op="policies")
        except WorkerGone as gone:
            return {}, f"the policies cannot be found out: {gone}"
        detail = str(answer["detail"])
        return answer["policies"], detail and f"the policies cannot be found out: {detail}"

    def run(self, operation: str, task: Task) -> tuple[list[Obligation], list[Fact]]:
        """The obligations that the task settles, or fails to, and the facts asked for."""
        known_fatal = self._fatal.get(task.entry)
        if known_fatal is not None:
            return _unsettled(task, f"not run, since on an earlier configuration {known_fatal}")
        try:
            answer = self._ask(
                op=operation, claim=task.claim, configuration=task.configuration.as_json()
            )
            facts = [Fact.from_json(raw) for raw in answer.get("facts", ())]
            evidence = [Evidence.from_json(raw) for raw in answer["evidence"]]
            obligations = [
                Obligation(
                    claim,
                    task.configuration,
                    Status(status),
                    int(answer["paths"]),
                    int(answer["states"]),
                    str(answer["detail"]),
                    tuple(e.signature for e in evidence if e.signature.claim == claim),
                )
                for claim, status in answer["statuses"].items()
            ]
        except WorkerGone as gone:
            check_name, kind = task.entry
            reason = f"{check_name.replace('_', ' ')} of {kind.replace('_', ' ')} failed: {gone}"
            self._fatal[task.entry] = reason
            return _unsettled(task, reason)
        self._evidence += evidence
        return obligations, facts

    def findings(self) -> list[Finding]:
        """The findings, shrunk, the most severe first."""
        found = []
        by_severity = sorted(smallest(self._evidence).items(), key=lambda pair: pair[0].severity)
        for (_, evidence), name in zip(by_severity, _names(by_severity), strict=True):
            small, source = evidence, ""
            try:
                answer = self._ask(op="shrink", evidence=evidence.as_json())
                small, source = Evidence.from_json(answer["evidence"]), str(answer["source"])
            except WorkerGone:
                pass  # shown as it was found, larger than need be
            shown = self._demonstration(small, name)
            if shown.reproduced is False and small != evidence:
                shown = self._demonstration(evidence, name)
            found.append(finding(small, source, shown))
        return found

    def _demonstration(self, evidence: Evidence, name: str) -> Demonstration:
        """The evidence on a whole manager."""
        try:
            answer = self._ask(op="reproduce", evidence=evidence.as_json(), name=name)
        except WorkerGone as gone:
            return Demonstration(name, detail=str(gone))
        return Demonstration(name, **{key: value for key, value in answer.items() if key != "ok"})

    def _ask(self, **message: Any) -> dict[str, Any]:
        if self._cannot_start:
            raise WorkerGone(self._cannot_start)
        try:
            if self._worker is None:
                self._worker = self._start()
        except EnvironmentFailure as failure:  # it could be imported before
            self._cannot_start = str(failure)
            raise WorkerGone(self._cannot_start) from failure
        try:
            return self._worker.ask(self._timeout, **message)
        except WorkerGone:
            self.close()
            raise


def _names(found: Iterable[tuple[Signature, Evidence]]) -> Iterator[str]:
    """A name for the test of each finding: its claim, numbered."""
    numbers: Counter[str] = Counter()
    for signature, _ in found:
        numbers[signature.claim] += 1
        yield f"{signature.claim}_{numbers[signature.claim]}"


def _unsettled(task: Task, reason: str) -> tuple[list[Obligation], list[Fact]]:
    claims: Iterable[str] = (c for c, run in CHECKS.items() if run is CHECKS[task.claim])
    return [
        Obligation(claim, task.configuration, Status.INCONCLUSIVE, 0, 0, reason) for claim in claims
    ], []

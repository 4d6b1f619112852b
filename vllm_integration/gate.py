"""The gate: judges a target against the spec and says conforms, diverges or inconclusive."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from conformance.behaviour import Fact
from conformance.checks import CHECKS
from conformance.configurations import Profile
from conformance.ledger import Entry, Judgement, judge
from conformance.plays import Play
from spec.claims import CLAIMS, Status
from vllm_integration.driver import Workers
from vllm_integration.obligations import Obligation, Played, Task, histories, tasks
from vllm_integration.policies import Standing, held_against
from vllm_integration.sessions import Session, Sessions
from vllm_integration.targets import Target

LEDGER = Path(__file__).with_name("ledger.toml")
"""The known divergences of vLLM."""


class Verdict(IntEnum):
    """The verdict; its value is the exit code."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INTERNAL = 4


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
        played: every history that was replayed on whole managers.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    profile: Profile
    obligations: list[Obligation] = field(default_factory=list)
    judgement: Judgement = field(default_factory=lambda: Judgement((), (), ()))
    policies: list[Standing] = field(default_factory=list)
    policies_detail: str = ""
    facts: dict[Task, list[Fact]] = field(default_factory=dict)
    played: list[Played] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict: a divergence counts before what could not be judged."""
        if self.judgement.new or self.judgement.stale or self.policy_changes:
            return Verdict.DIVERGES
        judged = {o.claim for o in self.obligations if o.status is not Status.INCONCLUSIVE}
        replayed = bool(self.played) and not self.unplayed
        if self.unsettled or judged != CLAIMS.keys() or self.policies_detail or not replayed:
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
    def unplayed(self) -> list[Played]:
        """The histories that could not be judged."""
        return [each for each in self.played if each.unsettled]

    @property
    def open_questions(self) -> list[str]:
        """Why not everything could be judged, each reason once."""
        unsettled = [obligation.detail for obligation in self.unsettled]
        unplayed = [each.unsettled for each in self.unplayed]
        return list(dict.fromkeys(filter(None, [self.policies_detail, *unsettled, *unplayed])))

    @property
    def num_configurations(self) -> int:
        """How many different configurations were judged."""
        return len({(o.configuration, o.configuration.model) for o in self.obligations})

    def tasks_total(self, count: Callable[[Obligation], int]) -> int:
        """Sum over the checks that were run; claims that share a check count once."""
        once = {(CHECKS[o.claim].__name__, o.configuration.describe()): o for o in self.obligations}
        return sum(count(obligation) for obligation in once.values())


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
) -> Report:
    """Judge ``target``. ``timeout`` (seconds) bounds each check, ``memory`` (bytes) each worker.

    ``jobs`` workers share the checks; the report is the same for any number of them.
    ``policies`` are values of policies to judge by, by name; the others are those that the target
    shows. ``keep_facts`` asks for what the target did, too; ``also`` has histories to be replayed
    besides. ``progress`` is called with the checks
    done and their number. Raises the exceptions of
    `Workers` when the target cannot be imported or hitproof itself is wrong.
    """
    applicable = [entry for entry in entries if entry.applies_to(target.version)]
    chosen = dict(policies or {})
    operation = "behave" if keep_facts else "check"
    report = Report(target, profile)
    todo = tasks(profile, applicable)
    with (
        Workers(target, python, memory, chosen) as workers,
        closing(Sessions(jobs, lambda: Session(workers.start, timeout))) as sessions,
    ):
        actual, report.policies_detail = sessions.policies()
        if not report.policies_detail:
            report.policies = held_against(target, actual, chosen)
        granularity = (actual | chosen).get("hit_granularity", "")
        replays = list(dict.fromkeys([*also, *histories(profile, applicable, granularity)]))
        settled, report.played = sessions.settle(operation, todo, replays, progress)
        for task, outcome in zip(todo, settled, strict=True):
            report.obligations += outcome.obligations
            if keep_facts:
                report.facts[task] = outcome.facts
        evidence = [each for outcome in settled for each in outcome.evidence]
        findings = sessions.findings(evidence, report.played)
    unplayed = {each.play for each in report.unplayed}
    unsettled = {
        *((o.claim, o.configuration) for o in report.unsettled),
        *((e.signature.claim, e.configuration) for e in applicable if e.configuration in unplayed),
    }
    report.judgement = judge(findings, applicable, unsettled)
    return report

"""What `check` found, and the verdict on it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.comparison.facts import Fact
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.conformance.ledger.records import Reach, Record, Shrunk
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.gate.branches import Share
from hitproof.vllm_integration.gate.obligations import Obligation, Played, Task
from hitproof.vllm_integration.gate.policies import Standing
from hitproof.vllm_integration.gate.reads import ReadsReport
from hitproof.vllm_integration.gate.selection import Restricted
from hitproof.vllm_integration.gate.unbounded import Unbounded
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class SinceThen:
    """What failed before, and what fails now, each in a line.

    Attributes:
        made: when the last check was, in seconds since 1970; None where nothing is kept of one.
        still: what fails now as it did.
        fixed: what was judged again everywhere, and is not found.
        new: what did not fail then.
        known: what has come into the ledger.
        unjudged: what was not judged everywhere where it was found.
    """

    made: float | None
    still: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def sorts(self) -> dict[str, tuple[str, ...]]:
        """The findings, by what has become of them."""
        return {
            "still failing": self.still,
            "fixed": self.fixed,
            "new": self.new,
            "in the ledger now": self.known,
            "not judged everywhere": self.unjudged,
        }

    def describe(self) -> str:
        """A description in one line."""
        if self.made is None:
            return "last failed: no failure of this target is kept, so nothing was tried first"
        always = "still failing", "fixed", "new"
        counted = (
            f"{len(findings)} {name}"
            for name, findings in self.sorts.items()
            if findings or name in always
        )
        return f"last failed, {datetime.fromtimestamp(self.made, UTC):%Y-%m-%d %H:%M} UTC: " + (
            ", ".join(counted)
        )

    def as_json(self) -> dict[str, Any]:
        """The same as JSON, with the time in ISO 8601."""
        made = None if self.made is None else datetime.fromtimestamp(self.made, UTC)
        findings = {name.replace(" ", "_"): list(each) for name, each in self.sorts.items()}
        return {"made": None if made is None else made.isoformat(timespec="seconds")} | findings


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
        reads: what the target reads of its inputs.
        unbounded: what is proved for all lengths; empty in a restricted run.
        facts: what the target did in each check, if that was asked for.
        played: every history that was replayed, on whole managers and schedulers.
        besides: those that `check` does not replay. What cannot be judged in them is left out.
        reached: how far each signature reaches in each place.
        record: the footprints that known divergences were compared with; None without any.
        shrunk: known divergences that do not reach as far as the record says.
        unrecorded: why known divergences could not be compared with a record; empty if they were.
        restricted: what was left out on purpose, if anything.
        since_then: what has become of earlier failures, if that was asked for.
        branches: what is on record of branches that run in code like the target's, if anything.
        seconds: how long it took to judge, filled in by the caller.
    """

    target: Target
    profile: Profile
    obligations: list[Obligation] = field(default_factory=list)
    judgement: Judgement = field(default_factory=lambda: Judgement((), (), ()))
    policies: list[Standing] = field(default_factory=list)
    policies_detail: str = ""
    reads: ReadsReport = field(default_factory=ReadsReport)
    unbounded: list[Unbounded] = field(default_factory=list)
    facts: dict[Task, list[Fact]] = field(default_factory=dict)
    played: list[Played] = field(default_factory=list)
    besides: frozenset[Play] = frozenset()
    reached: list[Reach] = field(default_factory=list)
    record: Record | None = None
    shrunk: tuple[Shrunk, ...] = ()
    unrecorded: str = ""
    restricted: Restricted | None = None
    since_then: SinceThen | None = None
    branches: Share | None = None
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict: a divergence counts before what could not be judged."""
        judged = self.judgement
        if judged.new or judged.stale or self.shrunk or self.policy_changes or self.disproved:
            return Verdict.DIVERGES
        unknown = self.unsettled or self.policies_detail or self.unrecorded or self.reads.detail
        if unknown or self.unplayed or not self._is_judged:
            return Verdict.INCONCLUSIVE
        return Verdict.CONFORMS

    @property
    def verdict_label(self) -> str:
        """The verdict as one word, which does not say that the target conforms where it may not."""
        whole = self.restricted is None or self.verdict is not Verdict.CONFORMS
        return self.verdict.label if whole else "restricted"

    @property
    def _is_judged(self) -> bool:
        """Whether all claims and some histories were judged; of a restricted run, anything."""
        settled = [o for o in self.obligations if o.status is not Status.INCONCLUSIVE]
        if self.restricted is not None:
            absent = all(o.status is Status.NOT_APPLICABLE for o in settled)
            return not absent if self.obligations else bool(self.played)
        return {o.claim for o in settled} == CLAIMS.keys() and bool(self.played)

    @property
    def idle(self) -> str:
        """Why a restricted run has judged nothing; empty where it has."""
        if self.restricted is None or self._is_judged or self.unsettled:
            return ""
        return "nothing was judged: the release predates what was asked for"

    @property
    def policy_changes(self) -> list[Standing]:
        """Where the target does not behave as its release does, without having been asked to.

        The checks judge by how the target behaves, so nothing else would show it. Where no check
        depends on a policy, nothing else shows that the target does not behave as requested.
        """
        return [each for each in self.policies if each.asked_for not in (None, each.actual)]

    @property
    def baseline(self) -> str:
        """What the findings are compared with, if that is not the target's own release."""
        record = self.record
        return "" if record is None or record.name == self.target.version else record.name

    def is_new(self, finding: Finding) -> bool:
        """Whether a finding is new against the baseline, too."""
        return self.record is None or not self.record.has(finding.signature)

    @property
    def disproved(self) -> list[Unbounded]:
        """The statements for all lengths that are refuted, other than by what is known."""
        known = {finding.signature for finding, _ in self.judgement.known}
        return [
            each
            for each in self.unbounded
            if each.status is Status.REFUTED
            and (each.outside or each.evidence is None or each.evidence.signature not in known)
        ]

    @property
    def conditions(self) -> dict[str, list[str]]:
        """The exact conditions of known divergences, by their causes, as far as they are proved."""
        conditions: dict[str, list[str]] = {}
        for each in self.unbounded:
            for cause, told in each.outside.items() if each.status is Status.PROVED else ():
                conditions.setdefault(cause, []).append(f"{each.describe()}: {told}")
        return conditions

    @property
    def unsettled(self) -> list[Obligation]:
        """The obligations that could not be settled."""
        return [o for o in self.obligations if o.status is Status.INCONCLUSIVE]

    @property
    def unplayed(self) -> list[Played]:
        """The histories that could not be judged."""
        return [each for each in self.played if each.unsettled and each.play not in self.besides]

    @property
    def of_managers(self) -> list[Played]:
        """The histories of whole managers."""
        return [e for e in self.played if not (e.play.of_scheduler or e.left_out)]

    @property
    def of_schedulers(self) -> list[Played]:
        """The histories of whole schedulers."""
        return [e for e in self.played if e.play.of_scheduler and not e.left_out]

    @property
    def left_out(self) -> Counter[str]:
        """How many histories of each origin ask for what the release does not have."""
        return Counter(str(each.play.origin) for each in self.played if each.left_out)

    @property
    def refused(self) -> list[str]:
        """The places of the histories whose deployments start-up refuses."""
        return [place_of(each.play) for each in self.played if each.refused]

    @property
    def open_questions(self) -> list[str]:
        """Why not everything could be judged, each reason once."""
        unsettled = [obligation.detail for obligation in self.unsettled]
        unplayed = [each.reason for each in self.unplayed]
        unknown = self.policies_detail, self.reads.detail, self.unrecorded, self.idle
        return list(dict.fromkeys(filter(None, [*unknown, *unsettled, *unplayed])))

    @property
    def num_configurations(self) -> int:
        """How many different configurations were judged."""
        return len({(o.configuration, o.configuration.model) for o in self.obligations})

    def tasks_total(self, count: Callable[[Obligation], int]) -> int:
        """Sum over the checks that were run; claims that share a check count once."""
        once = {(CHECKS[o.claim].__name__, o.configuration.describe()): o for o in self.obligations}
        return sum(count(obligation) for obligation in once.values())

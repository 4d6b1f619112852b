"""Two targets side by side: what changes for users from the base to the head."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.comparison.answers import LOOKUPS
from hitproof.conformance.comparison.behaviour import REGISTRATIONS
from hitproof.conformance.comparison.changes import Change, changes, unmatched
from hitproof.conformance.comparison.effects import HARMFUL, Effect
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.footprints import Footprint, Growth, Judged, growth
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.claims import Divergence, Status
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.equivalence import Shared, Versions, proved
from hitproof.vllm_integration.gate.obligations import Obligation
from hitproof.vllm_integration.gate.places import located
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.gate.side_by_side import (
    ON_ONE_ONLY,
    Both,
    HistoriesCompared,
    HistoryChange,
    compared,
)
from hitproof.vllm_integration.targets.changed import Hunk, changed_functions, hunks
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class ChangeGroup:
    """Changes of one effect on equal kinds of groups.

    Attributes:
        smallest: the smallest of them.
        configurations: in how many configurations and layouts there is one.
        models: the real models among them.
    """

    smallest: Change
    configurations: int
    models: tuple[str, ...]


@dataclass(frozen=True)
class ReachChange:
    """A fault of both that does not reach as far in the one as in the other.

    Attributes:
        signature: the fault.
        grown: configurations, layouts and histories in which more diverges in the head.
        shrunk: those in which less does.
        otherwise: those in which as much does, and the answers differ.
        judged: the smallest of them, of those that are harm if there are any.
        base, head: how many cases diverge there.
    """

    signature: Signature
    grown: int
    shrunk: int
    otherwise: int
    judged: Judged
    base: int
    head: int

    @property
    def harmful(self) -> bool:
        """Whether more diverges in the head, or answers differ: `check` would call that new."""
        return bool(self.grown or self.otherwise)


@dataclass
class Diff:
    """What `compare` found.

    Attributes:
        base, head: the reports of both.
        groups: what changes, the worst effect first.
        brought: faults of the head that the base does not have.
        gone: faults of the base that the head does not have, wherever the base has them.
        unjudged: faults of the base that the head does not show, though it was not judged wherever
            the base has them, with the reason.
        shared: faults of both.
        reaches: those of them that reach further, less far or elsewhere in the head.
        policies: name, value in the base and value in the head of each policy that differs.
        histories: what comparing the histories has shown.
        unsettled: obligations that could not be settled on one of the two, with the reason.
        became_unsettled: those of them, and histories, that the base settles and the head does not,
            each by what it is about, with the reason.
        one_sided: obligations on what only one of the two has, with the reason of the other.
        answers: answers of lookups that were compared, one for each cache state.
        registrations: runs of the producer that were compared.
        unmatched: runs and lookups that only one of the two was asked for, or answered.
        proved: obligations that are proved on both.
        covered: obligations that are refuted on one of the two or both; what the two do was
            compared for the runs and the cache states of few blocks that the checks go through.
        hunks: what the head changes of the source.
        versions: what is known of the functions that it changes, for all arguments.
        seconds: wall clock, filled in by the caller.
    """

    base: Report
    head: Report
    groups: list[ChangeGroup] = field(default_factory=list)
    brought: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)
    unjudged: list[tuple[Finding, str]] = field(default_factory=list)
    shared: list[Finding] = field(default_factory=list)
    reaches: list[ReachChange] = field(default_factory=list)
    policies: list[tuple[str, str, str]] = field(default_factory=list)
    histories: HistoriesCompared = field(default_factory=HistoriesCompared)
    unsettled: list[tuple[Obligation, str]] = field(default_factory=list)
    became_unsettled: list[tuple[str, str]] = field(default_factory=list)
    one_sided: list[tuple[Obligation, str]] = field(default_factory=list)
    answers: int = 0
    registrations: int = 0
    unmatched: int = 0
    proved: int = 0
    covered: int = 0
    hunks: Sequence[Hunk] = ()
    versions: Versions = field(default_factory=Versions)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Diverges if the head does harm; policies that change are reported and do not count."""
        harmful = any(group.smallest.effect in HARMFUL for group in self.groups)
        harmful |= any(each.harmful for each in self.reaches)
        if self.brought or harmful or any(change.harmful for change in self.histories.changes):
            return Verdict.DIVERGES
        if self.open_questions:
            return Verdict.INCONCLUSIVE
        return Verdict.CONFORMS

    @property
    def open_questions(self) -> list[str]:
        """Why not everything could be compared, each reason once."""
        unplayed = (each for side in (self.base, self.head) for each in side.unplayed)
        reasons = {reason for _, reason in self.unsettled}
        uncompared = set(self.histories.uncompared)
        if any(name == "hit_granularity" for name, *_ in self.policies):
            uncompared.discard(ON_ONE_ONLY)  # a change that is reported
        reasons |= {each.reason for each in unplayed} | uncompared
        if self.unmatched:
            reasons.add(f"{self.unmatched} runs and lookups were made on one of the two only")
        if not self.proved:
            reasons.add("no obligation is proved on both")
        if not self.histories.histories:
            reasons.add("no history was compared")
        return sorted(reasons)

    @property
    def changed(self) -> bool:
        """Whether anything changes."""
        in_histories = any(change.counts for change in self.histories.changes)
        differs = self.groups or in_histories or self.policies or self.one_sided
        reported = self.reaches or self.histories.unreported
        return bool(differs or reported or self.brought or self.gone or self.unjudged)

    def loses_hits(self, change: ChangeGroup | HistoryChange) -> bool:
        """Whether hits are lost where blocks are cached fewer, or others."""
        effect = change.smallest.effect if isinstance(change, ChangeGroup) else change.effect
        if effect not in (Effect.FEWER, Effect.OTHERS):
            return False
        lost = [group.smallest for group in self.groups if group.smallest.effect is Effect.LOST]
        if isinstance(change, ChangeGroup):
            return any(each.about[1:] == change.smallest.about[1:] for each in lost)
        return any(each.effect is Effect.LOST for each in self.histories.changes)


def compare(base: Target, run: Run, progress: Callable[[int, int], None]) -> Diff:
    """Judge both targets, at the same time, and compare what they do.

    The head is the target of the ``run``; each has half of the jobs. Both are judged in the cases
    of the run's entries that speak of both, as `check` does.
    """
    versions = base.version, run.target.version
    run = replace(
        run,
        entries=(),
        cases=[entry for entry in run.entries if all(map(entry.applies_to, versions))],
        keep_facts=True,
        limits=replace(run.limits, jobs=max(run.limits.jobs // 2, 1)),
    )
    runs = {"base": replace(run, target=base), "head": run}
    done = {"base": (0, 0), "head": (0, 0)}

    def judged(name: str, sessions: Sessions) -> Report:
        def report(count: int, total: int) -> None:
            done[name] = count, total
            progress(sum(n for n, _ in done.values()), sum(n for _, n in done.values()))

        return gate.judged(sessions, runs[name], report)

    shared, roots = Shared(), (base.root, run.target.root)
    with (
        gate.opened(runs["base"], shared.of_base) as of_base,
        gate.opened(runs["head"], shared.of_head) as of_head,
        ThreadPoolExecutor(2) as threads,
    ):

        def first() -> Report:
            try:
                return judged("base", of_base)
            finally:
                shared.end()

        def second() -> Report:
            if None not in roots:
                shared.versions = proved(of_head, changed_functions(*filter(None, roots)))
            return judged("head", of_head)

        reports = [threads.submit(first), threads.submit(second)]
        one, other = (each.result() for each in reports)
        diff = difference(one, other, Both(of_base, of_head))
    diff.versions = shared.versions
    return diff


def difference(base: Report, head: Report, both: Both | None = None) -> Diff:
    """Compare two reports that keep the facts. ``both`` are asked for examples."""
    diff = Diff(base, head)
    roots = base.target.root, head.target.root
    diff.hunks = () if None in roots else hunks(*filter(None, roots))
    diff.histories = compared(base.played, head.played, both)
    _compare_findings(diff)
    _compare_obligations(diff)
    _compare_unplayed(diff)
    diff.reaches = list(_reaches(base, head))
    diff.policies = [
        (one.policy.name, str(one.actual), str(other.actual))
        for one, other in zip(diff.base.policies, diff.head.policies, strict=False)
        if one.actual != other.actual
    ]
    found: list[Change] = []
    one_sided = {(o.claim, o.configuration) for o, _ in diff.one_sided}
    for task in dict.fromkeys((*base.facts, *head.facts)):
        before, after = base.facts.get(task, ()), head.facts.get(task, ())
        found += changes(task.configuration, before, after)
        diff.answers += sum(len(f.outcome) for f in before if f.what in LOOKUPS)
        diff.registrations += sum(f.what in REGISTRATIONS for f in before)
        if (task.claim, task.configuration) not in one_sided:
            diff.unmatched += unmatched(before, after)
    diff.groups = _grouped(found)
    return diff


def _compare_findings(diff: Diff) -> None:
    before, after = diff.base.judgement.new, diff.head.judgement.new
    old, new = ({finding.signature for finding in found} for found in (before, after))
    brought = [finding for finding in after if finding.signature not in old]
    diff.brought = [located(finding, diff.hunks) for finding in brought]
    gone = [finding for finding in before if finding.signature not in new]
    unjudged = _unjudged(diff.base, diff.head)
    for finding in gone:
        reasons = unjudged.get(finding.signature, [])
        if reasons:
            diff.unjudged.append((finding, "; ".join(dict.fromkeys(reasons))))
        else:
            diff.gone.append(finding)
    diff.shared = [finding for finding in after if finding.signature in old]


def _unjudged(base: Report, head: Report) -> dict[Signature, list[str]]:
    """Why the head was not judged where the base shows a signature, for each place and signature.

    Where only the head raises it does not get as far as the fault of the base.
    """
    found: dict[Signature, list[str]] = {}
    after = {(o.claim, o.configuration): o for o in head.obligations}
    raises = _raising(head) - _raising(base)
    for one in base.obligations:
        other = after.get((one.claim, one.configuration))
        reason = _why_unjudged(other, (CHECKS[one.claim], one.configuration) in raises)
        for signature in one.signatures if reason else ():
            found.setdefault(signature, []).append(reason)
    played = {each.play: each for each in head.played}
    for history in base.played:
        judged = played.get(history.play)
        if judged is None:
            reason = ON_ONE_ONLY
        elif _crashes(judged.signatures) and not _crashes(history.signatures):
            reason = _RAISES
        else:
            reason = judged.reason
        for signature in history.signatures if reason else ():
            found.setdefault(signature, []).append(reason)
    return found


_RAISES = "the head raises an exception there"


def _raising(report: Report) -> set[tuple[Any, Configuration | Layout]]:
    """The checks, with their configurations, in which the target raises."""
    return {
        (CHECKS[o.claim], o.configuration) for o in report.obligations if _crashes(o.signatures)
    }


def _crashes(signatures: Iterable[Signature]) -> bool:
    return any(each.divergence == Divergence.CRASH for each in signatures)


def _why_unjudged(obligation: Obligation | None, raises: bool) -> str:
    if obligation is None:
        return "the head was not asked"
    if obligation.status in (Status.INCONCLUSIVE, Status.NOT_APPLICABLE):
        return obligation.detail or f"the head is {obligation.status} there"
    return _RAISES if raises else ""


def _reaches(base: Report, head: Report) -> Iterator[ReachChange]:
    """The faults of both whose footprints differ where both were asked the same."""
    before, after = _footprints(base), _footprints(head)
    both = _asked(base).items() & _asked(head).items()
    alike = {judged for judged, _ in both}
    for signature in sorted(before.keys() & after.keys(), key=lambda each: each.severity):
        one, other = before[signature], after[signature]
        places = {}
        for judged in (*one, *other):
            how = growth(one.get(judged), other.get(judged))
            if how is not None and judged in alike:
                places[judged] = how
        if not places:
            continue
        numbers = Counter(places.values())
        grown = [j for j, how in places.items() if how in (Growth.MORE, Growth.ELSEWHERE)]
        harmful = [j for j, how in places.items() if how is not Growth.LESS]
        smallest = min(grown or harmful or places, key=_by_size)
        sizes = (fp.size if (fp := side.get(smallest)) else 0 for side in (one, other))
        less, otherwise = numbers[Growth.LESS], numbers[Growth.OTHERWISE]
        yield ReachChange(signature, len(grown), less, otherwise, smallest, *sizes)


def _by_size(judged: Judged) -> Any:
    """Configurations first, then layouts, then histories; the smallest first."""
    if isinstance(judged, Play):
        return 2, judged.origin, len(judged.text), judged.name
    return int(isinstance(judged, Layout)), judged


def _footprints(report: Report) -> dict[Signature, dict[Judged, Footprint]]:
    found: dict[Signature, dict[Judged, Footprint]] = {}
    for each in report.reached:
        found.setdefault(each.signature, {})[each.judged] = each.footprint
    return found


def _asked(report: Report) -> dict[Judged, str]:
    """On what the target was judged; of histories the form in which it played them."""
    asked: dict[Judged, str] = {each.configuration: "" for each in report.obligations}
    for each in report.played:
        run = each.run or each.schedule
        if run is not None and not each.unsettled:
            asked[each.play] = run.history
    return asked


def _compare_obligations(diff: Diff) -> None:
    before = {(o.claim, o.configuration): o for o in diff.base.obligations}
    after = {(o.claim, o.configuration): o for o in diff.head.obligations}
    for key in dict.fromkeys((*before, *after)):
        pair = [side[key] for side in (before, after) if key in side]
        statuses = {obligation.status for obligation in pair}
        if Status.INCONCLUSIVE in statuses:
            obligation = next(o for o in pair if o.status is Status.INCONCLUSIVE)
            diff.unsettled.append((obligation, obligation.detail))
            if len(pair) == 2 and pair[0].status in (Status.PROVED, Status.REFUTED):
                about = f"{pair[1].claim}, {pair[1].configuration.describe()}"
                diff.became_unsettled.append((about, pair[1].detail))
        elif Status.NOT_APPLICABLE in statuses and len(statuses) > 1:
            lacks = next(o for o in pair if o.status is Status.NOT_APPLICABLE)
            other = next(o for o in pair if o.status is not Status.NOT_APPLICABLE)
            diff.one_sided.append((other, lacks.detail))
        elif len(pair) == 1:
            diff.unsettled.append((pair[0], "only one of the two was asked"))
        elif statuses == {Status.PROVED}:
            diff.proved += 1
        elif Status.REFUTED in statuses:
            diff.covered += 1


def _compare_unplayed(diff: Diff) -> None:
    settled = {each.play for each in diff.base.played if not each.unsettled}
    diff.became_unsettled += [
        (each.play.describe(), each.reason) for each in diff.head.unplayed if each.play in settled
    ]


def _grouped(found: list[Change]) -> list[ChangeGroup]:
    order = list(Effect)
    together: dict[tuple[str, str, bool], list[Change]] = {}
    for change in found:
        together.setdefault(change.about, []).append(change)
    groups = [
        ChangeGroup(
            min(members, key=lambda change: change.size),
            len({(change.judged, change.judged.model) for change in members}),
            tuple(sorted({change.judged.model for change in members} - {""})),
        )
        for members in together.values()
    ]
    return sorted(groups, key=lambda g: (order.index(g.smallest.effect), g.smallest.size))

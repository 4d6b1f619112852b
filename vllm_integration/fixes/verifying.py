"""What a check says of the release with some fixes: what is gone, what is left, and what is new."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.footprints import name_of as name_of_signature
from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Entry, load
from hitproof.conformance.ledger.records import Record, choose, read
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.patches import RELEASE, Fix
from hitproof.vllm_integration.fixes.trees import apply, linked
from hitproof.vllm_integration.gate.gate import check
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import EVERYTHING, Selection, Wanted
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.reach import Reach, reach
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class Verified:
    """What a check says of the release with fixes applied.

    Attributes:
        fixes: the fixes.
        gone: entries of the ledger on their faults that do not reproduce.
        left: those that do.
        copies: those of a tier, which has a copy of the code of its own, of a fix that leaves tiers
            as they are.
        also: other entries that do not reproduce; the fixes remove them as well.
        remaining: how many other known divergences are found, and copies among these, by cause.
        grown: known divergences that reach further, as the fixes say of what they uncover.
        new: other findings that the release itself does not have.
        reach: what they change, and which functions are as they were with all that they call.
        detail: why not everything could be judged; empty if it could.
    """

    fixes: tuple[Fix, ...]
    gone: tuple[Entry, ...]
    left: tuple[Entry, ...]
    copies: tuple[Entry, ...]
    also: tuple[Entry, ...]
    remaining: Mapping[str, int]
    grown: tuple[Finding, ...]
    new: tuple[Finding, ...]
    reach: Reach | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        """The fixes by their numbers."""
        return name_of(self.fixes)

    @property
    def verdict(self) -> Verdict:
        """Conforms where all that the fixes are for is gone, and nothing is new."""
        if self.left or self.new:
            return Verdict.DIVERGES
        if self.detail or not self.gone:
            return Verdict.INCONCLUSIVE
        return Verdict.CONFORMS


def name_of(fixes: Sequence[Fix]) -> str:
    """Fixes by their numbers, or how many they are where they are many."""
    few = ", ".join(str(fix.number) for fix in fixes)
    return f"fix {few}" if len(fixes) == 1 else f"{count(len(fixes), 'fix', 'fixes')} ({few})"


def near(fixes: Sequence[Fix]) -> Wanted:
    """The configurations and histories with which the ledger shows the faults of the fixes.

    A check of these alone takes a tenth of the time; all claims are judged there.
    """
    return places([entry for fix in fixes for entry in fix.entries])


def places(entries: Iterable[Entry]) -> Wanted:
    """The configurations and histories of entries of the ledger."""
    found = dict.fromkeys(entry.configuration for entry in entries)
    names = (each.name if isinstance(each, Play) else each.describe() for each in found)
    return Wanted(Selection(configurations=tuple(names)))


def pairs(release: Path, fixes: Sequence[Fix]) -> list[tuple[Fix, Fix]]:
    """The fixes that change the same function of the ``release``, two by two."""
    changed = {fix.number: {*reach_of(release, (fix,)).changed} for fix in fixes}
    return [
        (one, other)
        for one, other in combinations(fixes, 2)
        if changed[one.number] & changed[other.number]
    ]


@cache
def reach_of(release: Path, fixes: tuple[Fix, ...]) -> Reach:
    """How far the changes of fixes to the ``release`` reach. Raises `FixError`."""
    with patched(release, fixes) as tree:
        return reach(release, tree, {path for fix in fixes for path in fix.paths})


@contextmanager
def patched(release: Path, fixes: Sequence[Fix]) -> Iterator[Path]:
    """A tree of the ``release`` with fixes applied, while it lasts. Raises `FixError`."""
    with tempfile.TemporaryDirectory(prefix="hitproof-fixes-") as place:
        tree = Path(place) / "tree"
        linked(release, tree, {path for fix in fixes for path in fix.paths})
        apply(tree, fixes)
        yield tree


def verify(
    release: Path,
    fixes: Sequence[Fix],
    profile: Profile,
    limits: Limits,
    progress: Callable[[int, int], None],
    wanted: Wanted = EVERYTHING,
) -> Verified:
    """Check the ``release``, whose root is given, with fixes applied to a copy.

    Exceptions as `gate.check`, and those of `trees.apply` and `LedgerError`.
    """
    with patched(release, fixes) as tree:
        run = Run(
            Target(f"{RELEASE} with {name_of(fixes)}", tree, RELEASE, inferred="its fixes"),
            profile,
            load(LEDGER),
            limits,
            record=_with_refusals(choose(read(LEDGER), RELEASE), fixes),
            shows_known=False,
            wanted=wanted,
        )
        report = check(run, progress)
    return replace(of_report(fixes, report), reach=reach_of(release, tuple(fixes)))


def _with_refusals(record: Record | None, fixes: Sequence[Fix]) -> Record | None:
    """The record, as if start-up had always refused what these fixes say that it refuses."""
    if record is None:
        return None
    entries = [entry for fix in fixes if fix.refuses for entry in fix.entries]
    reached = [record.footprints.get(name_of_signature(each.signature), {}) for each in entries]
    refused = {place_of(each.configuration) for each in entries}.union(*reached)
    return replace(record, refused=record.refused | refused)


def of_report(fixes: Sequence[Fix], report: Report) -> Verified:
    """What the report of a check says of the fixes that the target has."""
    causes = {fault.title for fix in fixes for fault in fix.faults}
    stale, known = report.judgement.stale, [entry for _, entry in report.judgement.known]
    left = [entry for entry in known if entry.cause in causes]
    remaining: dict[str, int] = {}
    copied = {
        fault.title
        for fix in fixes
        if not any(path.startswith(_TIERS) for path in fix.paths)
        for fault in fix.faults
    }
    copies = tuple(entry for entry in left if entry.cause in copied and _is_of_a_tier(entry))
    for entry in known:
        if entry.cause not in causes or entry in copies:
            remaining[entry.cause] = remaining.get(entry.cause, 0) + 1
    changed = [each.policy.name for each in report.policy_changes]
    refusals = [fix.refuses for fix in fixes if fix.refuses]
    unsettled = [each for each in report.open_questions if not any(r in each for r in refusals)]
    if report.restricted is not None:  # nothing is said of what does not reproduce
        stale = tuple(entry for fix in fixes for entry in fix.entries if entry not in known)
    return Verified(
        fixes=tuple(fixes),
        gone=tuple(entry for entry in stale if entry.cause in causes),
        left=tuple(entry for entry in left if entry not in copies),
        copies=copies,
        also=tuple(entry for entry in stale if entry.cause not in causes),
        remaining=remaining,
        grown=tuple(each for each in report.judgement.new if _is_said(each, fixes)),
        new=tuple(each for each in report.judgement.new if not _is_said(each, fixes)),
        detail="; ".join([*unsettled, *(f"policy {each} changes" for each in changed)]),
    )


_TIERS = "vllm/distributed/"
"""Where tiers are."""


def _is_of_a_tier(entry: Entry) -> bool:
    return entry.signature.claim.startswith("tier_")


def _is_said(finding: Finding, fixes: Sequence[Fix]) -> bool:
    """Whether it is a known divergence that has grown, and a fix says that it uncovers that."""
    grown = finding.signature
    return grown.code is Code.KNOWN_DIVERGENCE_GROWN and any(
        (str(known.defect), known.kind, known.eagle)
        == (dict(grown.defect.parameters)["of"], grown.kind, grown.eagle)
        for known in (entry.signature for fix in fixes for entry in fix.uncovered)
    )

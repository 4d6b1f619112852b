"""Findings at the line that decides: a changed one, where the target changes what they run."""

from collections.abc import Sequence
from dataclasses import replace

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.places import Location, Why
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.vllm_integration.targets.changed import Hunk


def judgement_located(judgement: Judgement, changed: Sequence[Hunk]) -> Judgement:
    """The judgement with each finding at its place; see `located`."""
    return replace(
        judgement,
        new=tuple(located(finding, changed) for finding in judgement.new),
        known=tuple((located(finding, changed), entry) for finding, entry in judgement.known),
    )


def located(finding: Finding, changed: Sequence[Hunk]) -> Finding:
    """The finding at the change that is responsible for it, if one of ``changed`` is."""
    where = _responsible(finding, changed) or finding.location
    return replace(finding, passed=replace(finding.passed, location=where))


def _responsible(finding: Finding, changed: Sequence[Hunk]) -> Location | None:
    """The change that the finding's smallest case runs, the closest to its answer.

    What the judged function runs comes before all else. There a line that is changed and run comes
    before a change of what is run around it, such as a line that is gone. What is judged as a
    whole, such as the block pool, has no smallest case that is run again: there the only change is
    responsible, of the file that is judged if there are more.
    """
    order = {place: number for number, place in enumerate(finding.passed.lines)}
    outside = len(order) - finding.passed.decisive
    found: list[tuple[bool, bool, int, int, Hunk]] = []
    for number, hunk in enumerate(changed):
        run = {line: n for (path, line), n in order.items() if path == hunk.path}
        changed_lines = [n for line, n in run.items() if hunk.has(line)]
        around = [n for line, n in run.items() if line in hunk.scope]
        if changed_lines or around:
            last = max(changed_lines or around)
            found.append((last >= outside, bool(changed_lines), last, -number, hunk))
    if not order:
        judged, _, _ = finding.source.rpartition(":")
        beside = [hunk for hunk in changed if hunk.path == judged] or changed
        found = [(False, False, 0, 0, hunk) for hunk in beside] if len(beside) == 1 else []
    if not found:
        return None
    *_, hunk = max(found, key=lambda each: each[:4])
    return Location(hunk.path, hunk.line, hunk.function, Why.CHANGED)

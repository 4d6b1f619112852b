"""Places of findings: the line that decides, a changed one where the target changes it."""

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
    """The change in the function that decides on the finding, or in what that function runs.

    A line that is changed and run comes before other changes of the deciding function, such as a
    line that is gone, and the last that is run before those before it. What else the finding's case
    runs does not decide. What is judged as a whole, such as the block pool, has no smallest case
    that is run again: there a change is responsible if it is the only one.
    """
    passed = finding.passed
    if not passed.lines:
        return _location(changed[0], Why.ONLY) if len(changed) == 1 else None
    decisive = passed.lines[len(passed.lines) - passed.decisive :]
    found: list[tuple[bool, int, int, Location]] = []
    for number, hunk in enumerate(changed):
        run = [n for n, (path, line) in enumerate(decisive) if path == hunk.path and hunk.has(line)]
        decides = _is_in(hunk, passed.location)
        if decides or run:
            why = Why.CHANGED if decides else Why.CALLED
            found.append((decides, max(run, default=-1), -number, _location(hunk, why)))
    return max(found, key=lambda each: each[:3])[-1] if found else None


def _is_in(hunk: Hunk, where: Location | None) -> bool:
    """Whether the function that has the location is changed, or one inside of it."""
    if where is None or hunk.path != where.path:
        return False
    return hunk.has(where.line) or f"{hunk.function}.".startswith(f"{where.function}.")


def _location(hunk: Hunk, why: Why) -> Location:
    return Location(hunk.path, hunk.line, hunk.function, why)

"""The page of 0.33.0 with its fixes: what each of them removes, and what stays open."""

from functools import cache

from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.conformance.ledger.ledger import CauseStatus
from hitproof.conformance.words import count
from hitproof.vllm_integration.fixes.fixes import RELEASE, all_fixes
from hitproof.vllm_integration.reports.survey import FIXED, grouped
from hitproof.vllm_integration.survey.faults import Fault, load
from hitproof.vllm_integration.survey.survey import Release, read, seen_in


@cache
def _releases() -> list[Release]:
    """The surveyed releases up to the one that the fixes are for."""
    releases = [*read()]
    return releases[: [each.version for each in releases].index(RELEASE) + 1]


def _linked(fault: Fault) -> str:
    return f"[{fault.number}. {fault.title}](faults.md#{fault.number})"


def table() -> str:
    """A Markdown table with a row for each fix, the most severe first."""
    fixes = sorted(all_fixes(), key=lambda fix: (SEVERITY.index(fix.classes[0]), fix.number))
    lines = ["| fault | class | change | codes that it removes |", "|---|---|---|---|"]
    for fix in fixes:
        cells = (
            "<br>".join(map(_linked, fix.faults)),
            ", ".join(fix.classes),
            fix.title.removeprefix("[BugFix] "),
            "<br>".join(f"`{code}`" for code in fix.codes),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def counted() -> str:
    """How many of the open faults have a fix."""
    fixes, faults = count(all_fixes(), "fix", "fixes"), count(_open(), "open fault")
    return f"{fixes} for {sum(len(fix.faults) for fix in all_fixes())} of the {faults}"


def remaining() -> str:
    """A Markdown list of the open faults without a fix, by their class."""
    fixed = {fault.number for fix in all_fixes() for fault in fix.faults}
    releases = _releases()
    seen = seen_in(releases, load())
    lines = []
    for fault in _open():
        if fault.number not in fixed:
            classes = {each.signature.divergence for each in seen[fault.number][RELEASE]}
            worst = [each for each in SEVERITY if each in classes]
            lines.append(f"- {_linked(fault)} ({', '.join(worst)})")
    return "\n".join(lines)


@cache
def _open() -> list[Fault]:
    """The faults that are open in the release, reached by a known configuration or not."""
    sections = grouped(_releases(), load())
    return [
        fault
        for title, group in sections.items()
        if not title.startswith(FIXED)
        for fault in group
        if fault.status is CauseStatus.FAULT
    ]

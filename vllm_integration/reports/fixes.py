"""Fixes as people and programs read them, and as an issue and a pull request of vLLM."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from hitproof.conformance.ledger.ledger import CauseStatus
from hitproof.conformance.picking import picked
from hitproof.vllm_integration.fixes.patches import RELEASE, UNFIXED, Fix
from hitproof.vllm_integration.fixes.suites import Suites
from hitproof.vllm_integration.fixes.verifying import Verified
from hitproof.vllm_integration.reports.printing import document, print_lines, print_text, table
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.faults import Fault
from hitproof.vllm_integration.survey.survey import Release, seen_in, span
from hitproof.vllm_integration.targets.reach import CORE


def print_list(fixes: Sequence[Fix], console: Console) -> None:
    """A table with a row for each fix."""
    columns = "fault", "class", "what the patch does", "codes", "lines"
    rows = []
    for fix in fixes:
        removed, added = lines_of(fix)
        numbers = ", ".join(str(fault.number) for fault in fix.faults)
        lines = f"+{added} -{removed}"
        rows.append((numbers, ", ".join(fix.classes), fix.title, len(fix.codes), lines))
    print_lines(console, table(columns, rows))


def lines_of(fix: Fix) -> tuple[int, int]:
    """How many lines the patch removes and adds."""
    body = [line for line in fix.patch.splitlines() if not line.startswith(("---", "+++"))]
    return sum(line.startswith("-") for line in body), sum(line.startswith("+") for line in body)


def fix_json(fix: Fix) -> dict[str, Any]:
    """A fix as JSON."""
    return {
        "release": RELEASE,
        "faults": [picked(each, "number", "title") for each in fix.faults],
        **picked(fix, "classes", "codes", "title", "change", "cost", "pinned", files="paths"),
        "test": {"file": fix.test_file, "text": fix.test},
        "patch": fix.patch,
    }


def shown(fix: Fix) -> str:
    """All that there is to say of a fix, with the patch last."""
    return document("fix.txt", fix=fix)


def upstream(fix: Fix, releases: Sequence[Release]) -> str:
    """A fix as an issue and pull request of vLLM, in Markdown."""
    seen = seen_in(releases, fix.faults)
    affected = {each.number: span(seen[each.number], releases) for each in fix.faults}
    return document("fix.md", fix=fix, affected=affected, release=RELEASE)


def verified_json(verified: Iterable[Verified]) -> list[dict[str, Any]]:
    """What was verified as JSON."""
    return [
        {
            "fixes": [fix.number for fix in each.fixes],
            "gone": [entry.signature.as_json() for entry in each.gone],
            "left": [entry.signature.as_json() for entry in each.left],
            "copies": [entry.signature.as_json() for entry in each.copies],
            "also_gone": [entry.signature.as_json() for entry in each.also],
            **picked(each, "remaining", "grown", "new", "detail", verdict="verdict.label"),
            "changed": [":".join(key) for key in each.reach.changed] if each.reach else [],
            "callers": [*each.reach.callers] if each.reach else [],
            "same": each.reach.same if each.reach else 0,
        }
        for each in verified
    ]


def print_verified(each: Verified, console: Console) -> None:
    """A line for what was verified, and one for each thing that is not as it should be."""
    print_text(console, "fixes.txt", each=each, core=CORE)


def print_suites(found: Suites, console: Console) -> None:
    """What became of vLLM's own tests: what fails with the fixes, and which fix says why."""
    print_text(console, "fixes.txt", each=None, found=found, release=RELEASE)


def print_remaining(each: Verified, console: Console) -> None:
    """What the release still has with these fixes, and why it stays."""
    left = [fault for fault in faults.load() if fault.title in each.remaining]
    statuses = CauseStatus.CHOICE, CauseStatus.LIMIT, CauseStatus.FAULT
    by_status = {status: [f for f in left if f.status is status] for status in statuses}
    shown = {"each": each, "release": RELEASE, "by_status": by_status, "why": _why}
    print_text(console, "remaining.txt", **shown)


def _why(fault: Fault, each: Verified) -> str:
    """Why a fault is still there."""
    if fault.evidence:
        said = fault.evidence[0]
        return f" ({said.file}:{said.line} of {said.release})"
    if fault in (known for fix in each.fixes for known in fix.faults):
        return ": the fix does not touch the copy of the code in a tier"
    why = UNFIXED.get(fault.number)
    return f": {why}" if why else ""

"""Fixes as people and programs read them, and as an issue and a pull request of vLLM."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hitproof.conformance.ledger.ledger import CauseStatus
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.fixes.fixes import RELEASE, UNFIXED, Fix
from hitproof.vllm_integration.fixes.suites import Suites
from hitproof.vllm_integration.fixes.verifying import Verified
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.faults import Fault
from hitproof.vllm_integration.survey.survey import Release, seen_in, span
from hitproof.vllm_integration.targets.reach import CORE, Reach
from hitproof.vllm_integration.templates import templates

_MOST_NAMES = 12
"""Up to how many changed definitions are named."""


def print_list(fixes: Sequence[Fix], console: Console) -> None:
    """A table with a row for each fix."""
    table = Table("fault", "class", "what the patch does", "codes", "lines")
    for fix in fixes:
        removed, added = lines_of(fix)
        cells = ", ".join(fix.classes), fix.title, str(len(fix.codes)), f"+{added} -{removed}"
        numbers = ", ".join(str(fault.number) for fault in fix.faults)
        table.add_row(numbers, *map(escape, cells))
    console.print(table)


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
    told = [
        ("Class", ", ".join(fix.classes)),
        *(
            part
            for fault in fix.faults
            for part in (
                ("Fault", f"{fault.number}. {fault.title}"),
                ("Wrong", fault.reason),
                ("Impact", fault.impact),
                ("Trigger", fault.trigger),
                ("Reached by", fault.reach),
            )
        ),
        ("Change", fix.change),
        ("Cost", fix.cost),
        ("Pinned by", fix.pinned),
        ("Removes", "\n".join(fix.codes)),
    ]
    lines = [f"{name}: {_indented(text)}" for name, text in told if text]
    test = f"Test, for {fix.test_file}:\n\n{fix.test.strip()}\n"
    return "\n".join([fix.title, "", *lines, "", test, f"Patch:\n\n{fix.patch}"])


def _indented(text: str) -> str:
    return textwrap.indent(text.strip(), "  ").strip()


def upstream(fix: Fix, releases: Sequence[Release]) -> str:
    """A fix as an issue and pull request of vLLM, in Markdown."""
    seen = seen_in(releases, fix.faults)
    template = templates(Path(__file__).parent / "templates").get_template("fix.md")
    return template.render(fix=fix, affected=lambda each: span(seen[each.number], releases))


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
    found = f"{len(each.gone)} of {count(len(each.gone) + len(each.left), 'entry', 'entries')} gone"
    also = f", and {len(each.also)} of other faults" if each.also else ""
    told = f"{each.name}: {each.verdict.label}; {found}{also}, {len(each.new)} new"
    console.print(escape(told))
    for name, entries in (("left", each.left), ("in a tier's copy", each.copies)):
        for entry in entries:
            console.print(escape(f"  {name}: {entry.signature.headline}"))
    for name, findings in (("uncovered", each.grown), ("new", each.new)):
        for finding in findings:
            text = f"  {name}: {finding.signature.divergence}: {finding.signature.headline}"
            console.print(escape(text))
    if each.reach:
        console.print(escape(f"  {_reached(each.reach)}"))
    if each.detail:
        console.print(escape(f"  not judged: {each.detail}"))


def _reached(reach: Reach) -> str:
    """What a patch changes, in a line."""
    changed = [name for _, name in reach.changed]
    told = count(changed, "definition") if len(changed) > _MOST_NAMES else ", ".join(changed)
    callers = count(reach.callers, "function")
    same = f"{callers} may call it, {reach.same} of {CORE} are the same with all that they call"
    return f"changes {told}; {same}"


def print_suites(found: Suites, console: Console) -> None:
    """What became of vLLM's own tests: what fails with the fixes, and which fix says why."""
    passing = count(found.passed, f"test of vLLM {RELEASE} passes", f"tests of vLLM {RELEASE} pass")
    console.print(f"{passing} without the fixes; {len(found.failing)} of them fail with them")
    for name, fixes in found.failing.items():
        why = (
            f"it expects the fault of {', '.join(map(str, fixes))}" if fixes else "no fix says why"
        )
        console.print(escape(f"  {name}: {why}"), soft_wrap=True)
    for name, number in found.unmet.items():
        console.print(escape(f"  {name}: passes, and fix {number} says that it expects the fault"))


def print_remaining(each: Verified, console: Console) -> None:
    """What the release still has with these fixes, and why it stays."""
    total = sum(each.remaining.values())
    known = count(total, "known divergence"), count(each.remaining, "cause")
    told = f"with {each.name}, {RELEASE} still has {' of '.join(known)}"
    console.print(escape(told), soft_wrap=True)
    left = [fault for fault in faults.load() if fault.title in each.remaining]
    for status in (CauseStatus.CHOICE, CauseStatus.LIMIT, CauseStatus.FAULT):
        of_status = [fault for fault in left if fault.status is status]
        console.print(f"{status.counted(of_status)}:")
        for fault in of_status:
            number, why = each.remaining[fault.title], escape(_why(fault, each))
            told = f"  {number:>3} {fault.number}. {escape(fault.title)}{why}"
            console.print(told, soft_wrap=True)


def _why(fault: Fault, each: Verified) -> str:
    """Why a fault is still there."""
    if fault.evidence:
        said = fault.evidence[0]
        return f" ({said.file}:{said.line} of {said.release})"
    if fault in (known for fix in each.fixes for known in fix.faults):
        return ": the fix does not touch the copy of the code in a tier"
    why = UNFIXED.get(fault.number)
    return f": {why}" if why else ""

"""What `hitproof diff` says, as people, as programs and as pull requests read it."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.comparison.changes import HARMFUL
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff
from hitproof.vllm_integration.reports.text import print_finding
from hitproof.vllm_integration.verdict import Verdict

_MOST_REASONS = 5
_MOST_CASES = 4


def diff_json(diff: Diff) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "verdict": diff.verdict.label,
        "exit_code": int(diff.verdict),
        "base": diff.base.target.as_json(),
        "head": diff.head.target.as_json(),
        "profile": str(diff.head.profile),
        "seconds": round(diff.seconds, 1),
        "changed": diff.changed,
        "summary": summary(diff),
        "changes": [
            {
                "effect": str(group.smallest.effect),
                "harmful": group.smallest.effect in HARMFUL,
                "kinds": group.smallest.judged.kinds,
                "configurations": group.configurations,
                "models": list(group.models),
                "given": list(group.smallest.given),
                "base": group.smallest.base,
                "head": group.smallest.head,
                "configuration": group.smallest.judged.as_json(),
            }
            for group in diff.groups
        ],
        "findings_brought": [finding.as_json() for finding in diff.brought],
        "findings_gone": [finding.as_json() for finding in diff.gone],
        "findings_of_both": [finding.as_json() for finding in diff.shared],
        "policies": [
            {"name": name, "base": base, "head": head} for name, base, head in diff.policies
        ],
        "coverage": {"proved_on_both": diff.proved, "compared": diff.covered},
        "unsettled": sorted({reason for _, reason in diff.unsettled}),
    }


def summary(diff: Diff) -> str:
    """One sentence."""
    base, head = diff.base.target.label, diff.head.target.label
    whole = (
        f"{count(diff.proved, 'obligation')} proved on both, so both behave alike there; "
        f"{diff.covered} refuted on one or both, and compared run by run for requests of few blocks"
    )
    if diff.unsettled:
        return (
            f"{count(diff.unsettled, 'obligation')} could not be settled on {base} or {head}; of "
            f"the others {whole}"
        )
    if not diff.changed:
        return f"no behavioural change from {base} to {head}: {whole}"
    harm = "the head is worse" if diff.verdict is Verdict.DIVERGES else "the head is not worse"
    return f"behaviour changes from {base} to {head}, and {harm}: {whole}"


def as_sentence(diff: Diff) -> str:
    """The summary with a capital letter; the names of targets keep theirs."""
    said = summary(diff)
    return said[0].upper() + said[1:]


def print_diff(diff: Diff, console: Console, verbose: bool) -> None:
    """The comparison for people: the worst first."""
    for number, group in enumerate(diff.groups):
        style = "bold red" if group.smallest.effect in HARMFUL else "bold green"
        console.print(f"[{style}]{group.smallest.effect}[/]: {escape(about(group))}")
        if verbose or number < _MOST_CASES:
            for line in witness(group):
                console.print(f"  {escape(line)}", highlight=False)
            console.print()
    for number, finding in enumerate(diff.brought):
        if verbose or number == 0:
            console.print("[bold red]a fault that the head introduces[/]", highlight=False)
            print_finding(finding, console)
        else:
            console.print(
                f"also introduced: {finding.signature.divergence}: {finding.signature.headline}",
                highlight=False,
                markup=False,
            )
    for name, base, head in diff.policies:
        console.print(f"policy {name}: {base} -> {head}", highlight=False, markup=False)
    for title, findings in (
        ("faults of the base that are fixed", diff.gone),
        ("faults of both", diff.shared),
    ):
        if findings:
            hint = "" if verbose else "; --verbose shows them"
            console.print(f"{title}: {len(findings)}{hint}", highlight=False)
        for finding in findings if verbose else ():
            print_finding(finding, console)
    reasons = sorted({reason for _, reason in diff.unsettled})
    for reason in reasons if verbose else reasons[:_MOST_REASONS]:
        console.print(f"[bold yellow]inconclusive[/]: {escape(reason)}", highlight=False)
    console.print(f"{summary(diff)}; {diff.seconds:.1f} s", highlight=False, markup=False)


def markdown(diff: Diff) -> str:
    """The comparison as a comment on a pull request."""
    base, head = diff.base.target.label, diff.head.target.label
    lines = [f"### Prefix cache: `{base}` → `{head}`", "", as_sentence(diff) + ".", ""]
    if diff.groups:
        lines += ["| effect | where | models | smallest case | base | head |", "|" + "---|" * 6]
        lines += [_row(group) for group in diff.groups]
        lines.append("")
    if diff.policies:
        lines += ["| policy | base | head |", "|---|---|---|"]
        lines += [f"| {name} | {one} | {other} |" for name, one, other in diff.policies]
        lines.append("")
    for title, findings in (
        ("Faults that the head introduces", diff.brought),
        ("Faults of the base that are fixed", diff.gone),
        ("Faults of both", diff.shared),
    ):
        if findings:
            lines += [f"<details><summary>{title}: {len(findings)}</summary>", ""]
            lines += [
                f"- **{f.signature.divergence}**, {f.signature.headline}: {f.sentence}"
                for f in findings
            ]
            lines += ["", "</details>", ""]
    for reason in sorted({reason for _, reason in diff.unsettled}):
        lines.append(f"- inconclusive: {reason}")
    return "\n".join(lines).rstrip() + "\n"


def about(group: ChangeGroup) -> str:
    """Where a change is: kinds, how many configurations, models."""
    judged = group.smallest.judged
    eagle = " with a block to drop" if judged.drops_block else ""
    configurations = count(group.configurations, "configuration")
    where = f"{judged.kinds.replace('_', ' ')}{eagle}, {configurations}"
    return f"{where}; {', '.join(group.models)}" if group.models else where


def witness(group: ChangeGroup) -> Iterator[str]:
    """The smallest case of a change, and what both targets do there."""
    for number, fact in enumerate(group.smallest.given):
        yield f"{'' if number else 'given :':<7} {fact}"
    yield f"base  : {group.smallest.base}"
    yield f"head  : {group.smallest.head}"


def _row(group: ChangeGroup) -> str:
    smallest = group.smallest
    where, _, models = about(group).partition("; ")
    given = "<br>".join(smallest.given)
    cells = (str(smallest.effect), where, models, given, smallest.base, smallest.head)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

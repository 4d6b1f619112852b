"""What `hitproof diff` says, as people, as programs and as pull requests read it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.comparison.changes import Change
from hitproof.conformance.comparison.effects import HARMFUL, Effect
from hitproof.conformance.comparison.records import Observable
from hitproof.conformance.words import count, in_tokens
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff, ReachChange
from hitproof.vllm_integration.gate.side_by_side import Example, HistoryChange
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
        ]
        + [
            {
                "effect": str(change.effect),
                "harmful": change.harmful,
                "observable": str(change.observable),
                "histories": change.histories,
                "histories_first": change.first,
                "tokens": change.tokens,
                **_example_json(change.example),
            }
            for change in diff.histories.changes
        ],
        "footprints": [
            {
                "signature": each.signature.as_json(),
                "harmful": bool(each.grown),
                "grown": each.grown,
                "shrunk": each.shrunk,
                "otherwise": each.otherwise,
                "configuration": each.judged.as_json(),
                "base": each.base,
                "head": each.head,
            }
            for each in diff.reaches
        ],
        "findings_brought": [finding.as_json() for finding in diff.brought],
        "findings_gone": [finding.as_json() for finding in diff.gone],
        "findings_of_both": [finding.as_json() for finding in diff.shared],
        "policies": [
            {"name": name, "base": base, "head": head} for name, base, head in diff.policies
        ],
        "coverage": {
            "proved_on_both": diff.proved,
            "compared": diff.covered,
            "lookup_answers": diff.answers,
            "registrations": diff.registrations,
            "not_answered_by_both": diff.unmatched,
            "on_one_only": one_sided(diff),
            "histories": diff.histories.histories,
            "steps": diff.histories.steps,
            "lookups_in_histories": diff.histories.lookups,
            "histories_adapted_to_both": diff.histories.adapted,
            "histories_of_which_the_end_is_not_compared": diff.histories.stopped,
            "histories_not_compared": dict(diff.histories.uncompared),
            "observables": [str(each) for each in Observable if each is not Observable.CALLS],
        },
        "unsettled": diff.open_questions,
    }


def _example_json(example: Example | None) -> dict[str, Any]:
    if example is None:
        return {"kinds": "", "configurations": 0, "models": [], "given": [], "base": "", "head": ""}
    return {
        "kinds": example.kinds,
        "configurations": 0,
        "models": [],
        "given": list(example.given),
        "base": example.base,
        "head": example.head,
        "configuration": example.play.as_json(),
    }


def summary(diff: Diff) -> str:
    """One sentence."""
    base, head = diff.base.target.label, diff.head.target.label
    whole = covered(diff)
    if diff.verdict is Verdict.INCONCLUSIVE:
        return (
            f"not everything could be compared between {base} and {head}: "
            f"{count(diff.open_questions, 'open question')}; what could be: {whole}"
        )
    if not diff.changed:
        return f"no behavioural change from {base} to {head}: {whole}"
    harm = "the head is worse" if diff.verdict is Verdict.DIVERGES else "the head is not worse"
    return f"behaviour changes from {base} to {head}, and {harm}: {whole}"


def covered(diff: Diff) -> str:
    """What was compared, and in short what was not."""
    histories = diff.histories
    alike = "each by its own policies" if diff.policies else "so both behave alike there"
    words = (
        f"{count(diff.proved, 'obligation')} proved on both, {alike}; {diff.covered} refuted on "
        f"one or both; {count(diff.answers, 'answer')} of lookups and "
        f"{count(diff.registrations, 'registration')} compared, those of larger requests in a "
        f"sample of cache states; {count(histories.histories, 'history', 'histories')} of "
        f"{count(histories.steps, 'step')} with {count(histories.lookups, 'lookup')} compared in "
        f"all that can be observed"
    )
    if histories.adapted:
        words += f", {histories.adapted} of them in a form that both releases can play"
    if histories.stopped:
        words += (
            f", {histories.stopped} of them up to where the schedulers of the two releases ask for "
            f"different things"
        )
    words += "; not compared: what is beyond these bounds, the values of block hashes, running time"
    if left := sum(histories.uncompared.values()):
        words += f", and {count(left, 'history', 'histories')}"
    return words


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
    for change in filter(lambda change: change.counts, diff.histories.changes):
        style = "bold red" if change.harmful else "bold green"
        console.print(f"[{style}]{change.effect}[/]: {escape(about_histories(change, diff))}")
        if change.example:
            for line in case(change.example):
                console.print(f"  {escape(line)}", highlight=False)
            console.print()
    if line := consequences(diff):
        console.print(escape(line), highlight=False)
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
    for each in diff.reaches:
        style = "bold red" if each.grown else "bold green"
        console.print(f"[{style}]{reach(each)}[/]: {escape(each.signature.headline)}")
        console.print(f"  {escape(_where(each))}", highlight=False)
    for name, base, head in diff.policies:
        console.print(f"policy {name}: {base} -> {head}", highlight=False, markup=False)
    for line in one_sided(diff):
        console.print(line, highlight=False, markup=False)
    for title, findings in (
        ("faults of the base that are fixed", diff.gone),
        ("faults of both", diff.shared),
    ):
        if findings:
            hint = "" if verbose else "; --verbose shows them"
            console.print(f"{title}: {len(findings)}{hint}", highlight=False)
        for finding in findings if verbose else ():
            print_finding(finding, console)
    reasons = diff.open_questions
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
    if any(change.counts for change in diff.histories.changes):
        lines += ["| in histories | how many | smallest case | base | head |", "|" + "---|" * 5]
        lines += [_history_row(each, diff) for each in diff.histories.changes if each.counts]
        lines.append("")
    if line := consequences(diff):
        lines += [f"{line}.", ""]
    if diff.policies:
        lines += ["| policy | base | head |", "|---|---|---|"]
        lines += [f"| {name} | {one} | {other} |" for name, one, other in diff.policies]
        lines.append("")
    lines += [
        f"- {reach(each)}: {each.signature.headline}; {_where(each)}" for each in diff.reaches
    ]
    lines += [f"- {line}" for line in one_sided(diff)]
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
    for reason in diff.open_questions:
        lines.append(f"- inconclusive: {reason}")
    return "\n".join(lines).rstrip() + "\n"


def about(group: ChangeGroup) -> str:
    """Where a change is: kinds, how many configurations, models."""
    judged = group.smallest.judged
    eagle = " with a block to drop" if judged.drops_block else ""
    configurations = count(group.configurations, "configuration")
    where = f"{judged.kinds.replace('_', ' ')}{eagle}, {configurations}"
    return f"{where}; {', '.join(group.models)}" if group.models else where


def about_histories(change: HistoryChange, diff: Diff) -> str:
    """In how many histories a change shows."""
    words = f"in {change.histories} of {count(diff.histories.histories, 'history', 'histories')}"
    if change.effect in (Effect.ORDER_COSTS, Effect.ORDER_PAYS):
        return f"{words}, {in_tokens(abs(change.tokens))} in all"
    if change.first == change.histories:
        return words
    if not change.first:
        return f"{words}, after other changes"
    return f"{words}, in {change.first} of them before anything else"


def reach(change: ReachChange) -> str:
    """How far a fault of both reaches in the head."""
    numbers = {
        "more diverges": change.grown,
        "less diverges": change.shrunk,
        "answers differ": change.otherwise,
    }
    ways = (f"{way} in {count(n, 'configuration')}" for way, n in numbers.items() if n)
    return f"{change.signature.divergence} of both, {', '.join(ways)}"


def _where(change: ReachChange) -> str:
    return (
        f"{change.judged.describe()}: {count(change.base, 'diverging case')} in the base, "
        f"{change.head} in the head"
    )


def one_sided(diff: Diff) -> list[str]:
    """What only one of the two has, and how many obligations are about it."""
    reasons = Counter(reason for _, reason in diff.one_sided)
    unreported = [f"only one of the two reports {each}" for each in diff.histories.unreported]
    return unreported + [
        f"{count(number, 'obligation')} on what only one of the two has: {reason}"
        for reason, number in reasons.items()
    ]


def consequences(diff: Diff) -> str:
    """What changes in histories only after, or together with, something else; "" for nothing."""
    changed = [
        f"{change.effect} in {count(change.histories, 'history', 'histories')}"
        for change in diff.histories.changes
        if not change.counts
    ]
    return f"in consequence: {', '.join(changed)}" if changed else ""


def case(example: Example | Change) -> Iterator[str]:
    """An example, and what both targets do there."""
    for number, fact in enumerate(example.given):
        yield f"{'' if number else 'given :':<7} {fact}"
    yield f"base  : {example.base}"
    yield f"head  : {example.head}"


def witness(group: ChangeGroup) -> Iterator[str]:
    """The smallest case of a change, and what both targets do there."""
    return case(group.smallest)


def _history_row(change: HistoryChange, diff: Diff) -> str:
    example = change.example
    shown = ("<br>".join(example.given), example.base, example.head) if example else ("", "", "")
    return _cells(str(change.effect), about_histories(change, diff), *shown)


def _row(group: ChangeGroup) -> str:
    smallest = group.smallest
    where, _, models = about(group).partition("; ")
    given = "<br>".join(smallest.given)
    return _cells(str(smallest.effect), where, models, given, smallest.base, smallest.head)


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

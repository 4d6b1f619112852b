"""What `hitproof diff` says, as people, as programs and as pull requests read it."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from rich.console import Console

from hitproof.conformance.comparison.changes import Change
from hitproof.conformance.comparison.effects import GAINS, HARMFUL, Effect
from hitproof.conformance.comparison.records import Decision, Observable
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff
from hitproof.vllm_integration.gate.side_by_side import Example, HistoryChange
from hitproof.vllm_integration.reports.causes import causes
from hitproof.vllm_integration.reports.check import cause_json
from hitproof.vllm_integration.reports.markdown import escaped, table
from hitproof.vllm_integration.reports.printing import document, print_text, sentence

_MOST_CASES = 4


def summary(diff: Diff) -> str:
    """One sentence."""
    return sentence("summary", diff)


def verdict_line(diff: Diff) -> str:
    """The verdict, and what it is for."""
    harm = [
        *(group.smallest.effect for group in diff.groups if is_harm(group, diff)),
        *(change.effect for change in diff.histories.changes if is_harm(change, diff)),
    ]
    brought = causes(diff.brought, diff.head.target.version)
    effects = [str(effect) for effect in sorted(set(harm), key=list(Effect).index)]
    return sentence("compared", diff, brought, effects)


def is_harm(change: ChangeGroup | HistoryChange, diff: Diff) -> bool:
    """Whether a change counts against the head, or loses the hits that do."""
    harmful = (
        change.smallest.effect in HARMFUL if isinstance(change, ChangeGroup) else change.harmful
    )
    return harmful or diff.loses_hits(change)


def style(change: ChangeGroup | HistoryChange, diff: Diff) -> str:
    """How the effect of a change is set off: harm in red, a gain in green, else neither."""
    effect = change.smallest.effect if isinstance(change, ChangeGroup) else change.effect
    return "bold red" if is_harm(change, diff) else "bold green" if effect in GAINS else "bold"


def as_sentence(diff: Diff) -> str:
    """The summary with a capital letter; the names of targets keep theirs."""
    said = summary(diff)
    return said[0].upper() + said[1:]


def told(diff: Diff) -> dict[str, Any]:
    """All that text, Markdown and pages say of a comparison, by the names that templates use."""
    reasons_of_head = {reason for _, reason in diff.became_unsettled}
    return {
        **{each: partial(sentence, each) for each in ("about", "reach", "where")},
        **{each.__name__: each(diff) for each in (became_unsettled, one_sided)},
        "about_histories": partial(_about_histories, diff),
        "case": case,
        "is_harm": is_harm,
        "consequences": sentence("consequences", diff.histories.changes),
        **{each.__name__: each(diff) for each in (summary, verdict_line)},
        "brought": causes(diff.brought, diff.head.target.version),
        "diff": diff,
        "colour": style,
        "reasons": [each for each in diff.open_questions if each not in reasons_of_head],
        "sentence": as_sentence(diff),
    }


def print_diff(diff: Diff, console: Console, verbose: bool) -> None:
    """The comparison for people."""
    print_text(console, "diff.txt", **told(diff), verbose=verbose, most=_MOST_CASES)


def markdown(diff: Diff) -> str:
    """The comparison as a comment on a pull request."""
    columns = "effect", "where", "models", "smallest case", "base", "head"
    changes = [_history_row(each, diff) for each in diff.histories.changes if each.counts]
    tables = (
        (columns, [*map(_row, diff.groups)]),
        (("in histories", "how many", *columns[3:]), changes),
    )
    return document("diff.md", **told(diff), tables=tables, table=table).rstrip() + "\n"


def one_sided(diff: Diff) -> list[str]:
    """What only one of the two has, and how many obligations are about it."""
    reasons = Counter(reason for _, reason in diff.one_sided)
    unreported = [f"only one of the two reports {each}" for each in diff.histories.unreported]
    return unreported + [
        f"{count(number, 'obligation')} on what only one of the two has: {reason}"
        for reason, number in reasons.items()
    ]


def became_unsettled(diff: Diff) -> list[str]:
    """All that the base settles and the head does not, and the faults that may be hidden there."""
    together: dict[str, list[str]] = {}
    for about, reason in diff.became_unsettled:
        together.setdefault(reason, []).append(about)
    lines = [
        f"became inconclusive ({len(them)}): {reason}: {'; '.join(them)}"
        for reason, them in together.items()
    ]
    return lines + [
        f"not gone, since the head is not judged there: {finding.signature.divergence}: "
        f"{finding.signature.headline}: {reason}"
        for finding, reason in diff.unjudged
    ]


def _about_histories(diff: Diff, change: HistoryChange) -> str:
    return sentence("about_histories", change, diff.histories)


def case(example: Example | Change) -> Iterator[str]:
    """An example, and what both targets do there."""
    for number, fact in enumerate(example.given):
        yield f"{'' if number else 'given :':<7} {fact}"
    yield f"base  : {example.base}"
    yield f"head  : {example.head}"


def _history_row(change: HistoryChange, diff: Diff) -> list[str]:
    example = change.example
    shown = ("<br>".join(example.given), example.base, example.head) if example else ("", "", "")
    return escaped((str(change.effect), _about_histories(diff, change), *shown))


def _row(group: ChangeGroup) -> list[str]:
    smallest = group.smallest
    where, _, models = sentence("about", group).partition("; ")
    given = "<br>".join(smallest.given)
    return escaped((str(smallest.effect), where, models, given, smallest.base, smallest.head))


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
            picked(group.smallest, "effect", "given", "base", "head", configuration="judged")
            | picked(group, "configurations", "models", kinds="smallest.judged.kinds")
            | {"harmful": is_harm(group, diff)}
            for group in diff.groups
        ]
        + [
            picked(change, "effect", "observable", "histories", "tokens", histories_first="first")
            | {"harmful": is_harm(change, diff), **_example_json(change.example)}
            for change in diff.histories.changes
        ],
        "footprints": [picked(each, *_REACH, configuration="judged") for each in diff.reaches],
        "causes": [cause_json(each) for each in causes(diff.brought, diff.head.target.version)],
        "findings_not_judged": [
            finding.as_json() | {"reason": reason} for finding, reason in diff.unjudged
        ],
        "became_inconclusive": [
            {"about": about, "reason": reason} for about, reason in diff.became_unsettled
        ],
        "policies": [
            {"name": name, "base": base, "head": head} for name, base, head in diff.policies
        ],
        "coverage": {
            **picked(diff, "registrations", **_COMPARED),
            **picked(diff.histories, "histories", "steps", "scheduler_steps", **_PLAYED),
            "on_one_only": one_sided(diff),
            "observables": [
                *(str(each) for each in Observable if each is not Observable.CALLS),
                *map(str, Decision),
            ],
        },
    } | picked(
        diff,
        findings_brought="brought",
        findings_gone="gone",
        findings_of_both="shared",
        equivalence="versions",
        unsettled="open_questions",
    )


_REACH = "signature", "harmful", "grown", "shrunk", "otherwise", "base", "head"
_COMPARED = {
    "proved_on_both": "proved",
    "compared": "covered",
    "lookup_answers": "answers",
    "not_answered_by_both": "unmatched",
}
_PLAYED = {
    "scheduler_histories": "schedulers",
    "lookups_in_histories": "lookups",
    "histories_adapted_to_both": "adapted",
    "histories_of_which_the_end_is_not_compared": "stopped",
    "histories_not_compared": "uncompared",
}


def _example_json(example: Example | None) -> dict[str, Any]:
    none: dict[str, Any] = {"configurations": 0, "models": []}
    if example is None:
        return none | {"kinds": "", "given": [], "base": "", "head": ""}
    return none | picked(example, "kinds", "given", "base", "head", configuration="play")

"""What a comparison holds against the head, each problem with its place."""

from collections.abc import Iterable
from dataclasses import replace

from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.reports.causes import causes
from hitproof.vllm_integration.reports.ci.problems import WORSE, Problem, of_cause
from hitproof.vllm_integration.reports.diff import (
    case,
    is_harm,
)
from hitproof.vllm_integration.reports.printing import readable, sentence


def diff_problems(diff: Diff) -> tuple[list[Problem], list[str]]:
    """What does harm, faults that the head introduces first; and the other effects, a line each.

    Where one change of the source, or one fault that the head introduces, is all there is, it is
    one problem.
    """
    problems = [*map(of_cause, causes(diff.brought, diff.head.target.version))]
    harms, others = _effects(diff)
    one_change = not problems and len(diff.hunks) == 1
    if one_change:
        (hunk,) = diff.hunks
        harms = [replace(harm, path=hunk.path, line=hunk.line) for harm in harms]
    if harms and (one_change or len(problems) == 1):
        first, *consequences = *problems, *harms
        also = "".join(f"\nalso: {each.title}" for each in consequences)
        return [replace(first, text=first.text + also)], others
    return problems + harms, others


def _effects(diff: Diff) -> tuple[list[Problem], list[str]]:
    """The effects that do harm, and the others as lines."""
    harms: list[Problem] = []
    others: list[str] = []

    def add(harmful: bool, title: str, text: Iterable[str]) -> None:
        if harmful:
            told = readable("\n".join(text))
            harms.append(Problem(WORSE, None, readable(title), told, identity=title))
        else:
            others.append(title)

    for group in diff.groups:
        add(
            is_harm(group, diff),
            f"{group.smallest.effect}: {sentence('about', group)}",
            case(group.smallest),
        )
    for change in filter(lambda change: change.counts, diff.histories.changes):
        title = f"{change.effect}: {sentence('about_histories', change, diff.histories)}"
        add(is_harm(change, diff), title, case(change.example) if change.example else [title])
    for each in diff.reaches:
        add(each.harmful, f"{sentence('reach', each)}: {each.signature.headline}", ())
    return harms, others

"""Explanations as people and as programs read them."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.console import Console

from hitproof.conformance.explain.explanation import Explained, Explanation
from hitproof.conformance.explain.reasons import Reason, in_ranges, in_words
from hitproof.conformance.explain.story import Story
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.strip_svg import svg
from hitproof.conformance.findings.strips import LABEL_COLUMNS, LEGEND, Figure, Strip
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.reports.printing import print_text, styled, whole, width, wrapped

_INDENT = 2
_MOST_CELLS = 240


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation of a hit as JSON; runs of blocks as first and last."""
    question, (cap, horizon) = explanation.question, explanation.reach
    return {
        "description": explanation.layout.describe(),
        **picked(question, "retention", lookahead_horizon="horizon"),
        "cap_tokens": cap,
        "horizon_tokens": horizon,
        **picked(explanation, "layout", alignment="layout.alignment", **_ANSWERS),
        "missing_for_longer_hits": [
            picked(miss, "block", hit="length", groups="group_ids") for miss in explanation.misses
        ],
        "answer": answer(explanation),
        "reasons": _reasons_json(explanation.reasons),
        "groups": [_group_json(explained) for explained in explanation.groups],
    }


_ANSWERS = {
    "longest_hit_of_a_resend": "resend",
    "longest_hit_of_an_extension": "extension",
    "hit": "length",
    "served": "is_served",
    "longest_hit_of_what_is_cached": "longest",
}


def _group_json(explained: Explained) -> dict[str, Any]:
    looked_up = explained.looked_up
    return {
        **picked(looked_up, groups="group_ids", kind="group.kind", block_size="group.block_size"),
        **picked(looked_up.shape, "segment", "tail", "lookahead"),
        "num_blocks": explained.num_blocks,
        "required": in_ranges(explained.required),
        "registered": in_ranges(explained.registered),
        "cached": None if explained.cached is None else in_ranges(explained.cached),
        "reasons": _reasons_json(explained.reasons),
    }


def _reasons_json(reasons: tuple[Reason, ...]) -> list[dict[str, str]]:
    return [picked(reason, "text", "claim") for reason in reasons]


def answer(explanation: Explanation) -> str:
    """Which blocks the hit needs, in one sentence."""
    if not explanation.length:
        return "there is no hit"
    needs = "; ".join(
        f"{name(explained)}: {in_words(explained.required)}" for explained in explanation.groups
    )
    return f"a hit of {count(explanation.length, 'token')} needs {needs}"


def name(explained: Explained) -> str:
    """The groups of one strip."""
    return named(explained.looked_up.group_ids)


def named(ids: Sequence[int]) -> str:
    """Groups by their numbers."""
    return f"group{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The explanation of a hit for people."""
    room = width(console) - _INDENT - LABEL_COLUMNS - 1
    print_text(
        console,
        "explain.txt",
        explanation=explanation,
        layout=explanation.layout,
        answer=answer(explanation),
        legend=LEGEND,
        most_cells=lambda each: max(room // Strip.columns(each.num_blocks - 1), 1),
        name=name,
        named=named,
        told=lambda reasons: "\n".join(_cited(reason, console) for reason in reasons),
        what_is_cut=what_is_cut,
    )


def what_is_cut(explained: Explained, shown: range) -> str:
    """Which blocks a strip leaves out, and whether the hit needs some of them."""
    hidden = [b for b in range(explained.num_blocks) if b not in shown]
    if not hidden:
        return ""
    needed = [b for b in hidden if b in explained.required]
    also = f"; of them the hit needs {in_words(needed)}" if needed else "; the hit needs none"
    return f"not drawn: {in_words(hidden)}{also}"


def _cited(reason: Reason, console: Console) -> str:
    """A reason, with the claim set off."""
    lines = "\n".join(_wrapped(f"{reason.text} [{reason.claim}]", console))
    lines = re.sub(r"\[\w+\]$", lambda found: styled("dim", found[0]), lines)
    return "\n".join(map(whole, lines.split("\n")))


def _wrapped(text: str, console: Console) -> list[str]:
    """The lines of a sentence, the first one a little further out."""
    indent = " " * _INDENT
    return wrapped(console, f"{indent}{text}", 2 * indent, 2 * _INDENT + 1)


def explanation_svg(explanation: Explanation) -> str:
    """The strips of an explanation as one SVG document."""
    figures = []
    for explained in explanation.groups:
        if not explained.num_blocks:
            continue
        shown = explained.cut(_MOST_CELLS)
        group = explained.looked_up.group
        window = "" if group.window is None else f", window {group.window}"
        chunk = "" if group.chunk is None else f", chunk {group.chunk}"
        cut = what_is_cut(explained, shown)
        figures.append(
            Figure(
                f"{name(explained)}: {group.kind.replace('_', ' ')}, block size "
                f"{group.block_size}{window}{chunk}{f' ({cut})' if cut else ''}",
                explained.strip(shown),
            )
        )
    return svg(answer(explanation), explanation.layout.describe(), figures)


def story_json(story: Story) -> dict[str, Any]:
    """The story of a finding as JSON."""
    return {
        **picked(story.finding, "claim", "sentence", **{"class": "divergence"}),
        "cites": sort_of(story.finding.claim),
        "steps": [
            {"title": chapter.title, "reasons": _reasons_json(chapter.reasons)}
            for chapter in story.chapters
        ],
        **picked(story.finding, "strip", "trace"),
    }


def print_story(story: Story, console: Console) -> None:
    """The story of a finding for people."""
    wrapped = partial(_wrapped, console=console)
    print_text(console, "story.txt", story=story, found=story.finding, wrapped=wrapped)

"""Explanations as people and as programs read them."""

import textwrap
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from hitproof.conformance.explain.explanation import Explained, Explanation
from hitproof.conformance.explain.reasons import Reason, in_ranges, in_words
from hitproof.conformance.explain.story import Story
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.strip_svg import svg
from hitproof.conformance.findings.strips import LABEL_COLUMNS, LEGEND, Figure, Strip
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.reports.lines import print_whole
from hitproof.vllm_integration.reports.traces import print_trace

_PIPE_WIDTH = 100
_INDENT = 2
_MOST_MISSES = 5
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
    ids = explained.looked_up.group_ids
    return f"group{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The explanation of a hit for people."""
    layout = explanation.layout
    _line(f"{layout.describe()}; a prompt of {count(layout.num_tokens, 'token')}", console)
    _print_reasons(explanation.reasons, console)
    for explained in explanation.groups:
        group = explained.looked_up.group
        console.print()
        console.print(
            f"[bold]{name(explained)}[/]: {group.kind.replace('_', ' ')}, "
            f"block size {group.block_size}"
        )
        _print_strip(explained, console)
        _print_reasons(explained.reasons, console)
    console.print()
    _line(LEGEND, console)
    _print_cached(explanation, console)
    console.print(f"[bold]{escape(answer(explanation))}[/]")


def _print_strip(explained: Explained, console: Console) -> None:
    if not explained.num_blocks:
        _line(f"{' ' * _INDENT}the prompt fills no block of the group", console)
        return
    room = _width(console) - _INDENT - LABEL_COLUMNS - 1
    shown = explained.cut(max(room // Strip.columns(explained.num_blocks - 1), 1))
    for line in explained.strip(shown).draw().splitlines():
        print_whole(f"{' ' * _INDENT}{line}", console)
    if cut := what_is_cut(explained, shown):
        _line(f"{' ' * _INDENT}({cut})", console)


def what_is_cut(explained: Explained, shown: range) -> str:
    """Which blocks a strip leaves out, and whether the hit needs some of them."""
    hidden = [b for b in range(explained.num_blocks) if b not in shown]
    if not hidden:
        return ""
    needed = [b for b in hidden if b in explained.required]
    also = f"; of them the hit needs {in_words(needed)}" if needed else "; the hit needs none"
    return f"not drawn: {in_words(hidden)}{also}"


def _print_cached(explanation: Explanation, console: Console) -> None:
    if explanation.longest is None:
        return
    if explanation.question.hit is not None:
        verdict = "is" if explanation.is_served else "is not"
        _line(
            f"a hit of {count(explanation.length, 'token')} {verdict} valid for what is cached",
            console,
        )
    _line(f"longest valid hit of what is cached: {count(explanation.longest, 'token')}", console)
    for miss in explanation.misses[:_MOST_MISSES]:
        whose = (
            f"group{'s' if len(miss.group_ids) > 1 else ''} {', '.join(map(str, miss.group_ids))}"
        )
        _line(f"  not {miss.length}: block {miss.block} of {whose} is not cached", console)
    if (more := len(explanation.misses) - _MOST_MISSES) and more > 0:
        _line(f"  and {more} longer ones", console)


def _print_reasons(reasons: tuple[Reason, ...], console: Console) -> None:
    for reason in reasons:
        said = Text("\n".join(_wrapped(f"{reason.text} [{reason.claim}]", console)))
        said.highlight_regex(r"\[\w+\]$", "dim")
        console.print(said, no_wrap=True, crop=False)


def _wrapped(text: str, console: Console) -> list[str]:
    """The lines of a sentence, the first one a little further out."""
    indent = " " * _INDENT
    return textwrap.wrap(
        text,
        max(_width(console) - 1, 2 * _INDENT + 1),
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width(console: Console) -> int:
    return console.width if console.is_terminal else _PIPE_WIDTH


def _line(text: str, console: Console) -> None:
    console.print(text, markup=False)


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
    found, claim = story.finding, story.finding.claim
    console.print(f"[bold red]{escape(found.divergence)}[/]: {sort_of(claim)} {escape(claim)}")
    _line(f"  {found.sentence}", console)
    for number, chapter in enumerate(story.chapters, 1):
        console.print(f"[bold]{number}. {escape(chapter.title)}[/]")
        for reason in chapter.reasons:
            _line("\n".join(_wrapped(reason.text, console)), console)
    for line in found.strip:
        print_whole(f"    {line}", console)
    if found.trace is not None:
        print_trace(found.trace, console)

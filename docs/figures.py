"""The figures and the worked example that handwritten pages ask for, computed by the spec."""

from html import escape

from docs.drawing import Picture, explained, strips
from hitproof.conformance.explain.explanation import Explanation
from hitproof.conformance.explain.reasons import Reason, blocks_in_words
from hitproof.conformance.findings.strips import Figure, Row, figure, marks
from hitproof.spec.attention import attends, tail_blocks
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.sharing import covered_tokens, is_determined
from hitproof.vllm_integration.reports.explain import answer, name


def example() -> str:
    """The question of the worked example and its answer, as HTML."""
    return told(the_example())


def the_example() -> Explanation:
    """A hit of 512 tokens, window 100, block size 16, alignment 64, EAGLE on."""
    full = Group(GroupKind.FULL_ATTENTION, 64)
    window = Group(GroupKind.SLIDING_WINDOW, 16, window=100)
    return explained((full, window), 576, eagle=True, hit=512)


def told(explanation: Explanation) -> str:
    """An explanation as HTML: its answer, its reasons, each set of groups with its strip."""
    parts = [f'<p class="answer">{escape(answer(explanation))}</p>', _reasons(explanation.reasons)]
    for each, drawn in zip(explanation.groups, strips(explanation, 48), strict=True):
        parts.append(f"<h2>{escape(name(each).capitalize())}: {escape(drawn.caption)}</h2>")
        parts.append(Picture(drawn.caption, (Figure("", drawn.strip),)).html(with_caption=False))
        parts.append(_reasons(each.reasons))
    return "\n".join(parts)


def _reasons(reasons: tuple[Reason, ...]) -> str:
    said = (
        f'<li>{escape(each.text)} <a class="claim" href="{each.claim}.html">'
        f"{escape(each.claim.replace('_', ' '))}</a></li>"
        for each in reasons
        if each.claim in CLAIMS
    )
    return f"<ul>{''.join(said)}</ul>"


def window_reach(window: int, block_size: int, boundary: int) -> str:
    """What the first token after a boundary sees, token by token, and the blocks that hold it."""
    end = boundary * block_size
    tail = int(tail_blocks(window, block_size))
    tokens = range((boundary - tail) * block_size, end + 1)
    seen = {k for k in tokens if attends(end, k, window)}
    held = {k // block_size for k in seen if k < end}
    cells = {k: "t" if k // block_size in held and k < end else "." for k in tokens}
    rows = (
        Row("it sees", marks(tokens, seen)),
        Row("of block", {k: str(k // block_size) for k in tokens}),
        Row("tail", cells, end),
    )
    caption = (
        f"Window {window}, blocks of {block_size}: token {end} sees itself and the {window - 1} "
        f"tokens before it, which lie in {blocks_in_words(len(held))}, the tail."
    )
    assert len(held) == tail
    return Picture(caption, (figure(tokens, block_size, *rows, label="token"),)).html()


def draft_entries(block_size: int, matched: int) -> str:
    """Which entries of a draft layer the matched hashes settle, without and with one more block."""
    tokens = range((matched + 1) * block_size)
    end = matched * block_size
    rows = []
    for label, blocks in (("matched", matched), ("and dropped", matched + 1)):
        agreed = int(covered_tokens(blocks - 1, block_size))
        settled = {k for k in tokens if k < end and is_determined(k, 1, agreed)}
        rows.append(Row(label, {k: "#" if k in settled else "." for k in range(end)}, end))
    caption = (
        f"A hit of {end} tokens: the entry of token {end - 1} in a draft layer depends on token "
        f"{end}. The {matched} matched blocks leave it open; a block more, matched and dropped, "
        "settles it."
    )
    return Picture(caption, (figure(tokens, block_size, *rows, label="token"),)).html()

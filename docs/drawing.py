"""Drawing: pictures for pages, and the strips of explanations."""

from dataclasses import dataclass
from html import escape

from hitproof.conformance.explain.explanation import Cache, Explanation, Question
from hitproof.conformance.findings.strip_svg import inline_svg
from hitproof.conformance.findings.strips import Figure, Row, figure
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import Layout, hash_unit
from hitproof.spec.groups import Group
from hitproof.spec.releases.horizons import LookaheadHorizon

WIDE, NARROW = 16, 8
"""Blocks of a line, on desktops and on phones."""


@dataclass(frozen=True)
class Picture:
    """Strips with a line that says what they show."""

    caption: str
    figures: tuple[Figure, ...]

    def html(self, with_caption: bool = True) -> str:
        """The picture for a page; a style sheet shows the one that fits.

        Without the caption, the text is for screen readers only.
        """
        said = f"<figcaption>{escape(self.caption)}</figcaption>" if with_caption else ""
        widths = {"wide": WIDE, "narrow": NARROW}
        if all(len(figure.strip.blocks) <= NARROW for figure in self.figures):
            widths = {"any": NARROW}
        drawn = "".join(
            f'<div class="{name}">{inline_svg(self.caption, self.figures, per_line)}</div>'
            for name, per_line in widths.items()
        )
        return f'<figure class="picture" data-search-exclude>{drawn}{said}</figure>'


def explained(
    groups: tuple[Group, ...],
    num_tokens: int,
    eagle: bool = False,
    hit: int | None = None,
    cache: Cache | None = None,
    retention: int | None = None,
) -> Explanation:
    """What a hit needs of groups, under the newest policies."""
    layout = Layout(groups, num_tokens, eagle, hash_unit(groups))
    explanation = Explanation(Question(layout, LookaheadHorizon.HASHED, retention, hit, cache))
    explanation.check()
    return explanation


def strips(explanation: Explanation, most: int = 2 * WIDE) -> tuple[Figure, ...]:
    """The strips of every set of groups."""
    return tuple(
        Figure(caption(each.looked_up), each.strip(each.cut(most))) for each in explanation.groups
    )


def drawn(looked_up: LookedUp, blocks: range, *rows: Row) -> Figure:
    """Rows of groups that are looked up together, under what `caption` says."""
    return figure(blocks, looked_up.shape.segment, *rows, caption=caption(looked_up))


def caption(looked_up: LookedUp) -> str:
    """Kind and sizes, in tokens, of groups that are looked up together."""
    group = looked_up.group
    sizes = (("block size", group.block_size), ("window", group.window), ("chunk", group.chunk))
    said = ", ".join(f"{what} {size}" for what, size in sizes if size is not None)
    return f"{group.kind.replace('_', ' ')}, {said}"

"""Strips as SVG: self-contained, readable in light and dark, and without telling colours apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from conformance.strips import HELD, LEGEND, ROLES, Strip

NAMESPACE = "http://www.w3.org/2000/svg"

_CELL, _HEIGHT, _LABEL, _MARGIN, _LINE = 34, 26, 96, 16, 20
_PER_LINE = 24

_STYLE = """
svg { --paper: #ffffff; --ink: #1b1b1b; --faint: #767676; --empty: #f1f1f1;
  --held: #c9c9c9; --L: #f0a3c8; --p: #8ecbf5; --t: #f3c766; --c: #7fd6b8; --s: #f2a27c; }
@media (prefers-color-scheme: dark) { svg { --paper: #16181c; --ink: #f2f2f2; --faint: #9a9a9a;
  --empty: #26292f; --held: #5a5e66; --L: #a33b74; --p: #1c6ea6; --t: #8a6400; --c: #00735a;
  --s: #a84a12; } }
text { font: 13px ui-monospace, monospace; fill: var(--ink); }
.title { font-weight: bold; } .paper { fill: var(--paper); }
.cell { fill: var(--empty); stroke: var(--faint); stroke-width: 0.5; } .number { fill: none; }
.held { fill: var(--held); } .L { fill: var(--L); stroke-dasharray: 3 2; stroke-width: 1.5; }
.p { fill: var(--p); } .t { fill: var(--t); } .c { fill: var(--c); } .s { fill: var(--s); }
.boundary { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 3; }
.hit { stroke: var(--ink); stroke-width: 4; }
"""
"""Tints of the colours of Okabe and Ito, which the colour-blind tell apart; letters say the same,
and the lookahead block has a dashed edge."""


@dataclass(frozen=True)
class Figure:
    """One strip with the line above it."""

    caption: str
    strip: Strip


def svg(title: str, description: str, figures: Sequence[Figure]) -> str:
    """A document with the strips below each other, long ones broken into lines.

    ``title`` and ``description`` are what a screen reader says.
    """
    root = ElementTree.Element(
        "svg",
        {"xmlns": NAMESPACE, "role": "img", "aria-labelledby": "title description"},
    )
    ElementTree.SubElement(root, "title", {"id": "title"}).text = title
    ElementTree.SubElement(root, "desc", {"id": "description"}).text = description
    ElementTree.SubElement(root, "style").text = _STYLE
    ElementTree.SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    top = _text(root, _MARGIN, _MARGIN, title, "title")
    for figure in figures:
        top = _text(root, _MARGIN, top + _LINE // 2, figure.caption)
        for line in _lines(figure.strip):
            top = _draw(root, line, top) + _LINE // 2
    top = _text(root, _MARGIN, top, LEGEND)
    across = max([len(f.strip.blocks) for f in figures] or [0])
    texts = [title, LEGEND, *(figure.caption for figure in figures)]
    width = max(
        2 * _MARGIN + _LABEL + min(across, _PER_LINE) * _CELL,
        2 * _MARGIN + 8 * max(map(len, texts)),
    )
    root.set("viewBox", f"0 0 {width} {top + _MARGIN}")
    root.set("width", str(width))
    root.set("style", "max-width: 100%; height: auto")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _lines(strip: Strip) -> Iterator[Strip]:
    for start in range(0, len(strip.blocks), _PER_LINE):
        yield replace(strip, blocks=strip.blocks[start : start + _PER_LINE])


def _text(root: ElementTree.Element, x: int, top: int, said: str, of: str = "") -> int:
    """Write a line; returns where the next one starts."""
    attributes = {"x": str(x), "y": str(top + 14), "xml:space": "preserve"}
    if of:
        attributes["class"] = of
    ElementTree.SubElement(root, "text", attributes).text = said
    return top + _LINE


def _draw(root: ElementTree.Element, strip: Strip, top: int) -> int:
    for row in strip.rows:
        _text(root, _MARGIN, top + 4, row.label)
        for place, block in enumerate(strip.blocks):
            sign = row.cells.get(block, "")
            x = _MARGIN + _LABEL + place * _CELL
            cell = ElementTree.SubElement(
                root,
                "rect",
                {
                    "class": f"cell {_class(sign)}".strip(),
                    "x": str(x),
                    "y": str(top),
                    "width": str(_CELL),
                    "height": str(_HEIGHT),
                },
            )
            said = f"block {block}, {row.label}: {ROLES.get(sign) or _SAID.get(sign, sign)}"
            ElementTree.SubElement(cell, "title").text = said
            middle = {"x": str(x + _CELL // 2), "y": str(top + 18), "text-anchor": "middle"}
            ElementTree.SubElement(root, "text", middle).text = sign
        edges = range(strip.blocks.start, strip.blocks.stop + 1)
        for place, edge in enumerate(edges):
            mark = _MARKS.get(strip.mark(row, edge))
            if mark:
                x = str(_MARGIN + _LABEL + place * _CELL)
                ends = {"x1": x, "x2": x, "y1": str(top), "y2": str(top + _HEIGHT)}
                ElementTree.SubElement(root, "line", {"class": mark, **ends})
        top += _HEIGHT
    return top


_MARKS = {"|": "hit", ":": "boundary"}
_SAID = {HELD: "held", ".": "not"}


def _class(sign: str) -> str:
    if sign.isdigit():
        return "number"
    return "held" if sign == HELD else sign if sign in ROLES else ""

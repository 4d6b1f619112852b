"""Strips as SVG: self-contained, readable in light and dark, and without telling colours apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from conformance.strips import HELD, LEGEND, ROLES, Strip

NAMESPACE = "http://www.w3.org/2000/svg"

_CELL, _HEIGHT, _LABEL, _MARGIN, _LINE = 34, 26, 96, 16, 20
_PER_LINE = 24

_FILLS = {
    "paper": ("#ffffff", "#16181c"),
    "cell": ("#f1f1f1", "#26292f"),
    "held": ("#c9c9c9", "#5a5e66"),
    "L": ("#f0a3c8", "#a33b74"),
    "p": ("#8ecbf5", "#1c6ea6"),
    "t": ("#f3c766", "#8a6400"),
    "c": ("#7fd6b8", "#00735a"),
    "s": ("#f2a27c", "#a84a12"),
    "ink": ("#1b1b1b", "#f2f2f2"),
}
"""What is filled how, in light and in dark: shades of the colours of Okabe and Ito, which the
colour-blind tell apart. Letters say the same, and the lookahead block has a dashed edge."""

_SHAPES = """
.strip text { font: 13px ui-monospace, monospace; }
.strip .title { font-weight: bold; }
.strip .cell { stroke-width: 0.5; }
.strip .number { fill: none; }
.strip .L { stroke-dasharray: 3 2; stroke-width: 1.5; }
.strip .boundary { stroke-width: 1.5; stroke-dasharray: 2 3; }
.strip .hit { stroke-width: 4; }
"""


def _colours(dark: bool) -> str:
    fills = {of: shades[dark] for of, shades in _FILLS.items()}
    ink = fills.pop("ink")
    rules = [f".strip .{of} {{ fill: {fill}; }}" for of, fill in fills.items()]
    lines = ".strip .boundary, .strip .hit, .strip .cell"
    return "\n".join([*rules, f".strip text {{ fill: {ink}; }}", f"{lines} {{ stroke: {ink}; }}"])


_DARK = f"@media (prefers-color-scheme: dark) {{\n{_colours(dark=True)}\n}}"
_STYLE = f"\n{_colours(dark=False)}\n{_DARK}{_SHAPES}"


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
        {"xmlns": NAMESPACE, "class": "strip", "role": "img"},
    )
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "desc").text = description
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
                at = str(_MARGIN + _LABEL + place * _CELL)
                ends = {"x1": at, "x2": at, "y1": str(top), "y2": str(top + _HEIGHT)}
                ElementTree.SubElement(root, "line", {"class": mark} | ends)
        top += _HEIGHT
    return top


_MARKS = {"|": "hit", ":": "boundary"}
_SAID = {HELD: "held", ".": "not"}


def _class(sign: str) -> str:
    if sign.isdigit():
        return "number"
    return "held" if sign == HELD else sign if sign in ROLES else ""

"""Strips as SVG: self-contained, readable in light and dark, and without telling colours apart."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from xml.etree import ElementTree

from hitproof.conformance.findings.strips import HELD, LEGEND, ROLES, Figure, Strip

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
.strip text { font: 13px ui-monospace, monospace; fill: var(--strip-ink); }
.strip .title { font-weight: bold; }
.strip .cell { stroke-width: 0.5; }
.strip .number { fill: none; }
.strip .L { stroke-dasharray: 3 2; stroke-width: 1.5; }
.strip .cell, .strip .boundary, .strip .hit { stroke: var(--strip-ink); }
.strip .boundary { stroke-width: 1.5; stroke-dasharray: 2 3; }
.strip .hit { stroke-width: 4; }
"""


def _colours(shades: Iterable[str]) -> str:
    named = zip(_FILLS, shades, strict=True)
    return f".strip {{ {' '.join(f'--strip-{of}: {shade};' for of, shade in named)} }}"


def _style(*colours: str) -> str:
    fills = (f".strip .{of} {{ fill: var(--strip-{of}); }}" for of in _FILLS if of != "ink")
    return "\n".join(("", *colours, *fills, _SHAPES.lstrip()))


STYLE = _style(_colours(f"light-dark({light}, {dark})" for light, dark in _FILLS.values()))
"""The style sheet that strips need in a page, which takes them from `inline_svg`. They follow the
page's ``color-scheme``."""

_DARK = _colours(dark for _, dark in _FILLS.values())
_ALONE = _style(
    _colours(light for light, _ in _FILLS.values()),
    f"@media (prefers-color-scheme: dark) {{ {_DARK} }}",
)
"""The style sheet of a document of its own, for programs that know fewer colours than browsers."""


def svg(title: str, description: str, figures: Sequence[Figure]) -> str:
    """A document with the strips below each other, long ones broken into lines.

    ``title`` and ``description`` are what a screen reader says.
    """
    root = _root(title)
    ElementTree.SubElement(root, "desc").text = description
    ElementTree.SubElement(root, "style").text = _ALONE
    ElementTree.SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    top = _text(root, _MARGIN, _MARGIN, title, "title")
    top = _text(root, _MARGIN, _draw_all(root, figures, top, _PER_LINE), LEGEND)
    _size(root, max(_width(figures, _PER_LINE), *map(_text_width, (title, LEGEND))), top + _MARGIN)
    root.set("style", "max-width: 100%; height: auto")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def inline_svg(title: str, figures: Sequence[Figure], per_line: int = _PER_LINE) -> str:
    """The strips alone, for a page that has `STYLE` and tells what the signs mean.

    ``title`` is what a screen reader says; ``per_line`` the blocks of a line.
    """
    root = _root(title)
    _size(root, _width(figures, per_line), _draw_all(root, figures, 0, per_line))
    return ElementTree.tostring(root, encoding="unicode")


def _root(title: str) -> ElementTree.Element:
    root = ElementTree.Element("svg", {"xmlns": NAMESPACE, "class": "strip", "role": "img"})
    ElementTree.SubElement(root, "title").text = title
    return root


def _draw_all(root: ElementTree.Element, figures: Sequence[Figure], top: int, per_line: int) -> int:
    """Draw the figures; returns where the next one starts."""
    for figure in figures:
        if figure.caption:
            top = _text(root, _MARGIN, top + _LINE // 2, figure.caption)
        for line in _lines(figure.strip, per_line):
            top = _draw(root, line, top) + _LINE // 2
    return top


def _width(figures: Sequence[Figure], per_line: int) -> int:
    across = max((len(figure.strip.blocks) for figure in figures), default=0)
    cells = 2 * _MARGIN + _LABEL + min(across, per_line) * _CELL
    return max([cells, *(_text_width(figure.caption) for figure in figures)])


def _text_width(text: str) -> int:
    return 2 * _MARGIN + 8 * len(text)


def _size(root: ElementTree.Element, width: int, height: int) -> None:
    root.set("viewBox", f"0 0 {width} {height}")
    root.set("width", str(width))
    root.set("height", str(height))


def _lines(strip: Strip, per_line: int) -> Iterator[Strip]:
    for start in range(0, len(strip.blocks), per_line):
        yield replace(strip, blocks=strip.blocks[start : start + per_line])


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

"""Strips as SVG: every cell is there, with its letter and a name, in light and in dark."""

from xml.etree import ElementTree

import pytest

from hitproof.conformance.findings.strip_svg import NAMESPACE, inline_svg, svg
from hitproof.conformance.findings.strips import Figure, Row, Strip, marks, numbers, roles
from hitproof.conformance.scope.configurations import single_group
from hitproof.spec.groups import GroupKind

IN = f"{{{NAMESPACE}}}"


def strip(num_blocks: int) -> Strip:
    configuration = single_group(GroupKind.SLIDING_WINDOW, 16, 4, 100, True, num_blocks)
    (looked_up,) = configuration.looked_up
    blocks = range(num_blocks)
    rows = (
        Row("block", numbers(blocks)),
        Row("cached", marks(blocks, {1, 2})),
        Row("hit needs", roles(looked_up, blocks, 8), 8),
    )
    return Strip(rows, blocks, looked_up.shape.segment)


def document(*figures: Figure) -> ElementTree.Element:
    return ElementTree.fromstring(svg("a < b & c", "what is drawn", figures))


@pytest.mark.parametrize("num_blocks", [9, 24, 25, 61])
def test_every_cell_is_drawn_once_with_its_letter(num_blocks: int) -> None:
    root = document(Figure("group 0", strip(num_blocks)))
    cells = [rect for rect in root.iter(f"{IN}rect") if rect.get("class", "").startswith("cell")]
    assert len(cells) == 3 * num_blocks
    assert len({(cell.get("x"), cell.get("y")) for cell in cells}) == len(cells)
    letters = [e.text for e in root.iter(f"{IN}text") if e.get("text-anchor") == "middle"]
    assert letters.count("t") == 7
    assert letters.count("L") == 1
    assert letters.count("#") == 2
    assert [cell.get("class") for cell in cells].count("cell t") == 7
    names = [cell.findtext(f"{IN}title") for cell in cells]
    assert "block 8, hit needs: lookahead" in names
    assert "block 2, cached: held" in names
    assert "block 0, hit needs: not" in names


def test_where_hits_end_is_marked() -> None:
    lines = [line.get("class") for line in document(Figure("", strip(9))).iter(f"{IN}line")]
    assert lines.count("hit") == 1
    assert lines.count("boundary") == 3 * 3 - 1


def test_it_has_a_title_a_description_and_a_dark_mode() -> None:
    root = document(Figure("group 0", strip(9)), Figure("group 1", strip(3)))
    assert root.tag == f"{IN}svg"
    assert root.findtext(f"{IN}title") == "a < b & c"
    assert root.findtext(f"{IN}desc") == "what is drawn"
    style = root.findtext(f"{IN}style") or ""
    assert "prefers-color-scheme: dark" in style
    assert "url(" not in style
    assert not list(root.iter(f"{IN}script"))


def test_nothing_sticks_out() -> None:
    root = document(Figure("group 0", strip(61)))
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    for cell in root.iter(f"{IN}rect"):
        if cell.get("class") != "paper":
            assert int(cell.attrib["x"]) + int(cell.attrib["width"]) <= width
            assert int(cell.attrib["y"]) + int(cell.attrib["height"]) <= height


def test_a_strip_within_a_page_is_the_same_picture_without_style_and_legend() -> None:
    figures = [Figure("group 0", strip(9)), Figure("", strip(61))]
    inline = ElementTree.fromstring(inline_svg("a < b & c", figures, per_line=8))
    assert inline.findtext(f"{IN}title") == "a < b & c"
    assert not list(inline.iter(f"{IN}style"))
    named = [c.findtext(f"{IN}title") for c in inline.iter(f"{IN}rect")]
    whole = [c.findtext(f"{IN}title") for c in document(*figures).iter(f"{IN}rect")]
    assert sorted(map(str, named)) == sorted(name for name in whole if name)
    _, _, width, height = map(int, inline.attrib["viewBox"].split())
    for cell in inline.iter(f"{IN}rect"):
        assert int(cell.attrib["x"]) + int(cell.attrib["width"]) <= width
        assert int(cell.attrib["y"]) + int(cell.attrib["height"]) <= height

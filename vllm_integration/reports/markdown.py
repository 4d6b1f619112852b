"""Markdown as reports and pages have it."""

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a column whose name ends with a colon has its cells to the right.

    Between colons they are in the middle.
    """
    names = [column.strip(":") for column in columns]
    rule = "".join(
        ":-:|" if each[:1] == ":" else "--:|" if each.endswith(":") else "---|" for each in columns
    )
    return "\n".join((_row(names), f"|{rule}", *map(_row, rows)))


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def escaped(cells: Iterable[str]) -> list[str]:
    """Cells of any text: bars are no ends of cells."""
    return [cell.replace("|", "\\|") for cell in cells]

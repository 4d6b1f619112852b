"""Strips: pictures of a group's blocks, one cell a block, which findings and explanations share."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hitproof.conformance.scope.configurations import Configuration, LookedUp
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import required_run

HELD = "#"
"""The mark of a block that is cached, or registered."""
NOT_HELD = "."
"""The mark of a block that is not, or that a hit does not need."""

ROLES = {"L": "lookahead", "p": "prefix", "t": "tail", "c": "chunk", "s": "state"}
"""What the letters of `block_role` stand for."""

_LETTERS = {
    GroupKind.FULL_ATTENTION: "p",
    GroupKind.SLIDING_WINDOW: "t",
    GroupKind.CHUNKED_LOCAL: "c",
    GroupKind.MAMBA: "s",
}

SIGNS = {
    HELD: "block held",
    NOT_HELD: "not",
    **{sign: ROLES[sign] for sign in "ptcsL"},
    "|": "hit ends",
    ":": "boundary",
}
"""What every sign of a strip means."""

LEGEND = "   ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items())


def block_role(of: Configuration | LookedUp, block: int, boundary: int) -> str:
    """What ``block`` is to a hit that ends at ``boundary`` (in blocks): a letter for strips.

    ``L`` lookahead, ``p`` prefix of full attention, ``t`` tail of a sliding window, ``c`` of the
    boundary's chunk, ``s`` state of Mamba, ``.`` none.
    """
    if block not in required_run(of.shape, boundary):
        return NOT_HELD
    if block >= boundary:
        return "L"
    return _LETTERS[of.group.kind]


def roles(of: Configuration | LookedUp, blocks: range, boundary: int) -> dict[int, str]:
    """What each block is to a hit that ends at ``boundary``; nothing where there is no hit."""
    return {block: block_role(of, block, boundary) for block in blocks} if boundary else {}


def marks(blocks: range, held: Collection[int]) -> dict[int, str]:
    """Which blocks are held."""
    return {block: HELD if block in held else NOT_HELD for block in blocks}


def numbers(blocks: range) -> dict[int, str]:
    """Each block's number."""
    return {block: str(block) for block in blocks}


@dataclass(frozen=True)
class Row:
    """One row of a strip.

    Attributes:
        label: what it shows.
        cells: what stands in each block's cell.
        end: the block edge at which a hit ends, if the row marks one.
    """

    label: str
    cells: dict[int, str]
    end: int | None = None


@dataclass(frozen=True)
class Strip:
    """A picture of one group's blocks.

    Attributes:
        rows: from top to bottom.
        blocks: the blocks that are shown; not empty.
        segment: blocks from one boundary to the next.
    """

    rows: tuple[Row, ...]
    blocks: range
    segment: int

    def mark(self, row: Row, edge: int) -> str:
        """The mark before block ``edge``: where the row's hit ends, a boundary, or neither."""
        if edge == row.end:
            return "|"
        return ":" if edge % self.segment == 0 else " "

    def draw(self) -> str:
        """The rows in letters, one line each."""
        width = max(2, len(str(self.blocks[-1])))
        lines = []
        for row in self.rows:
            cells = (
                f"{self.mark(row, block)}{row.cells.get(block, ''):>{width}} "
                for block in self.blocks
            )
            line = f"{row.label:<{LABEL_COLUMNS}}{''.join(cells)}{self.mark(row, self.blocks.stop)}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    @staticmethod
    def columns(last: int) -> int:
        """The characters that `draw` takes for each block, when ``last`` is the last one."""
        return max(2, len(str(last))) + 2


LABEL_COLUMNS = 12
"""The characters that `Strip.draw` takes for the label of a row."""


@dataclass(frozen=True)
class Figure:
    """One strip with the line above it, which may be empty."""

    caption: str
    strip: Strip


def hit_row(label: str, of: Configuration | LookedUp, blocks: range, end: int) -> Row:
    """What each block is to a hit that ends at ``end``, with the mark where it does."""
    return Row(label, roles(of, blocks, end), end)


def figure(
    blocks: range, segment: int, *rows: Row, caption: str = "", label: str = "block"
) -> Figure:
    """Rows under the numbers of their blocks, or of what ``label`` says."""
    return Figure(caption, Strip((Row(label, numbers(blocks)), *rows), blocks, segment))


def draw(figures: Sequence[Figure]) -> str:
    """The figures in letters, with what their signs mean."""
    parts = (part for figure in figures for part in (figure.caption, figure.strip.draw()) if part)
    return "\n".join([*parts, LEGEND])

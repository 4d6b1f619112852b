"""Python source as text, in ruff's format: what fits on a line stays on one line."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

WIDTH = 88
"""The line length, as in vLLM's own files."""
_INDENT = "    "


@dataclass(frozen=True)
class Bracketed:
    """Something in brackets: the arguments of a call, or the items of a list.

    Attributes:
        opening: everything up to and including the opening bracket.
        items: each with its prefix, such as ``name=``.
        closing: the closing bracket.
    """

    opening: str
    items: tuple[tuple[str, "Node"], ...]
    closing: str


Node: TypeAlias = str | Bracketed


def one_line(node: Node) -> str:
    """The source on one line."""
    if isinstance(node, str):
        return node
    inner = ", ".join(before + one_line(item) for before, item in node.items)
    alone = node.opening == "(" and len(node.items) == 1  # a tuple of one
    return f"{node.opening}{inner}{',' if alone else ''}{node.closing}"


def laid_out(before: str, node: Node, after: str = "", depth: int = 1) -> str:
    """The source between ``before`` and ``after``, at that depth of indentation."""
    indent = _INDENT * depth
    line = f"{indent}{before}{one_line(node)}{after}"
    if len(line) <= WIDTH or isinstance(node, str) or not node.items:
        return line
    whole = f"{indent}{_INDENT}{one_line(node)}"
    if before.endswith(" = ") and len(indent + before + node.opening) > WIDTH >= len(whole):
        return f"{indent}{before}(\n{whole}\n{indent}){after}"
    within = f"{indent}{_INDENT}{one_line(Bracketed('', node.items, ''))}"
    if len(node.opening) > 1 and len(within) <= WIDTH:  # the arguments of a call
        return f"{indent}{before}{node.opening}\n{within}\n{indent}{node.closing}{after}"
    inner = (laid_out(name, item, ",", depth + 1) for name, item in node.items)
    return "\n".join((f"{indent}{before}{node.opening}", *inner, f"{indent}{node.closing}{after}"))


def call(function: str, *items: Node, **keywords: Node) -> Bracketed:
    """A call."""
    named = tuple((f"{name}=", value) for name, value in keywords.items())
    return Bracketed(f"{function}(", (*(("", item) for item in items), *named), ")")


def listed(opening: str, items: Iterable[Node], closing: str) -> Bracketed:
    """Items between brackets."""
    return Bracketed(opening, tuple(("", item) for item in items), closing)


def literal(value: object) -> Node:
    """A value that is its own source: numbers, strings, bytes, and collections of these."""
    match value:
        case Enum():
            pass  # its text is not its source, not even where it is a number, too
        case str():
            return '"' + value.encode("unicode_escape").decode().replace('"', '\\"') + '"'
        case bytes() | None | bool() | int() | float():
            return repr(value).replace("'", '"') if isinstance(value, bytes) else repr(value)
        case list() | tuple():
            return sequence(value, [literal(item) for item in value])
        case dict():
            items = (
                (f"{one_line(literal(name))}: ", literal(item)) for name, item in value.items()
            )
            return Bracketed("{", tuple(items), "}")
    raise TypeError(f"{value!r:.80} has no literal")


def sequence(value: list[object] | tuple[object, ...], items: Sequence[Node]) -> Node:
    """A list or tuple of items; long runs of numbers are ranges."""
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return _numbers([item for item in value if isinstance(item, int)])
    opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
    return listed(opening, items, closing)


_LONG_RUN = 6


def _numbers(values: list[int]) -> Node:
    runs = list(_runs(values))
    if len(runs) == 1 and len(values) >= _LONG_RUN:
        start = f"{values[0]}, " if values[0] else ""
        return f"list(range({start}{values[-1] + 1}))"
    items = [
        item
        for run in runs
        for item in (
            [f"*range({run.start}, {run.stop})"] if len(run) >= _LONG_RUN else map(str, run)
        )
    ]
    return listed("[", items, "]")


def _runs(values: Sequence[int]) -> Iterator[range]:
    first = 0
    for position in range(1, len(values) + 1):
        if position == len(values) or values[position] != values[position - 1] + 1:
            yield range(values[first], values[position - 1] + 1)
            first = position

"""Where each code is decided, so that a run can say which properties it has put to the test.

A code is decided at the condition that leads to it: the test, loop or comprehension around the
place that names it, or its whole function. A property whose condition no case reaches could not
have failed.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from hitproof.conformance import checks, judge, scheduling
from hitproof.conformance.findings.meaning import Code

_Lines = frozenset[int]


@cache
def decisions() -> Mapping[str, tuple[tuple[Code, _Lines], ...]]:
    """By source file of what judges: the codes that it decides, and the lines of each condition."""
    rooms = [Path(room.__path__[0]).resolve() for room in (checks, judge, scheduling)]
    files = [file for room in rooms for file in sorted(room.glob("*.py"))]
    found = {str(file): tuple(_decided(file.read_text(encoding="utf-8"))) for file in files}
    return {file: decided for file, decided in found.items() if decided}


def _decided(source: str) -> Iterator[tuple[Code, _Lines]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = next((each for each in node.body if not _is_text(each)), node.body[0])
            for each in node.body:
                yield from _below(each, _lines(first))


def _below(node: ast.AST, condition: _Lines) -> Iterator[tuple[Code, _Lines]]:
    """The codes that a node names, each with the lines of the innermost condition around it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == Code.__name__:
        yield Code[node.attr], condition
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        inner = _lines(node)
    else:
        tests = [getattr(node, name, None) for name in ("test", "iter", "pattern")]
        inner = next((_lines(test) for test in tests if test is not None), condition)
    for each in ast.iter_child_nodes(node):
        yield from _below(each, inner)


def _lines(node: ast.AST) -> _Lines:
    first = getattr(node, "lineno", 0)
    return frozenset(range(first, (getattr(node, "end_lineno", None) or first) + 1))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

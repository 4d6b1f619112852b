"""Where each code is decided, so that a run can say which properties it has put to the test.

A code is decided at the condition that leads to it: the test, loop or comprehension around the
place that names it, or around the calls of a function that only says what is wrong. A property
whose condition no case reaches could not have failed.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from hitproof.conformance import checks, judge, scheduling
from hitproof.conformance.findings.meaning import Code

_Lines = frozenset[int]


@cache
def decisions() -> Mapping[str, tuple[tuple[Code, _Lines], ...]]:
    """By source file of what judges: the codes that it decides, and the lines of each condition."""
    return decisions_in([Path(each.__path__[0]).resolve() for each in (checks, judge, scheduling)])


def decisions_in(rooms: Iterable[Path]) -> Mapping[str, tuple[tuple[Code, _Lines], ...]]:
    """The same of other rooms, by their folders."""
    read = {
        str(file): _Module(file.read_text(encoding="utf-8"))
        for room in rooms
        for file in sorted(room.glob("*.py"))
    }
    found: dict[str, list[tuple[Code, _Lines]]] = {}
    for file, module in read.items():
        for code, lines, function in module.codes:
            if code is Code.LOCKSTEP_DIFFERENCE:
                continue  # `hitproof lockstep` alone compares with the reference
            found.setdefault(file, []).append((code, lines))
            if function:
                for place, called in _deciding_calls(read, file, function, frozenset()):
                    found.setdefault(place, []).append((code, called))
    return {file: tuple(decided) for file, decided in found.items()}


class _Module:
    """What a source file decides.

    Attributes:
        codes: each code with the lines of its condition, and the function that has it without any.
        calls: by the name of what is called, the same of each call.
    """

    def __init__(self, source: str) -> None:
        self.codes: list[tuple[Code, _Lines, str]] = []
        self.calls: dict[str, list[tuple[_Lines, str]]] = {}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                first = next((each for each in node.body if not _is_text(each)), node.body[0])
                for each in node.body:
                    self._below(each, _lines(first), node.name)

    def _below(self, node: ast.AST, condition: _Lines, function: str) -> None:
        """Take up a node; ``function`` is that around it where no condition is, else empty."""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == Code.__name__:
            self.codes.append((Code[node.attr], condition, function))
        elif isinstance(node, ast.Call) and (node.args or node.keywords):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            self.calls.setdefault(name, []).append((condition, function))
        if not _chooses(node):
            found = _condition(node)
            condition, function = (found, "") if found else (condition, function)
        for each in ast.iter_child_nodes(node):
            self._below(each, condition, function)


def _deciding_calls(
    read: Mapping[str, _Module], file: str, function: str, seen: frozenset[str]
) -> Iterator[tuple[str, _Lines]]:
    """The conditions around calls of a function that only says what is wrong.

    Those in its own file, or else in all others.
    """
    own = {file: read[file]} if function in read[file].calls else read
    for place, module in own.items():
        for lines, around in module.calls.get(function, ()):
            yield place, lines
            if around and around not in seen:
                yield from _deciding_calls(read, place, around, seen | {function})


def _condition(node: ast.AST) -> _Lines:
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        return _lines(node)
    tests = [getattr(node, name, None) for name in ("test", "iter", "pattern")]
    return next((_lines(test) for test in tests if test is not None), frozenset())


def _chooses(node: ast.AST) -> bool:
    """Whether a condition has a code either way: it says what is wrong, not whether."""
    if isinstance(node, ast.If):
        return any(map(_names_code, node.body)) and any(map(_names_code, node.orelse))
    return isinstance(node, ast.IfExp) and _names_code(node.body) and _names_code(node.orelse)


def _names_code(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Attribute) and getattr(each.value, "id", "") == Code.__name__
        for each in ast.walk(node)
    )


def _lines(node: ast.AST) -> _Lines:
    first = getattr(node, "lineno", 0)
    return frozenset(range(first, (getattr(node, "end_lineno", None) or first) + 1))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

"""The source of a function, once it is certain that it is what runs.

The file is compiled again, and the function's own code must be equal to the code that this gives.
So a function that was replaced, wrapped or generated, and a file that was changed since, are
`Unsupported`. Everything else about a function (defaults, closure, globals) is read from the
function itself.
"""

import ast
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType


class Unsupported(Exception):
    """Something that is not modelled; nothing can be said of the function.

    Attributes:
        construct: what it is.
        place: file and line, "" if it is nowhere.
    """

    def __init__(self, construct: str, place: str = "") -> None:
        super().__init__(f"{construct} ({place})" if place else construct)
        self.construct = construct
        self.place = place


@dataclass(frozen=True)
class Source:
    """The definition of a function, and the file that it is in."""

    definition: ast.FunctionDef
    file: str

    def place(self, node: ast.AST) -> str:
        """The file's name and the line of a part of it."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{getattr(node, 'lineno', self.definition.lineno)}"


def source_of(function: FunctionType) -> Source:
    """The definition of a function. Raises `Unsupported` unless it is certain to be what runs."""
    code = function.__code__
    place = f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
    codes, definitions = _file(code.co_filename)
    # Equal code has equal names, constants, nested code and lines.
    if not any(code == each for each in codes.get((code.co_name, code.co_firstlineno), ())):
        raise Unsupported(f"{function.__qualname__}, whose code is not that of its file", place)
    found = definitions.get((code.co_name, code.co_firstlineno), [])
    if len(found) != 1:
        raise Unsupported(f"{function.__qualname__}, which is not one definition", place)
    return Source(found[0], code.co_filename)


_Key = tuple[str, int]


@functools.cache
def _file(name: str) -> tuple[dict[_Key, list[CodeType]], dict[_Key, list[ast.FunctionDef]]]:
    """The code and the definitions of a file, by name and first line, decorators included."""
    text = "".join(linecache.getlines(name))
    try:
        tree = ast.parse(text, name)
        # As it is imported: without what __future__ means in this module.
        module = compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}, {}
    codes: dict[_Key, list[CodeType]] = {}
    for code in _nested(module):
        codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    definitions: dict[_Key, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            definitions.setdefault((node.name, first), []).append(node)
    return codes, definitions


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


def literals(function: FunctionType) -> set[int]:
    """The integers that are written in a function: sizes beyond them are worth running it on."""
    return {
        node.value
        for node in ast.walk(source_of(function).definition)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }

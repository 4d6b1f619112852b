"""What a target changes of another tree of vLLM, as hunks of the source that is judged."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

_JUDGED = "vllm/v1"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True)
class Hunk:
    """Lines that are changed together.

    Attributes:
        path: the file, relative to the target's root.
        line: the first of its lines in the target, from 1; the one after what is only removed.
        stop: the line after its last one.
        function: the name of the function or class that it is in, as Python qualifies it; may be
            empty.
    """

    path: str
    line: int
    stop: int
    function: str

    def has(self, line: int) -> bool:
        """Whether a line of the target is changed by it."""
        return self.line <= line < self.stop


def hunks(base: Path, head: Path) -> tuple[Hunk, ...]:
    """What the tree ``head`` changes of the tree ``base``, without comments and empty lines."""
    found: list[Hunk] = []
    for file in sorted((head / _JUDGED).rglob("*.py")):
        path = file.relative_to(head).as_posix()
        try:
            old = (base / path).read_text("utf-8") if (base / path).is_file() else ""
            new = file.read_text("utf-8")
            if old != new:
                found += _of_file(path, old, new)
        except (OSError, UnicodeDecodeError, SyntaxError, tokenize.TokenError):
            continue
    return tuple(found)


def _of_file(path: str, old: str, new: str) -> Iterator[Hunk]:
    before, after = old.splitlines(), new.splitlines()
    code = [set(_code_lines(text)) for text in (old, new)]
    scopes = [*_scopes(ast.parse(new), "")]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        changed = [n for n in range(k + 1, m + 1) if n in code[1]]
        removed = any(n in code[0] for n in range(i + 1, j + 1))
        if kind == "equal" or not (changed or removed):
            continue
        line = changed[0] if changed else min(k + 1, len(after))
        stop = changed[-1] + 1 if changed else line
        around = [each for each in scopes if line in each[0] and max(stop - 1, line) in each[0]]
        _, name = min(around, key=lambda each: len(each[0]), default=(range(0), ""))
        yield Hunk(path, line, stop, name)


def _code_lines(text: str) -> Iterator[int]:
    """The lines that have code."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            yield from range(token.start[0], token.end[0] + 1)


def _scopes(tree: ast.AST, outer: str) -> Iterator[tuple[range, str]]:
    """The functions and classes, each with its lines and its name."""
    for node in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{node.name}".lstrip(".")
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield range(first, (node.end_lineno or node.lineno) + 1), name
        yield from _scopes(node, name)

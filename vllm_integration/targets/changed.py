"""What a target changes of another tree of vLLM, as hunks of the source that is judged."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from filecmp import cmp
from pathlib import Path
from typing import TypeAlias

_JUDGED = "vllm/v1"
_MOST_FILES = 20
"""In up to how many files changed functions are looked for."""
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


_Bodies: TypeAlias = dict[str, tuple[set[str | None], str]]


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


@dataclass
class Functions:
    """The functions of the package that a tree changes of another one.

    Attributes:
        names: the module and the qualified name of each whose body is another.
        texts: the base's text of their modules, by name.
        elsewhere: what else is changed, one sentence each.
    """

    names: list[tuple[str, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)


def changed_functions(base: Path, head: Path) -> Functions:
    """The functions whose bodies differ, and whether anything else does in ``vllm/**/*.py``.

    Comments and docstrings do not count, nor does a private helper that nothing else mentions.
    """
    found = Functions()
    paths = {p.relative_to(root).as_posix() for root in (base, head) for p in _modules(root)}
    differing = [path for path in sorted(paths) if not _is_same(base / path, head / path)]
    if len(differing) > _MOST_FILES:
        found.elsewhere.append(f"{len(differing)} files change")
        return found
    for path in differing:
        one, other = base / path, head / path
        try:
            texts = [each.read_text("utf-8") for each in (one, other)]
            names, elsewhere = _bodies(path, *map(ast.parse, texts))
        except (OSError, UnicodeDecodeError, SyntaxError):
            found.elsewhere.append(f"{path} is in one of the two only, or cannot be read")
            continue
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found.names += [(module, name) for name in names]
        found.elsewhere += elsewhere
        if names:
            found.texts[module] = texts[0]
    return found


def _is_same(one: Path, other: Path) -> bool:
    both = one.is_file() and other.is_file()
    return both and (one.samefile(other) or cmp(one, other, shallow=False))


def _modules(root: Path) -> list[Path]:
    return [p for p in (root / "vllm").rglob("*.py") if p.is_file()]


def _bodies(path: str, base: ast.Module, head: ast.Module) -> tuple[list[str], list[str]]:
    """The functions whose bodies differ, and why more than that does."""
    before, after = _functions(base), _functions(head)
    names = [n for n in before if n in after and before[n][1] != after[n][1]]
    added = {n for n in before.keys() ^ after.keys() if _is_helper(n, before, after)}
    rest = [_Skeleton(added).visit(tree) for tree in (base, head)]
    differs = ast.dump(rest[0]) != ast.dump(rest[1])
    return names, [f"{path} changes outside the bodies of functions"] if differs else []


def _is_helper(name: str, before: _Bodies, after: _Bodies) -> bool:
    """Whether a function that one has is private, and has a name that the other has nowhere."""
    last = name.rpartition(".")[2]
    lacking = after if name in before else before
    return (
        last.startswith("_")
        and not last.startswith("__")
        and not any(last in mentioned for mentioned, _ in lacking.values())
    )


def _functions(tree: ast.Module) -> _Bodies:
    """What each function mentions, and its body, by its qualified name."""
    found: _Bodies = {}
    for outer, nodes in [
        ("", tree.body),
        *((f"{each.name}.", each.body) for each in tree.body if isinstance(each, ast.ClassDef)),
    ]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                body = ast.Module(_without_docstring(node.body), [])
                mentioned = {
                    getattr(each, "id", None) or getattr(each, "attr", None)
                    for each in ast.walk(node)
                }
                found[outer + node.name] = mentioned, ast.dump(body)
    return found


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


class _Skeleton(ast.NodeTransformer):
    """A module without the bodies of its functions, and without helpers."""

    def __init__(self, helpers: set[str]) -> None:
        self._helpers, self._outer = helpers, ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        outer, self._outer = self._outer, f"{node.name}."
        node.body = [each for each in map(self.visit, _without_docstring(node.body)) if each]
        self._outer = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef | None:
        node.body = []
        return None if self._outer + node.name in self._helpers else node

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = [each for each in map(self.visit, _without_docstring(node.body)) if each]
        return node


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

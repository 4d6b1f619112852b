"""How far a change reaches: which functions have the text of the base, with all that they call."""

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CORE = "vllm/v1/core"
"""Managers, coordinators, block pool, start-up and schedulers."""

_Key = tuple[str, str]


@dataclass(frozen=True)
class Reach:
    """How far a change reaches, by the names that definitions mention.

    A function that mentions a name may call, construct or read whatever has that name.

    Attributes:
        changed: what the head defines otherwise than the base, or only one of them defines, by path
            and qualified name: functions, classes, and what statements bind.
        callers: other functions of `CORE` that mention one of these, or one that does, and so on.
        same: the number of those that do not: their text is the base's, and so is that of all that
            they can call. Comments and docstrings do not count.
    """

    changed: tuple[_Key, ...]
    callers: tuple[str, ...]
    same: int


@dataclass(frozen=True)
class _Definition:
    text: str
    mentions: frozenset[str]
    names: frozenset[str]
    is_function: bool


def reach(base: Path, head: Path, elsewhere: Iterable[str] = ()) -> Reach:
    """How far the head's changes in `CORE`, and in the files ``elsewhere``, reach in `CORE`."""
    before, after = _defined(base, elsewhere), _defined(head, elsewhere)
    keys = dict.fromkeys((*before, *after))
    changed = [key for key in keys if _text(before.get(key)) != _text(after.get(key))]
    of_changed = [side[key] for key in changed for side in (before, after) if key in side]
    names = {name for each in of_changed for name in each.names}
    left = {key: each for key, each in after.items() if key not in changed}
    while more := [k for k, each in left.items() if each.mentions & names or _ANYTHING in names]:
        names.update(name for key in more for name in left.pop(key).names)
    own = {key for key in {*after}.difference(changed) if after[key].is_function and _in_core(key)}
    callers = (name for _, name in sorted(own.difference(left)))
    return Reach(tuple(changed), tuple(callers), len(own.intersection(left)))


def _in_core(key: _Key) -> bool:
    return key[0].startswith(f"{CORE}/")


def _text(definition: _Definition | None) -> str:
    return definition.text if definition else ""


def _defined(root: Path, elsewhere: Iterable[str]) -> dict[_Key, _Definition]:
    core = {
        (Path(folder) / name).relative_to(root).as_posix()
        for folder, _, names in os.walk(root / CORE, followlinks=True)
        for name in names
        if name.endswith(".py")
    }
    return {
        (path, name): definition
        for path in sorted(core.union(elsewhere))
        if path.startswith("vllm/") and (root / path).is_file()
        for name, definition in _definitions((root / path).read_text("utf-8")).items()
    }


_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
_ANYTHING = "*"
"""The name of what is called without being mentioned, such as ``__len__``."""
_CONSTRUCTS = ("__init__", "__new__", "__post_init__")


@cache
def _definitions(text: str) -> dict[str, _Definition]:
    """What a module defines, by qualified name; what has a name twice is one definition."""
    found: dict[str, _Definition] = {}
    bases: dict[str, frozenset[str]] = {}
    for outer, name, node in _statements(ast.parse(text).body, ""):
        mentions, names = frozenset(_mentioned(node)), _names(outer, name, node)
        if isinstance(node, ast.ClassDef):
            inherited = [each for base in node.bases for each in _mentioned(_unsubscripted(base))]
            bases[f"{outer}.{name}".lstrip(".")] = frozenset(inherited)
        if "super" in mentions:
            mentions |= bases.get(outer, frozenset())
        before = found.get(key := f"{outer}.{name}".lstrip("."))
        text = (before.text if before else "") + ast.dump(node)
        if before:
            mentions, names = mentions | before.mentions, names | before.names
        found[key] = _Definition(text, mentions, names, isinstance(node, _FUNCTIONS))
    return found


def _statements(body: list[ast.stmt], outer: str) -> Iterator[tuple[str, str, ast.AST]]:
    """The class around, the name and the statement of each definition."""
    for node in body:
        match node:
            case ast.Expr(ast.Constant(str())):
                continue  # a docstring
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _drop_docstrings(node)
                yield outer, node.name, node
            case ast.ClassDef():
                inner, node.body = node.body, []
                yield outer, node.name, node
                yield from _statements(inner, f"{outer}.{node.name}".lstrip("."))
            case ast.Import(names) | ast.ImportFrom(names=names):
                for each in names:
                    node.names = [each]
                    yield outer, (each.asname or each.name).partition(".")[0], node
            case ast.If(orelse=others) | ast.Try(orelse=others):
                yield from _statements([*node.body, *others], outer)
                node.body, node.orelse = [], []
                yield outer, "", node
            case _:
                bound = {
                    each.id
                    for each in ast.walk(node)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                }
                yield from ((outer, name, node) for name in sorted(bound) or ("",))


def _unsubscripted(base: ast.expr) -> ast.expr:
    """A base class without its type arguments, which are not called."""
    return base.value if isinstance(base, ast.Subscript) else base


def _drop_docstrings(function: ast.AST) -> None:
    for node in ast.walk(function):
        match node:
            case ast.FunctionDef(body=[ast.Expr(ast.Constant(str())), *rest]):
                node.body = rest or [ast.Pass()]


def _names(outer: str, name: str, node: ast.AST) -> frozenset[str]:
    """The names by which it is called, constructed or read."""
    own = outer.rpartition(".")[2]
    if name in _CONSTRUCTS:
        return frozenset({own})
    if not name or (name.startswith("__") and isinstance(node, _FUNCTIONS)):
        return frozenset({_ANYTHING})
    # An attribute of a class may be a parameter of its constructor.
    return frozenset({name} if isinstance(node, _FUNCTIONS) or not own else {name, own})


def _mentioned(node: ast.AST) -> Iterator[str]:
    """The names in what runs: annotations of functions do not."""
    pending = [node]
    while pending:
        each = pending.pop()
        types = ("annotation", "returns") if isinstance(node, _FUNCTIONS) else ()
        for name, value in ast.iter_fields(each):
            children = value if isinstance(value, list) else [value]
            pending += [c for c in children if isinstance(c, ast.AST) and name not in types]
        match each:
            case ast.Name(name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(str(name)) if name.isidentifier():
                yield name
            case ast.alias(name):
                yield name.rpartition(".")[2]

"""Generates single-point mutants of Python functions, and runs them in place.

A mutant differs from the function in one operator, operand, constant, condition or jump. It
replaces the function's code object, so that every module that imported it runs the mutant.
"""

import ast
import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from textwrap import indent
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar


class Change(StrEnum):
    """What is changed."""

    COMPARE = "compare"
    ARITHMETIC = "arithmetic"
    BOOLEAN = "boolean"
    CONSTANT = "constant"
    BRANCH = "branch"
    JUMP = "break or continue"
    CHOICE = "min or max"
    ARGUMENTS = "arguments"
    FIELD = "field"


_OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv, ast.Add),
    ast.FloorDiv: (ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
_OURS = "hitproof."
_NAMES = {
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "lcm": "gcd",
    "for_each": "for_some",
    "for_some": "for_each",
}
_FIELDS = ("lookahead", "segment", "tail")


@dataclass(frozen=True)
class Mutant:
    """One function with one change.

    Attributes:
        name: stable as long as the function's text is: the function and what was changed.
        function: the function as it is, whose code is replaced.
        code: the code of the mutant.
        change: the kind of change.
        before: the statement that is changed, on one line; of a compound one, its head.
        after: the same statement in the mutant.
        lines: the statement's first and last line in its file.
        probe: where the change takes effect on a condition only, makes the code of the function as
            it is that records whether the condition held; else None.
        text: gives the text of the module with the change, if there is one.
    """

    name: str
    function: FunctionType
    code: CodeType
    change: StrEnum
    before: str
    after: str
    lines: tuple[int, int]
    probe: Callable[[], CodeType] | None = None
    text: Callable[[], str] | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The function is the mutant as long as this lasts."""
        original = self.function.__code__
        self.function.__code__ = self.code
        try:
            yield
        finally:
            self.function.__code__ = original


def mutants(module: ModuleType, wanted: Collection[str] | None = None) -> Iterator[Mutant]:
    """All mutants of the functions and methods that the module defines.

    ``wanted`` limits them to functions with these qualified names. Signatures, docstrings, and
    what is raised or asserted are not mutated: they state no value.
    """
    source = inspect.getsource(module)
    for path, node in defined_functions(ast.parse(source)):
        names = [scope.name for scope in path] + [node.name]
        qualified = ".".join(names)
        if wanted is not None and qualified not in wanted:
            continue
        function = function_of(module, names)
        seen: dict[str, int] = {}
        for place, changed, change in _changes(node):
            mutated = deepcopy(node)
            before, statement = _replace(mutated, place, changed)
            words = f"{before} -> {ast.unparse(changed)}"
            seen[words] = seen.get(words, 0) + 1
            again = f" #{seen[words]}" if seen[words] > 1 else ""
            yield Mutant(
                name=f"{module.__name__.removeprefix(_OURS)}.{qualified}: {words}{again}",
                function=function,
                code=compiled(mutated, path, module, function.__code__.co_qualname),
                change=change,
                before=head_of(_at(node, statement)),
                after=head_of(_at(mutated, statement)),
                lines=lines_of(_at(node, statement)),
                text=partial(_rewritten, source, node, mutated),
            )


def _rewritten(text: str, node: ast.FunctionDef, mutated: ast.FunctionDef) -> str:
    """The text of a module with another definition of a function."""
    lines = text.splitlines(keepends=True)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    definition = indent(ast.unparse(mutated), " " * node.col_offset)
    return "".join([*lines[: first - 1], definition, "\n", *lines[node.end_lineno :]])


def function_of(module: ModuleType, path: Collection[str]) -> FunctionType:
    """The function of that name as it is defined, whatever binds it."""
    found: Any = module
    for name in path:
        found = inspect.getattr_static(found, name)
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType)
    return function


def compiled(
    function: ast.FunctionDef, path: tuple[ast.ClassDef, ...], module: ModuleType, qualified: str
) -> CodeType:
    """The code of a function in the classes around it."""
    node: ast.stmt = function
    for scope in reversed(path):
        outer = copy(scope)
        outer.body = [node]
        node = outer
    tree = ast.fix_missing_locations(ast.Module([node], []))
    code = compile(tree, module.__file__ or "", "exec", dont_inherit=True)
    return _find(code, qualified)


_Node = TypeVar("_Node", bound=ast.AST)
_Place: TypeAlias = tuple[tuple[str, int | None], ...]
"""The path from a function's node to a node below it: fields, with an index in lists."""


def defined_functions(
    tree: ast.AST, path: tuple[ast.ClassDef, ...] = ()
) -> Iterator[tuple[tuple[ast.ClassDef, ...], ast.FunctionDef]]:
    """The functions and methods of a module, each with the classes around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            if not any(ast.unparse(base) == "Protocol" for base in node.bases):
                yield from defined_functions(node, (*path, node))
        elif isinstance(node, ast.FunctionDef):
            yield path, node


def _changes(function: ast.FunctionDef) -> Iterator[tuple[_Place, ast.AST, Change]]:
    for place, node in _nodes(function, ()):
        if place[0][0] == "body":
            yield from ((place, changed, change) for changed, change in single_points(node))
            # The negation of one comparison is among its changes.
            if isinstance(node, ast.If | ast.While) and not _is_negated(node.test):
                yield (*place, ("test", None)), ast.UnaryOp(ast.Not(), node.test), Change.BRANCH


def _is_negated(test: ast.expr) -> bool:
    """Whether the changes of the condition negate it already."""
    match test:
        case ast.Compare(ops=[_]) | ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _nodes(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.AST]]:
    for name, value in ast.iter_fields(node):
        several = value if isinstance(value, list) else [value]
        for index, child in enumerate(several):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if name in ("annotation", "returns"):
                continue
            here = (*place, (name, index if isinstance(value, list) else None))
            yield here, child
            yield from _nodes(child, here)


def single_points(node: ast.AST) -> Iterator[tuple[ast.AST, Change]]:
    """The node with one change, in every way."""
    match node:
        case ast.Compare(ops=operators):
            for index, operator in enumerate(operators):
                for other in _OPERATORS[type(operator)]:
                    ops = [*operators[:index], other(), *operators[index + 1 :]]
                    yield _with(node, ops=ops), Change.COMPARE
        case ast.BinOp(left=left, op=operation, right=right):
            for other in _OPERATORS.get(type(operation), ()):
                yield _with(node, op=other()), Change.ARITHMETIC
            yield left, Change.ARITHMETIC
            yield right, Change.ARITHMETIC
        case ast.BoolOp(op=operation, values=values):
            for other in _OPERATORS[type(operation)]:
                yield _with(node, op=other()), Change.BOOLEAN
            for dropped in range(len(values)):
                rest = values[:dropped] + values[dropped + 1 :]
                yield rest[0] if len(rest) == 1 else _with(node, values=rest), Change.BOOLEAN
        case ast.AugAssign(op=operation):
            for other in _OPERATORS.get(type(operation), ()):
                yield _with(node, op=other()), Change.ARITHMETIC
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand, Change.BOOLEAN
        case ast.UnaryOp(operand=operand):
            yield operand, Change.ARITHMETIC
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body), Change.BRANCH
            yield body, Change.BRANCH
            yield orelse, Change.BRANCH
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value), Change.BOOLEAN
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1), Change.CONSTANT
            yield ast.Constant(value - 1), Change.CONSTANT
        case ast.Call(func=function, args=arguments):
            match function:
                case ast.Name(id=name) if name in _NAMES:
                    yield _with(node, func=_with(function, id=_NAMES[name])), Change.CHOICE
                case ast.Attribute(attr=name) if name in _NAMES:
                    yield _with(node, func=_with(function, attr=_NAMES[name])), Change.CHOICE
            for first in range(len(arguments) - 1):
                one, other_one = arguments[first : first + 2]
                swapped = [*arguments[:first], other_one, one, *arguments[first + 2 :]]
                yield _with(node, args=swapped), Change.ARGUMENTS
            for keyword in range(len(node.keywords)):
                rest_of = node.keywords[:keyword] + node.keywords[keyword + 1 :]
                yield _with(node, keywords=rest_of), Change.ARGUMENTS
            if len(arguments) == 2:  # max(a, b) becomes a, and b
                is_choice = isinstance(function, ast.Name) and function.id in _NAMES
                change = Change.CHOICE if is_choice else Change.ARGUMENTS
                alone = (each for each in arguments if not isinstance(each, ast.Starred))
                yield from ((argument, change) for argument in alone)
        case ast.GeneratorExp(generators=[loop, *others]) | ast.SetComp(generators=[loop, *others]):
            for condition in range(len(loop.ifs)):
                ifs = loop.ifs[:condition] + loop.ifs[condition + 1 :]
                changed = ast.comprehension(loop.target, loop.iter, ifs, loop.is_async)
                yield _with(node, generators=[changed, *others]), Change.BRANCH
        case ast.Attribute(attr=attribute) if attribute in _FIELDS:
            for field in _FIELDS:
                if field != attribute:
                    yield _with(node, attr=field), Change.FIELD
        case ast.Break():
            yield ast.Continue(), Change.JUMP
        case ast.Continue():
            yield ast.Break(), Change.JUMP


def _with(node: _Node, **fields: Any) -> _Node:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replace(function: ast.FunctionDef, place: _Place, changed: ast.AST) -> tuple[str, _Place]:
    """Put the changed node in its place; returns what was there, and the place of its statement."""
    parent: Any = function
    statement: _Place = ()
    for length, (name, index) in enumerate(place, 1):
        child = getattr(parent, name) if index is None else getattr(parent, name)[index]
        if isinstance(child, ast.stmt):
            statement = place[:length]
        if length < len(place):
            parent = child
    if index is None:
        setattr(parent, name, changed)
    else:
        getattr(parent, name)[index] = changed
    return ast.unparse(child), statement


def _at(function: ast.FunctionDef, place: _Place) -> ast.stmt:
    node: Any = function
    for name, index in place:
        node = getattr(node, name) if index is None else getattr(node, name)[index]
    assert isinstance(node, ast.stmt)
    return node


_BODIES = ("body", "orelse", "handlers", "finalbody", "cases")


def head_of(statement: ast.stmt) -> str:
    """A statement on one line, without the statements in it."""
    head = copy(statement)
    for name in _BODIES:
        if hasattr(head, name):
            setattr(head, name, [])
    return ast.unparse(head).strip()


def lines_of(statement: ast.stmt) -> tuple[int, int]:
    """The first and the last line of a statement, without the statements in it."""
    bodies = [child for name in _BODIES for child in getattr(statement, name, [])]
    last = statement.end_lineno or statement.lineno
    lines = (getattr(child, "pattern", child).lineno for child in bodies)  # a case has none
    first_inner = min(lines, default=last + 1)
    return statement.lineno, max(statement.lineno, min(last, first_inner - 1))


def _find(code: CodeType, qualified: str) -> CodeType:
    """The code of a function within the code of its module."""
    pending = [code]
    while pending:
        candidate = pending.pop()
        if candidate.co_qualname == qualified:
            return candidate
        pending += [constant for constant in candidate.co_consts if isinstance(constant, CodeType)]
    raise LookupError(qualified)

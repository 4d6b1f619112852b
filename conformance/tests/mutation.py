"""Generates single-point mutants of Python functions, and runs them in place.

A mutant differs from the function in one operator, operand, constant or condition. It replaces
the function's code object, so that whoever imported the function runs the mutant.
"""

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

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
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any", "lcm": "gcd"}
_FIELDS = ("lookahead", "segment", "tail")


@dataclass(frozen=True)
class Mutant:
    """One function with one change.

    Attributes:
        name: stable as long as the function's text is: the function and what was changed.
        function: the function as it is, whose code is replaced.
        code: the code of the mutant.
    """

    name: str
    function: FunctionType
    code: CodeType

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The function is the mutant as long as this lasts."""
        original = self.function.__code__
        self.function.__code__ = self.code
        try:
            yield
        finally:
            self.function.__code__ = original


def mutants(module: ModuleType) -> Iterator[Mutant]:
    """All mutants of the functions and methods that the module defines.

    Signatures, docstrings and what is raised are not mutated: they state no value.
    """
    tree = ast.parse(inspect.getsource(module))
    for path, node in _functions(tree):
        qualified = ".".join(path)
        function: Any = module
        for name in path:
            function = inspect.getattr_static(function, name)
        seen: dict[str, int] = {}
        for place, changed in _changes(node):
            mutated = deepcopy(tree)
            target = next(n for p, n in _functions(mutated) if p == path)
            before = _replace(target, place, changed)
            change = f"{before} -> {ast.unparse(changed)}"
            seen[change] = seen.get(change, 0) + 1
            again = f" #{seen[change]}" if seen[change] > 1 else ""
            code = compile(ast.fix_missing_locations(mutated), module.__file__ or "", "exec")
            name = f"{module.__name__}.{qualified}: {change}{again}"
            yield Mutant(name, function, _find(code, function.__code__.co_qualname))


_Place = tuple[tuple[str, int | None], ...]
"""The way from a function's node to a node below it: fields, with an index in lists."""


def _functions(
    tree: ast.AST, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            if not any(ast.unparse(base) == "Protocol" for base in node.bases):
                yield from _functions(node, (*path, node.name))
        elif isinstance(node, ast.FunctionDef):
            yield (*path, node.name), node


def _changes(function: ast.FunctionDef) -> Iterator[tuple[_Place, ast.expr]]:
    for place, node in _expressions(function, ()):
        if place[0][0] == "body":
            yield from ((place, changed) for changed in _changed(node))


def _expressions(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, ast.expr]]:
    for name, value in ast.iter_fields(node):
        several = value if isinstance(value, list) else [value]
        for index, child in enumerate(several):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if name == "annotation":
                continue
            here = (*place, (name, index if isinstance(value, list) else None))
            if isinstance(child, ast.expr):
                yield here, child
            yield from _expressions(child, here)


def _changed(node: ast.expr) -> Iterator[ast.expr]:
    """The node with one change, in every way."""
    match node:
        case ast.Compare(ops=operators):
            for index, operator in enumerate(operators):
                for other in _OPERATORS[type(operator)]:
                    yield _with(node, ops=[*operators[:index], other(), *operators[index + 1 :]])
        case ast.BinOp(left=left, op=operation, right=right):
            for other in _OPERATORS[type(operation)]:
                yield _with(node, op=other())
            yield left
            yield right
        case ast.BoolOp(op=operation, values=values):
            for other in _OPERATORS[type(operation)]:
                yield _with(node, op=other())
            for dropped in range(len(values)):
                rest = values[:dropped] + values[dropped + 1 :]
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
            yield body
            yield orelse
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call(func=function, args=arguments):
            match function:
                case ast.Name(id=name) if name in _NAMES:
                    yield _with(node, func=_with(function, id=_NAMES[name]))
                case ast.Attribute(attr=name) if name in _NAMES:
                    yield _with(node, func=_with(function, attr=_NAMES[name]))
            for first in range(len(arguments) - 1):
                one, other_one = arguments[first : first + 2]
                swapped = [*arguments[:first], other_one, one, *arguments[first + 2 :]]
                yield _with(node, args=swapped)
            for keyword in range(len(node.keywords)):
                rest_of = node.keywords[:keyword] + node.keywords[keyword + 1 :]
                yield _with(node, keywords=rest_of)
            if len(arguments) == 2:
                yield from arguments  # max(a, b) becomes a, and b
        case ast.GeneratorExp(generators=[loop, *others]) | ast.SetComp(generators=[loop, *others]):
            for condition in range(len(loop.ifs)):
                ifs = loop.ifs[:condition] + loop.ifs[condition + 1 :]
                changed = ast.comprehension(loop.target, loop.iter, ifs, loop.is_async)
                yield _with(node, generators=[changed, *others])
        case ast.Attribute(attr=attribute) if attribute in _FIELDS:
            for field in _FIELDS:
                if field != attribute:
                    yield _with(node, attr=field)


def _with(node: ast.expr, **fields: Any) -> ast.expr:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replace(function: ast.FunctionDef, place: _Place, changed: ast.expr) -> str:
    """Put the changed node in its place; returns what was there."""
    parent: Any = function
    for name, index in place[:-1]:
        parent = getattr(parent, name) if index is None else getattr(parent, name)[index]
    name, index = place[-1]
    if index is None:
        before = getattr(parent, name)
        setattr(parent, name, changed)
    else:
        before = getattr(parent, name)[index]
        getattr(parent, name)[index] = changed
    return ast.unparse(before)


def _find(code: CodeType, qualified: str) -> CodeType:
    """The code of a function within the code of its module."""
    pending = [code]
    while pending:
        candidate = pending.pop()
        if candidate.co_qualname == qualified:
            return candidate
        pending += [constant for constant in candidate.co_consts if isinstance(constant, CodeType)]
    raise LookupError(qualified)

"""The expressions of one Python function as JavaScript."""

import ast
import builtins
import inspect
from collections.abc import Callable
from enum import StrEnum
from json import dumps
from types import FunctionType, ModuleType
from typing import Any, Protocol


class CannotTranslate(Exception):
    """Code that there is no translation for; the message names it."""


class World(Protocol):
    """Where names lead to."""

    attributes: set[str]

    def reference(self, thing: Any, name: str) -> str:
        """The JavaScript for what a name stands for."""


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[str, str], str]] = {
    ast.Eq: "py.eq({}, {})".format,
    ast.NotEq: "!py.eq({}, {})".format,
    ast.Lt: "py.lt({}, {})".format,
    ast.LtE: "py.le({}, {})".format,
    ast.Gt: lambda a, b: f"py.lt({b}, {a})",
    ast.GtE: lambda a, b: f"py.le({b}, {a})",
    ast.In: lambda a, b: f"py.contains({b}, {a})",
    ast.NotIn: lambda a, b: f"!py.contains({b}, {a})",
    ast.Is: "({} === {})".format,
    ast.IsNot: "({} !== {})".format,
}
_RESERVED = frozenset(
    """
    py arguments await break case catch class const continue debugger default delete do else enum
    eval export extends false finally for function if implements import in instanceof interface let
    new null package private protected public return static super switch this throw true try typeof
    undefined var void while with yield
    """.split()  # noqa: SIM905 -- one name a line would fill a page
)
_CONSTANTS = (bool, int, str, type(None))


def local(name: str) -> str:
    """A name of Python that JavaScript can have."""
    return f"{name}_" if name in _RESERVED else name


class Expressions:
    """Translates what stands in one function, whose globals say what its names stand for.

    Attributes:
        where: the function's name, for messages.
        locals: the names of each scope that the current expression is in.
    """

    def __init__(self, world: World, function: FunctionType) -> None:
        self._world = world
        self._globals = function.__globals__
        self.where = f"{function.__module__}.{function.__qualname__}"
        self.locals: list[set[str]] = []
        if function.__closure__:
            raise CannotTranslate(f"{self.where} is defined inside another function")

    # --- expressions

    def truth(self, node: ast.expr) -> str:
        """A condition, as a truth value of JavaScript."""
        match node:
            case ast.BoolOp(operator, values):
                sign = " && " if isinstance(operator, ast.And) else " || "
                return f"({sign.join(map(self.truth, values))})"
            case ast.UnaryOp(ast.Not(), value):
                return f"!{self.truth(value)}"
            case ast.Compare():
                return f"({self.expression(node)})"
        return f"py.truth({self.expression(node)})"

    def expression(self, node: ast.expr) -> str:
        """Any expression."""
        match node:
            case ast.Constant(value) if isinstance(value, _CONSTANTS):
                return dumps(value)
            case ast.Name(name):
                return self._name(name, node)
            case ast.Attribute(value, name):
                return self._attribute(node, value, name)
            case ast.Call():
                return self._call(node)
            case ast.BinOp(left, operator, right):
                sides = self.expression(left), self.expression(right)
                return self.operation(operator, *sides, node)
            case ast.UnaryOp(ast.USub(), value):
                return f"py.neg({self.expression(value)})"
            case ast.UnaryOp(ast.Not()):
                return self.truth(node)
            case ast.BoolOp(operator, values):
                return self._either(operator, values)
            case ast.Compare(left, operators, others):
                return self._compared(left, operators, others)
            case ast.IfExp(test, body, orelse):
                return f"({self.truth(test)} ? {self.expression(body)} : {self.expression(orelse)})"
            case ast.JoinedStr(values):
                return f"[{', '.join(map(self._said, values))}].join('')"
            case ast.Tuple(parts) | ast.List(parts):
                return f"[{self._listed(parts)}]"
            case ast.Set(parts):
                return f"py.frozenset([{self._listed(parts)}])"
            case ast.Dict(names, values) if None not in names:
                pairs = zip(names, values, strict=True)
                told = (f"[{self.expression(a)}, {self.expression(b)}]" for a, b in pairs if a)
                return f"py.dict([{', '.join(told)}])"
            case ast.Subscript(things, ast.Slice(start, stop, None)):
                ends = f"{self.bound(start)}, {self.bound(stop)}"
                return f"py.slice({self.expression(things)}, {ends})"
            case ast.Subscript(things, index):
                return f"py.item({self.expression(things)}, {self.expression(index)})"
            case ast.Lambda(arguments, body):
                given = self.given(arguments)
                return f"(({given}) => {self._within(arguments.args, body)})"
            case ast.GeneratorExp(element, generators):
                return self._generated(element, generators)
            case ast.ListComp(element, generators):
                return f"py.list({self._generated(element, generators)})"
            case ast.SetComp(element, generators):
                return f"py.frozenset({self._generated(element, generators)})"
            case ast.DictComp(name, value, generators):
                pair = ast.copy_location(ast.Tuple([name, value], ast.Load()), node)
                return f"py.dict({self._generated(pair, generators)})"
        raise self.no(node)

    def _listed(self, parts: list[ast.expr]) -> str:
        return ", ".join(map(self._argument, parts))

    def _argument(self, node: ast.expr) -> str:
        if isinstance(node, ast.Starred):
            return f"...py.iter({self.expression(node.value)})"
        return self.expression(node)

    def bound(self, node: ast.expr | None) -> str:
        """An end of a slice."""
        return "null" if node is None else self.expression(node)

    def _said(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(str() as text):
                return dumps(text)
            case ast.FormattedValue(value, -1, None):
                return f"py.str({self.expression(value)})"
            case ast.FormattedValue(value, 114, None):
                return f"py.repr({self.expression(value)})"
        raise self.no(node)

    def _either(self, operator: ast.boolop, values: list[ast.expr]) -> str:
        *before, last = values
        name = "both" if isinstance(operator, ast.And) else "otherwise"
        found = self.expression(last)
        for value in reversed(before):
            found = f"py.{name}({self.expression(value)}, () => {found})"
        return found

    def _compared(self, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]) -> str:
        """Comparisons in a chain; what stands between two is computed twice, without effect."""
        sides = [self.expression(each) for each in (left, *others)]
        tests = []
        for operator, one, other in zip(operators, sides, sides[1:], strict=False):
            tests.append(_COMPARISONS[type(operator)](one, other))
        return tests[0] if len(tests) == 1 else f"({' && '.join(tests)})"

    def operation(self, operator: ast.operator, left: str, right: str, node: ast.AST) -> str:
        """An operation on two values."""
        if type(operator) not in _OPERATORS:
            raise self.no(node)
        return f"py.{_OPERATORS[type(operator)]}({left}, {right})"

    def _generated(self, element: ast.expr, generators: list[ast.comprehension]) -> str:
        """A generator; ``this`` is not used in it, since methods name their own first argument."""
        opened, closed = "", ""
        scopes = 0
        for at, each in enumerate(generators):
            things = self.expression(each.iter)
            targets = {n.id for n in ast.walk(each.target) if isinstance(n, ast.Name)}
            self.locals.append(targets)
            scopes += 1
            item = f"each_{at}"
            declared = ", ".join(sorted(map(local, targets)))
            opened += f"for (const {item} of py.iter({things})) {{ let {declared}; "
            opened += self.assigned(each.target, item) + " "
            for test in each.ifs:
                opened += f"if (!{self.truth(test)}) continue; "
            closed += "}"
        yielded = self.expression(element)
        del self.locals[-scopes:]
        return f"(function* () {{ {opened}yield {yielded}; {closed} }})()"

    def assigned(self, target: ast.expr, value: str) -> str:
        """An assignment; the names are declared elsewhere."""
        match target:
            case ast.Name(name):
                return f"{local(name)} = {value};"
            case ast.Tuple(parts) | ast.List(parts):
                pattern, counts = self._pattern(parts)
                return f"({pattern} = py.unpack({value}, {counts}));"
            case ast.Subscript(things, ast.Slice(start, stop, None)):
                ends = self.bound(start), self.bound(stop)
                return f"py.splice({self.expression(things)}, {', '.join(ends)}, {value});"
            case ast.Subscript(things, index):
                return f"py.put({self.expression(things)}, {self.expression(index)}, {value});"
        raise self.no(target)

    def _pattern(self, parts: list[ast.expr]) -> tuple[str, str]:
        """What JavaScript assigns to, and how many values each of its parts takes."""
        names, counts = [], []
        for part in parts:
            match part:
                case ast.Name(name):
                    names.append(local(name))
                    counts.append("1")
                case ast.Starred(ast.Name(name)) if part is parts[-1]:
                    names.append(f"...{local(name)}")
                    counts.append("null")
                case ast.Tuple(inner):
                    pattern, inside = self._pattern(inner)
                    names.append(pattern)
                    counts.append(inside)
                case _:
                    raise self.no(part)
        return f"[{', '.join(names)}]", f"[{', '.join(counts)}]"

    def _within(self, arguments: list[ast.arg], body: ast.expr) -> str:
        self.locals.append({each.arg for each in arguments})
        found = self.expression(body)
        self.locals.pop()
        return found

    def given(self, arguments: ast.arguments) -> str:
        """The parameters of a function, with their defaults."""
        if arguments.kwonlyargs or arguments.kwarg or arguments.posonlyargs:
            raise CannotTranslate(f"{self.where} takes arguments by name only, or any")
        names = [local(each.arg) for each in arguments.args]
        for at, default in enumerate(reversed(arguments.defaults), 1):
            names[-at] += f" = {self.expression(default)}"
        if arguments.vararg:
            names.append(f"...{local(arguments.vararg.arg)}")
        return ", ".join(names)

    # --- names and calls

    def _is_local(self, name: str) -> bool:
        return any(name in names for names in self.locals)

    def _known(self, node: ast.expr) -> Any:
        """What a name that is not local stands for, or an attribute of such; else `_UNKNOWN`."""
        match node:
            case ast.Name(name) if not self._is_local(name):
                if name in self._globals:
                    return self._globals[name]
                return getattr(builtins, name, _UNKNOWN)
            case ast.Attribute(value, name):
                owner = self._known(value)
                if isinstance(owner, ModuleType | type):
                    return getattr(owner, name, _UNKNOWN)
        return _UNKNOWN

    def _name(self, name: str, node: ast.expr) -> str:
        if self._is_local(name):
            return local(name)
        thing = self._known(node)
        if thing is _UNKNOWN:
            raise self.no(node)
        if isinstance(thing, type) and issubclass(thing, StrEnum):
            return f"[{', '.join(dumps(str(member)) for member in thing)}]"
        return self._world.reference(thing, name)

    def _attribute(self, node: ast.expr, value: ast.expr, name: str) -> str:
        known = self._known(node)
        if known is not _UNKNOWN:
            return self._world.reference(known, name)
        self._world.attributes.add(name)
        return f"py.get({self.expression(value)}, {dumps(name)})"

    def _call(self, node: ast.Call) -> str:
        known = self._known(node.func)
        if known is not _UNKNOWN:
            return self._call_known(known, node)
        if node.keywords:
            raise self.no(node)
        given = self._listed(node.args)
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            self._world.attributes.add(name)
            of = self.expression(node.func.value)
            return f"py.call({', '.join(filter(None, (of, dumps(name), given)))})"
        return f"{self.expression(node.func)}({given})"

    def _call_known(self, known: Any, node: ast.Call) -> str:
        if known is isinstance:
            return self._of_type(node)
        given, named = list(map(self._argument, node.args)), node.keywords
        name = getattr(node.func, "id", getattr(node.func, "attr", "it"))
        values = {each.arg: self.expression(each.value) for each in named if each.arg}
        if len(values) != len(named):
            raise self.no(node)
        if isinstance(known, type) and issubclass(known, StrEnum):
            members = self.expression(node.func)
            return f"py.member({members}, {', '.join(given)}, {dumps(known.__name__)})"
        if known in (min, max) and len(given) > 1:
            given = [f"[{', '.join(given)}]"]
        called = self._world.reference(known, name)
        if named:
            given, called = self._bound_by_name(known, called, given, values, node)
        new = "new " if isinstance(known, type) and not called.startswith("py.") else ""
        if called == "py.ValueError":
            new = "new "
        return f"{new}{called}({', '.join(given)})"

    def _of_type(self, node: ast.Call) -> str:
        tests = {int: "isNumber", str: "isString"}
        wanted = tests.get(self._known(node.args[1]))
        if wanted is None:
            raise self.no(node)
        return f"py.{wanted}({self.expression(node.args[0])})"

    def _bound_by_name(
        self, known: Any, called: str, given: list[str], values: dict[str, str], node: ast.Call
    ) -> tuple[list[str], str]:
        """Arguments that are given by name, in their places."""
        if called == "py.replace":
            changes = ", ".join(f"{dumps(name)}: {value}" for name, value in values.items())
            return [*given, f"{{ {changes} }}"], called
        if called == "py.zip" and values == {"strict": "true"}:
            return given, "py.zipStrict"
        if called == "py.sorted" and values.keys() <= {"key", "reverse"}:
            return [*given, values.get("key", "undefined"), values.get("reverse", "false")], called
        if called in {"py.max", "py.min"} and values.keys() == {"default"} and len(given) == 1:
            return [*given, values["default"]], called
        if called.startswith("py."):
            raise self.no(node)
        names = list(inspect.signature(known).parameters)
        wanted = names[len(given) : 1 + max(map(names.index, values))]
        return [*given, *(values.get(name, "undefined") for name in wanted)], called

    def no(self, node: ast.AST) -> CannotTranslate:
        """The error that says what there is no translation for, and where."""
        return CannotTranslate(
            f"{self.where}, line {getattr(node, 'lineno', '?')} of it: there is no translation of "
            f"{type(node).__name__}: {ast.unparse(node)}"
        )


_UNKNOWN = object()

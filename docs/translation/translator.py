"""Python functions as JavaScript, with all that they rest on.

From the functions that are asked for, the translation follows every name to what it stands for: the
functions, classes and constants of this repository. It goes through their syntax trees, and fails
on whatever it has no translation for (`CannotTranslate`). Operations become calls of
``runtime.js``, which gives them Python's meaning, so that e.g. ``//`` rounds down below zero, too.
"""

import ast
import dataclasses
import inspect
import math
import textwrap
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property, partial
from json import dumps
from pathlib import Path
from types import FunctionType
from typing import Any

from docs.translation.expressions import CannotTranslate, local
from docs.translation.statements import Statements

RUNTIME = Path(__file__).with_name("runtime.js")

_BUILTINS = (
    *(all, any, bool, enumerate, filter, frozenset, int, len, list, map, max, min, next, range),
    *(repr, set, sorted, str, sum, zip),
)
_CALLABLE: dict[Any, str] = {
    **{each: f"py.{each.__name__}" for each in _BUILTINS},
    dict: "py.dict",
    tuple: "py.list",
    dict.fromkeys: "py.fromkeys",
    frozenset.intersection: "py.intersection",
    math.gcd: "py.gcd",
    math.lcm: "py.lcm",
    partial: "py.partial",
    dataclasses.replace: "py.replace",
}
"""What there is in Python itself, and its counterpart."""


class Translation:
    """What has been translated so far.

    Names of the result begin with those of their modules, so that equal ones do not collide.
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._functions: dict[str, str] = {}
        self._classes: dict[type, dict[str, str]] = {}
        self._constants: dict[str, str] = {}
        self.attributes: set[str] = {"__post_init__"}
        """Every attribute that the translated code names; only such methods are translated."""

    @property
    def functions(self) -> dict[str, str]:
        """What was translated: the names of functions, and their JavaScript."""
        return self._functions

    def script(self, exported: dict[str, Callable[..., Any]]) -> str:
        """A script that defines the functions under their names in ``HITPROOF``."""
        names = {name: self.function(each) for name, each in exported.items()}
        self._methods()
        entries = ", ".join(f"{dumps(name)}: {each}" for name, each in names.items())
        return "\n".join(
            [
                RUNTIME.read_text(encoding="utf-8"),
                'const HITPROOF = (() => {\n"use strict";',
                *map(self._class, self._classes),
                *self._functions.values(),
                *(f"const {name} = {value};" for name, value in self._constants.items()),
                f"return {{ {entries} }};\n}})();\n",
            ]
        )

    # --- what names stand for

    def reference(self, thing: Any, name: str) -> str:
        """The JavaScript for what a name of Python stands for."""
        if isinstance(thing, StrEnum | bool | int | str) or thing is None:
            return literal(thing)
        try:
            if thing in _CALLABLE:
                return _CALLABLE[thing]
        except TypeError:
            pass  # not hashable, so a constant
        if isinstance(thing, FunctionType):
            return self.function(thing)
        if isinstance(thing, type):
            return self.class_name(thing)
        return self._constant(thing, name)

    def function(self, function: Callable[..., Any]) -> str:
        """The name of a translated function."""
        if function not in self._names:
            if not isinstance(function, FunctionType) or not _ours(function):
                raise CannotTranslate(f"{function!r} is not a function of this repository")
            name = _qualified(function)
            self._names[function] = name
            self._functions[name] = ""  # keeps the order, and ends a recursion
            tree = _tree(function)
            assert isinstance(tree, ast.FunctionDef)
            self._functions[name] = self._statements(function).function(tree, name)
        return self._names[function]

    def class_name(self, cls: type) -> str:
        """The name of a translated class."""
        if cls is ValueError:
            return "py.ValueError"
        if not _ours(cls) or issubclass(cls, StrEnum):
            raise CannotTranslate(f"{cls!r} cannot be used as a value")
        if cls not in self._names:
            for base in cls.__bases__:
                if base is not object:
                    self.class_name(base)
            self._names[cls] = _qualified(cls)
            self._classes[cls] = {}
        return self._names[cls]

    def _constant(self, thing: Any, name: str) -> str:
        named = local(f"constant_{name}_{len(self._constants)}")
        value = self._value(thing)
        for other, same in self._constants.items():
            if same == value:
                return other
        self._constants[named] = value
        return named

    def _value(self, thing: Any) -> str:
        match thing:
            case StrEnum() | bool() | int() | str() | None:
                return literal(thing)
            case tuple() | list():
                return f"[{', '.join(map(self._value, thing))}]"
            case dict():
                pairs = (f"[{self._value(a)}, {self._value(b)}]" for a, b in thing.items())
                return f"py.dict([{', '.join(pairs)}])"
            case frozenset() | set():
                return f"py.frozenset([{', '.join(sorted(map(self._value, thing)))}])"
        if dataclasses.is_dataclass(thing):
            values = (getattr(thing, field.name) for field in dataclasses.fields(thing))
            return f"new {self.class_name(type(thing))}({', '.join(map(self._value, values))})"
        if _ours(type(thing)) and not vars(thing):
            return f"new {self.class_name(type(thing))}()"
        raise CannotTranslate(f"the constant {thing!r} cannot be written down")

    # --- classes

    def _methods(self) -> None:
        """Translate the methods that are named anywhere, until they name no others."""
        waiting = True
        while waiting:
            waiting = False
            for cls, done in list(self._classes.items()):
                for name in vars(cls):
                    if name in self.attributes and name not in done:
                        done[name] = ""
                        done[name] = self._method(cls, name)
                        waiting = True

    def _method(self, cls: type, name: str) -> str:
        member = inspect.getattr_static(cls, name)
        kept = isinstance(member, cached_property)
        function = member.func if kept else getattr(member, "fget", member)
        if not isinstance(function, FunctionType):
            return ""  # the default of a field
        tree = _tree(function)
        assert isinstance(tree, ast.FunctionDef)
        allowed = {"property", "cached_property"}
        if any(not isinstance(d, ast.Name) or d.id not in allowed for d in tree.decorator_list):
            raise CannotTranslate(f"{cls.__name__}.{name} is decorated")
        return self._statements(function).method(
            tree, is_property=function is not member, is_cached=kept
        )

    def _class(self, cls: type) -> str:
        name, body = self._names[cls], "\n".join(filter(None, self._classes[cls].values()))
        if issubclass(cls, Exception):
            base = self.class_name(cls.__bases__[0])
            return f"class {name} extends {base} {{}}"
        if cls.__bases__ != (object,):
            raise CannotTranslate(f"{cls.__name__} has a base class")
        if not dataclasses.is_dataclass(cls):
            if "__init__" in vars(cls):
                raise CannotTranslate(f"{cls.__name__} is no dataclass, but has fields")
            return f"class {name} extends py.Instance {{\n{body}\n}}"
        fields = dataclasses.fields(cls)
        if any(field.default_factory is not dataclasses.MISSING for field in fields):
            raise CannotTranslate(f"{cls.__name__} has a field with a default factory")
        given = ", ".join(
            local(each.name)
            + ("" if each.default is dataclasses.MISSING else f" = {self._value(each.default)}")
            for each in fields
        )
        return (
            f"class {name} extends py.Record {{\n"
            f"static fields = {dumps([each.name for each in fields])};\n"
            f"static compared = {dumps([each.name for each in fields if each.compare])};\n"
            f"constructor({given}) {{ super([{', '.join(local(f.name) for f in fields)}]); }}\n"
            f"{body}\n}}"
        )

    def _statements(self, function: FunctionType) -> Statements:
        return Statements(self, function)


def literal(thing: Any) -> str:
    """A plain value."""
    return dumps(str(thing) if isinstance(thing, StrEnum) else thing)


def _ours(thing: Any) -> bool:
    return str(thing.__module__).partition(".")[0] in {"hitproof", "docs"}


def _qualified(thing: Any) -> str:
    module = str(thing.__module__).removeprefix("hitproof.")
    return f"{module}.{thing.__qualname__}".replace(".", "_").replace("<locals>", "")


def _tree(thing: Any) -> ast.stmt:
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError) as error:
        raise CannotTranslate(f"{thing!r} has no source text ({error})") from None
    return ast.parse(textwrap.dedent(source)).body[0]


def translated(exported: dict[str, Callable[..., Any]]) -> str:
    """A script with the functions under their names in ``HITPROOF``. Raises `CannotTranslate`."""
    return Translation().script(exported)

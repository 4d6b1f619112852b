"""The seal: detects that a target changed the code that judges it in its own process.

A target runs in the same process as the checks and may change them, by accident or to pass. The
seal records what the checks consist of before the target is imported, and reports what has changed
since. It detects persistent changes; a target that restores the code before it is checked is not
noticed.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, call, is_not
from types import FunctionType, ModuleType
from typing import Any

_BESIDE = (
    "builtins",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "json",
    "json.decoder",
    "json.encoder",
    "math",
    "operator",
)
"""Modules of the standard library that the verdict depends on."""

_BOUND = (FunctionType, type, ModuleType, property, classmethod, staticmethod)
_CODE, _DEFAULTS = attrgetter("__code__"), attrgetter("__defaults__")


@dataclass(slots=True)
class _Part:
    """A named object, and the function behind it with its parts."""

    name: str
    namespace: Mapping[Any, Any]
    key: Any
    value: Any
    function: FunctionType | None
    code: Any = None
    defaults: Any = None

    def __post_init__(self) -> None:
        if self.function is not None:
            self.code, self.defaults = self.function.__code__, self.function.__defaults__

    def is_as_it_was(self) -> bool:
        if self.namespace.get(self.key) is not self.value:
            return False
        function = self.function
        return function is None or (
            function.__code__ is self.code and function.__defaults__ is self.defaults
        )


class Seal:
    """The current state of the modules of a package and of some of Python's."""

    def __init__(self, package: str) -> None:
        ours = [name for name in sys.modules if name.split(".")[0] == package]
        self._modules = {name: sys.modules[name] for name in (*ours, *_BESIDE)}
        self._parts = [
            part
            for name, module in self._modules.items()
            for part in _of_module(name, vars(module))
        ]
        # In columns, since it is checked before each answer.
        self._lookups = [part.namespace.get for part in self._parts]
        self._keys = [part.key for part in self._parts]
        self._values = [part.value for part in self._parts]
        functions = {id(part.function): part for part in self._parts if part.function is not None}
        self._functions = [part.function for part in functions.values()]
        self._codes = [part.code for part in functions.values()]
        self._defaults = [part.defaults for part in functions.values()]

    def broken(self) -> str:
        """The name of the first object that has changed, or nothing."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                return name
        if self._all_as_it_was():
            return ""
        return next((part.name for part in self._parts if not part.is_as_it_was()), "")

    def _all_as_it_was(self) -> bool:
        codes, defaults = map(_CODE, self._functions), map(_DEFAULTS, self._functions)
        return not (
            True in map(is_not, map(call, self._lookups, self._keys), self._values)
            or True in map(is_not, codes, self._codes)
            or True in map(is_not, defaults, self._defaults)
        )


def _of_module(where: str, namespace: Mapping[Any, Any]) -> Iterator[_Part]:
    """A module's names, those of its classes, and the contents of its tables."""
    yield from _parts(where, namespace)
    for name, value in list(namespace.items()):
        if isinstance(value, type) and value.__module__ == where:
            yield from _parts(f"{where}.{name}", vars(value))
        elif isinstance(value, dict) and not name.startswith("__"):
            for key, held in value.items():
                yield _Part(f"{where}.{name}[{key!r}]", value, key, held, _function(held))


def _parts(where: str, namespace: Mapping[Any, Any]) -> Iterator[_Part]:
    for name, value in list(namespace.items()):
        if callable(value) or isinstance(value, _BOUND):
            yield _Part(f"{where}.{name}", namespace, name, value, _function(value))


def _function(value: Any) -> FunctionType | None:
    found = getattr(value, "__func__", getattr(value, "fget", value))
    return found if isinstance(found, FunctionType) else None

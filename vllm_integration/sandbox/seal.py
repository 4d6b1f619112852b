"""The seal: detects that a target changed the code that judges it in its own process.

A target runs in the same process as the checks and may change them, by accident or to pass. The
seal records what the checks consist of before the target is imported, and reports what has changed
since. It detects persistent changes; a target that restores the code before it is checked is not
noticed.
"""

import sys
from collections.abc import Iterator, Mapping
from ctypes import c_char, c_void_p, sizeof
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter, call, itemgetter
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
        # Together, since it is checked before each answer.
        spaces = [list(some) for _, some in groupby(self._parts, lambda part: id(part.namespace))]
        self._namespaces = [parts[0].namespace for parts in spaces]
        # One key twice, since an itemgetter of a single one gives no tuple.
        self._getters = [itemgetter(*[part.key for part in (*p, p[0])]) for p in spaces]
        self._values = tuple(part.value for p in spaces for part in (*p, p[0]))
        functions = {id(part.function): part for part in self._parts if part.function is not None}
        self._functions = [part.function for part in functions.values()]
        self._codes = tuple(part.code for part in functions.values())
        self._defaults = tuple(part.defaults for part in functions.values())

    def broken(self) -> str:
        """The name of the first object that has changed, or nothing."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                return name
        if self._all_as_it_was():
            return ""
        return next((part.name for part in self._parts if not part.is_as_it_was()), "")

    def _all_as_it_was(self) -> bool:
        try:
            values = tuple(chain.from_iterable(map(call, self._getters, self._namespaces)))
        except KeyError:
            return False
        return (
            _are_same(values, self._values)
            and _are_same(tuple(map(_CODE, self._functions)), self._codes)
            and _are_same(tuple(map(_DEFAULTS, self._functions)), self._defaults)
        )


def _are_same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether they have the same objects, whatever these say that they equal."""
    return _addresses(some) == _addresses(others)


def _addresses(objects: tuple[Any, ...]) -> bytes:
    """The addresses that CPython keeps in a tuple: `is`, for thousands of objects at once."""
    size = len(objects) * sizeof(c_void_p)
    return (c_char * size).from_address(id(objects) + tuple.__basicsize__).raw


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

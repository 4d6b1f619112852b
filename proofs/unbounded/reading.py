"""What a statement about a program rests on, in one digest: two with the same are proved as one.

Functions, classes and modules are followed by name. To a function belong its definition, its
defaults, and each global that it names; to a class or module, whatever is in it under a name that
occurs in some function that was reached. So all that may be read is in the digest, and more than
is. Comments, docstrings and lines are not.
"""

import ast
import functools
import types
from collections.abc import Iterator
from enum import Enum
from hashlib import sha256
from inspect import getattr_static
from typing import Any

from hitproof.proofs.unbounded.source import Unsupported, source_of
from hitproof.proofs.unbounded.terms import Number, Truth
from hitproof.proofs.unbounded.values import Block, Contract, Items, Listing, Marks, Record, Unknown

_TEXTS = frozenset(
    f"__{name}__"
    for name in (
        *("doc", "module", "qualname", "name", "dict", "weakref", "repr", "str", "format"),
        *("reduce", "reduce_ex", "getstate", "sizeof", "dir"),
    )
)
"""Names that nothing which is executed looks up, unless it says so."""
_ITERATING = frozenset(("__iter__", "__next__", "__bool__", "__getattr__", "__get__", "__set__"))
_MAKING = frozenset(("__new__", "__init__"))
"""Names that are looked up where a class is called."""
_IMPLICIT = frozenset(name for of in (type, list, int) for name in dir(of)) | _ITERATING
"""Names that Python looks up unasked, and more."""


def digest(*values: Any) -> str:
    """The digest of values that a statement is made of. Raises `Unsupported` if one is opaque."""
    reading = _Reading()
    told = [reading.symbolic(each) for each in values]
    reading.follow()
    return sha256(repr((told, sorted(reading.told))).encode()).hexdigest()


@functools.cache
def _definition(function: types.FunctionType) -> str:
    """What a function does, without comments, docstring and lines; "" if its source is unknown."""
    try:
        node = source_of(function).definition
    except (Unsupported, OSError):
        return ""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    bare = ast.FunctionDef(
        node.name, node.args, body or [ast.Pass()], node.decorator_list, node.returns
    )
    return ast.dump(bare)


@functools.cache
def _calls_what_it_is_given(function: types.FunctionType) -> bool:
    """Whether a function calls what may be a class that it does not name."""
    own = {name for code in _codes(function.__code__) for name in _variables(code)}
    return "__class__" in _names(function.__code__) or any(
        isinstance(node, ast.Call)
        and not isinstance(node.func, ast.Attribute)
        and not (isinstance(node.func, ast.Name) and node.func.id not in own)
        for node in ast.walk(source_of(function).definition)
    )


def _variables(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames + code.co_cellvars + code.co_freevars


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _names(code: types.CodeType) -> set[str]:
    return {name for each in _codes(code) for name in each.co_names}


class _Reading:
    """What was reached.

    Attributes:
        told: what is said of functions, classes and modules.
    """

    def __init__(self) -> None:
        self.told: set[str] = set()
        self._names = set(_IMPLICIT - _MAKING - _TEXTS)
        self._made: set[type] = set()
        self._makes_any = False
        self._functions: dict[types.FunctionType, None] = {}
        self._holders: dict[type | types.ModuleType, set[str]] = {}
        self._met: dict[int, int] = {}

    def symbolic(self, value: Any) -> Any:
        """What identifies a value of a symbolic execution; objects are told apart."""
        match value:
            case None | bool() | int() | str():
                return value
            case Number() | Truth():
                return repr(value)
            case tuple():
                return tuple(map(self.symbolic, value))
            case Block():
                return "block", repr(value)
            case Unknown():
                return "unknown", value.why
            case Items():
                return "items", self.symbolic(value.length), self._held(value.python_type)
            case Contract():
                return "described"
            case dict():
                return tuple((self.symbolic(key), self.symbolic(value[key])) for key in value)
        if isinstance(value, (Listing, Marks, Record)):
            if id(value) in self._met:
                return "again", self._met[id(value)]
            self._met[id(value)] = len(self._met)
        match value:
            case Listing() if value.items is not None:
                return "list", *map(self.symbolic, value.items)
            case Marks():
                return "set", *map(self.symbolic, value.members)
            case Record():
                told = sorted(value.attributes.items())
                own = [(name, self.symbolic(each)) for name, each in told]
                return self._held(value.python_type), *own
            case types.FunctionType() | types.MethodType() | types.BuiltinFunctionType():
                return self.value(value)
            case type() | Enum() | types.ModuleType():
                return self.value(value)
        raise Unsupported(f"a digest of {value!r:.60}")

    def value(self, value: Any) -> Any:
        """What identifies a value of the program, which is followed later."""
        match value:
            case None | bool() | int() | str():
                return type(value).__name__, str(value)
            case tuple():
                return tuple(map(self.value, value))
            case types.FunctionType():
                self._functions[value] = None
                return "function", value.__module__, value.__qualname__
            case types.MethodType():
                receiver = value.__self__
                held = self._held(receiver) if isinstance(receiver, type) else self.value(receiver)
                return "method", self.value(value.__func__), held
            case classmethod() | staticmethod():
                return type(value).__name__, self.value(value.__func__)
            case property():
                return "property", self.value(value.fget)
            case type():
                self._made.update(value.__mro__)
                return self._held(value)
            case types.ModuleType():
                self._holders.setdefault(value, set())
                return "module", value.__name__
            case Enum():
                return self.value(type(value)), value.name
            case types.UnionType():
                return "union", self.value(value.__args__)
            case types.BuiltinFunctionType():
                return "built-in", value.__module__, value.__qualname__
        arguments = getattr_static(value, "__args__", None)  # what an alias of types is about
        told = self.value(arguments) if isinstance(arguments, tuple) else ()
        return "an object", _called(type(value)), told

    def _held(self, of: type) -> Any:
        """The same of a class that only has instances, and is not called by its name."""
        for each in of.__mro__:
            self._holders.setdefault(each, set())
        return "class", _called(of)

    def follow(self) -> None:
        """Reach all that there is by name."""
        functions, before = 0, -1
        while before < (before := self._size()):
            for each in list(self._functions)[functions:]:
                functions += 1
                self._function(each)
            for holder, known in list(self._holders.items()):
                self._holder(holder, known)
        classes = [each for each in self._holders if isinstance(each, type)]
        for abstract in classes:
            if type(abstract) is not type:  # it may have others registered
                below = sorted(_called(each) for each in classes if issubclass(each, abstract))
                self._tell(_called(abstract), below)

    def _size(self) -> int:
        reached = len(self._functions) + len(self._holders)
        return reached + len(self._names) + len(self._made) + self._makes_any

    def _function(self, function: types.FunctionType) -> None:
        """Follow a function that may be executed."""
        of, definition = self.value(function), _definition(function)
        self._tell(of, definition)
        if not definition:
            return
        self._makes_any = self._makes_any or _calls_what_it_is_given(function)
        free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        cells = [
            self._held(each) if name == "__class__" else self.value(each)  # what super() reads
            for name, each in ((name, _contents(cell)) for name, cell in free)
        ]
        defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()
        self._tell(of, self.value(defaults), cells)
        for name in sorted(_names(function.__code__)):
            self._names.add(name)
            if name in function.__globals__:
                self._tell(of, name, self.value(function.__globals__[name]))

    def _holder(self, holder: type | types.ModuleType, known: set[str]) -> None:
        of = self._held(holder) if isinstance(holder, type) else self.value(holder)
        held = vars(holder)
        if isinstance(holder, type) and not known:
            bases = [_called(each) for each in holder.__mro__]
            self._tell(of, bases, self._held(type(holder)))
        makes = self._makes_any or holder in self._made
        for name in (self._names | _MAKING if makes else self._names) - known:
            known.add(name)
            if name in held:
                self._tell(of, name, self.value(held[name]))

    def _tell(self, *told: Any) -> None:
        self.told.add(repr(told))


def _called(of: type) -> tuple[str, str]:
    return of.__module__, of.__qualname__


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None

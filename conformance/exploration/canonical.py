"""The state of a suspended lookup as a value: equal values have equal futures.

Every frame from the question to the entry is compared: its code and instruction, the variables
that may still be read, and its stack. What these reach is compared by value, with its aliases:
builtin containers and iterators, functions with their closures, suspended generators, and
instances of classes written in Python. Anything else is equal to itself only. What is compared
so, and what is not reached, is the same in all runs, since `conformance.exploration.watch` notices
what changes it.
"""

import itertools
import math
import types
from abc import ABCMeta
from collections.abc import Iterable
from enum import EnumType, Flag
from types import FrameType
from typing import Any, Protocol

from hitproof.conformance.exploration import frames
from hitproof.conformance.exploration.liveness import live_after
from hitproof.conformance.exploration.symbolic import (
    Question,
    SymbolicBlock,
    SymbolicNullBlock,
)

PLAIN = frozenset({type(None), bool, int, str, bytes, type(Ellipsis), type(NotImplemented)})
"""Types whose objects are their value, and no more."""

_SOME: tuple[object, ...] = (
    *(iter([]), iter(()), iter(range(0)), iter(range(1 << 65)), iter(""), iter("\0\u0100")),
    *(iter(b""), reversed([]), reversed(())),
)
ITERATORS: frozenset[type] = frozenset(
    {*map(type, _SOME), zip, enumerate, itertools.islice, itertools.repeat, itertools.cycle}
)
"""Iterators that say all that they hold, without being moved, by ``__reduce__``."""

METACLASSES = frozenset({type, ABCMeta, EnumType, type(Protocol)})
"""Classes of classes whose attributes and objects are as those of `type`."""

_MOST = 20_000
"""Objects that one state may reach."""


class NotAlike(Exception):
    """The state may hold what cannot be seen, so that it equals no other."""


class _Same:
    """Equal to itself only; keeps the object, so that no other gets its address."""

    __slots__ = ("_object",)

    def __init__(self, obj: object) -> None:
        self._object = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._object is other._object

    def __hash__(self) -> int:
        return id(self._object)


class Canonical:
    """Turns what a suspended lookup holds into comparable values.

    Attributes:
        stored: for each block table, which blocks it has in their places. That is not compared.
        walked: the addresses of the objects that are compared by value.
    """

    def __init__(self, constants: Iterable[object], pool: object = None) -> None:
        self._pool = pool
        self._constants = {id(each) for each in constants}
        self._numbers: dict[int, int] = {}
        self._made: list[object] = []  # kept, so that nothing else gets their addresses
        self.stored: list[frozenset[Question]] = []
        self.walked = self._numbers.keys()

    def frames(self, innermost: FrameType, entry: types.CodeType) -> tuple[Any, ...]:
        """The frames from ``innermost`` to the one that ``entry`` calls. Raises `NotAlike`."""
        values = []
        callee: FrameType | None = None
        frame: FrameType | None = innermost
        while frame is not None and frame.f_code is not entry:
            if callee is not None and not frames.is_direct_call(frame, callee):
                raise NotAlike(f"C code calls {callee.f_code.co_qualname}")
            self._numbers[id(frame)] = len(self._numbers)
            values.append(self._frame(frame, running=True))
            callee, frame = frame, frame.f_back
        return tuple(values)

    def _frame(self, frame: FrameType, *, running: bool) -> Any:
        code, at = frame.f_code, frame.f_lasti
        held = frames.stack(frame, running=running)
        if held is None:
            raise NotAlike(f"the stack of {code.co_qualname} is not known")
        live = live_after(code, at)  # which keeps the code
        variables = [(n, self.value(v)) for n, v in frames.variables(frame) if n in live]
        shared = [self.value(each) for each in frames.cells(frame)]
        return (
            *(id(code), id(frame.f_globals), at, tuple(variables), tuple(shared)),
            tuple([None if each is frames.NULL else self.value(each) for each in held]),
        )

    def value(self, obj: Any) -> Any:
        """Equal for objects that are the same to the lookup. Raises `NotAlike`."""
        kind = type(obj)
        if kind in PLAIN:
            return kind, obj
        if kind is float:
            if not math.isfinite(obj):
                raise NotAlike("a number is none, or infinite")
            return kind, obj.hex()  # which has the sign of zero
        address = id(obj)
        if address in self._constants:
            return "constant", address
        if obj is self._pool:
            return "pool"
        if kind is SymbolicBlock or kind is SymbolicNullBlock:
            return "block", obj.question, obj.group_id
        if kind is tuple:
            return kind, tuple([self.value(each) for each in obj])
        if kind is frozenset:
            return kind, self._elements(obj)
        number = self._numbers.get(address)
        if number is not None:
            return "again", number
        how = _comparison(kind)
        if how is None:
            return _Same(obj)
        self._numbers[address] = len(self._numbers)
        if len(self._numbers) > _MOST:
            raise NotAlike("the state reaches too much")
        return how(self, obj)

    def _values(self, objects: Iterable[Any]) -> tuple[Any, ...]:
        return tuple([self.value(each) for each in objects])

    def _list(self, entries: list[Any]) -> Any:
        table = self._table(entries) if type(entries) is list else None
        return table or ("list", self._values(list.__iter__(entries)))

    def _table(self, entries: list[Any]) -> Any:
        """A block table: misplaced entries are compared; which entries are null is forgotten."""
        stored, misplaced = [], []
        owner = None
        held = [pair for pair in enumerate(entries) if type(pair[1]) is not SymbolicNullBlock]
        for position, block in held:
            if type(block) is not SymbolicBlock:
                return None
            question = block.question
            stored.append(question)
            owner = owner or (question[0], block.group_id)
            if question[1] != position or (question[0], block.group_id) != owner:
                misplaced.append((position, question, block.group_id))
        self.stored.append(frozenset(stored))
        return ("table", len(entries), tuple(misplaced))

    def _dict(self, entries: dict[Any, Any]) -> Any:
        # A dict keeps the hash that a key once had, and the places in which equal keys are sought.
        if any(map(_says_its_hash, entries)):
            raise NotAlike("a dict has keys whose class says what equals them")
        items = dict.items(entries)
        return "dict", tuple([(self.value(key), self.value(each)) for key, each in items])

    def _set(self, entries: set[Any]) -> Any:
        return "set", self._elements(entries)

    def _elements(self, entries: set[Any] | frozenset[Any]) -> frozenset[Any]:
        """The elements. The order in which they are visited is not looked at."""
        if not all(map(_is_plain, entries)):
            raise NotAlike("a set has elements that have addresses")
        return frozenset(map(self.value, entries))

    def _iterator(self, iterator: Any) -> Any:
        made = iterator.__reduce__()  # has ranges, say, that are made for it
        self._made.append(made)
        return "iterator", type(iterator), self._values(made)

    def _cell(self, cell: types.CellType) -> Any:
        try:
            return "cell", self.value(cell.cell_contents)
        except ValueError:
            return "cell"

    def _function(self, function: types.FunctionType) -> Any:
        return (
            *("function", _Same(function.__code__), _Same(function.__globals__)),
            self._values((function.__defaults__, function.__kwdefaults__, function.__closure__)),
            self.value(function.__dict__),
        )

    def _method(self, method: types.MethodType) -> Any:
        return "method", self.value(method.__func__), self.value(method.__self__)

    def _builtin_method(self, method: types.BuiltinMethodType) -> Any:
        owner = method.__self__
        if isinstance(owner, types.ModuleType | type):
            return _Same(method)
        return "method", method.__name__, self.value(owner)

    def _generator(self, generator: Any) -> Any:
        frame = generator.gi_frame
        if frame is None:
            return "ended"
        if generator.gi_running:
            return "running", self._numbers.get(id(frame))
        self._numbers[id(frame)] = len(self._numbers)
        inner = self.value(generator.gi_yieldfrom)
        return "generator", self._frame(frame, running=False), inner

    def _instance(self, obj: Any) -> Any:
        kind = type(obj)
        held = [(name, slot.__get__(obj)) for name, slot in _slots(kind) if _filled(slot, obj)]
        value = (kind, self.value(variables_of(obj)), self._values(held))
        return (*value, self._values(tuple.__iter__(obj))) if issubclass(kind, tuple) else value


def _is_plain(element: Any) -> bool:
    kind = type(element)
    return kind in PLAIN or (kind is tuple and all(map(_is_plain, element)))


def _says_its_hash(key: Any) -> bool:
    kind = type(key)
    if isinstance(key, tuple) and any(map(_says_its_hash, tuple.__iter__(key))):
        return True
    return is_plain_class(kind) and type(kind.__hash__) is types.FunctionType


_COMPARISONS: dict[type, Any] = {
    list: Canonical._list,
    dict: Canonical._dict,
    set: Canonical._set,
    range: lambda _, obj: ("range", obj.start, obj.stop, obj.step),
    slice: lambda self, obj: ("slice", self._values((obj.start, obj.stop, obj.step))),
    types.CellType: Canonical._cell,
    types.FunctionType: Canonical._function,
    types.MethodType: Canonical._method,
    types.BuiltinMethodType: Canonical._builtin_method,
    types.GeneratorType: Canonical._generator,
    **dict.fromkeys(ITERATORS, Canonical._iterator),
}


def _comparison(kind: type) -> Any:
    """How objects of that type are compared by value; None if they are not."""
    known = _COMPARISONS.get(kind)
    return Canonical._instance if known is None and is_plain_class(kind) else known


def is_enumeration(kind: type) -> bool:
    """Whether all objects of the class are single ones, which were there before."""
    return type(kind) is EnumType and not issubclass(kind, Flag)


def is_plain_class(kind: type) -> bool:
    """Whether all that objects of the class hold is their variables, slots and entries of a tuple.

    So it is written in Python, and so are its bases, but for `object` and `tuple`; and nothing runs
    when one of its objects is gone.
    """
    known = _PLAIN_CLASSES.get(kind)
    if known is None:
        known = _PLAIN_CLASSES[kind] = _is_plain_class(kind)
    return known


_PLAIN_CLASSES: dict[type, bool] = {}
_HEAP = 1 << 9


def _is_plain_class(kind: type) -> bool:
    if type(kind) not in METACLASSES or is_enumeration(kind):
        return False
    for base in kind.__mro__:
        if base is object or base is tuple:
            continue
        if type(base) not in METACLASSES or not base.__flags__ & _HEAP:
            return False
        for name, each in vars(base).items():
            if type(each) is types.GetSetDescriptorType and name in ("__dict__", "__weakref__"):
                continue
            if name in ("__dict__", "__del__") or not _is_in_python(base, name, each):
                return False
    return kind not in (object, tuple)


_IN_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.BuiltinMethodType, types.GetSetDescriptorType),
)


def _is_in_python(base: type, name: str, each: Any) -> bool:
    """Whether C code runs no other C code when it does what a class says under the name."""
    if name in ("__class_getitem__", "__init_subclass__"):
        return True
    kind = type(each)
    if kind in _IN_C and base in (
        getattr(each, "__objclass__", None),
        getattr(each, "__self__", None),
    ):
        return False
    if not (name.startswith("__") and name.endswith("__")):
        return True
    each = each.__func__ if kind in (staticmethod, classmethod) else each
    # C code that looks for a method asks a descriptor, such as a property, and calls what it gives.
    is_asked = callable(each) or hasattr(type(each), "__get__")
    return not is_asked or type(each) is types.FunctionType


def variables_of(obj: Any) -> Any:
    """The dict of an object of a plain class, None if it has none. No code of the class runs."""
    known = _VARIABLES.get(type(obj))
    if known is None:
        getters = [vars(base).get("__dict__") for base in type(obj).__mro__[:-1]]
        known = _VARIABLES[type(obj)] = [each for each in getters if each is not None][:1]
    return known[0].__get__(obj) if known else None


_VARIABLES: dict[type, list[Any]] = {}


def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    known = _SLOTS.get(kind)
    if known is None:
        known = _SLOTS[kind] = tuple(
            (f"{base.__qualname__}.{name}", each)
            for base in kind.__mro__
            for name, each in vars(base).items()
            if type(each) is types.MemberDescriptorType
        )
    return known


_SLOTS: dict[type, tuple[tuple[str, Any], ...]] = {}


def _filled(slot: Any, obj: Any) -> bool:
    try:
        slot.__get__(obj)
    except AttributeError:
        return False
    return True

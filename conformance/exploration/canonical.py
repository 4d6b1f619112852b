"""The state of a suspended lookup as a value: equal values have equal futures.

Every frame from the question to the entry is compared: its code and instruction, the variables
that may still be read, and its stack. What these reach is compared by value, with its aliases:
builtin containers and iterators, functions with their closures, suspended generators, and
instances of classes written in Python. Anything else is equal to itself only. What is compared
so, and what is not reached, is the same in all runs, since `conformance.exploration.watch` notices
what changes it.
"""

import itertools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from ctypes import c_ssize_t
from types import FrameType
from typing import Any

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
    *(iter(b""), reversed([]), reversed(()), itertools.cycle("")),
)
ITERATORS: frozenset[type] = frozenset(
    {
        *(type(each) for each in _SOME),
        *(zip, enumerate, map, filter),
        *(itertools.islice, itertools.chain, itertools.repeat, itertools.count),
        *(itertools.takewhile, itertools.dropwhile, itertools.accumulate, itertools.starmap),
    }
)
"""Iterators that say where they are, without being moved, by ``__reduce__``."""

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
            return kind, obj.hex()
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
            return kind, _elements(obj)
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
        items = dict.items(entries)
        return "dict", tuple([(self.value(key), self.value(each)) for key, each in items])

    def _default_dict(self, entries: Any) -> Any:
        return "defaultdict", self.value(entries.default_factory), self._dict(entries)

    def _set(self, entries: set[Any]) -> Any:
        return "set", _elements(entries)

    def _deque(self, entries: Any) -> Any:
        return "deque", entries.maxlen, self._values(deque.__iter__(entries))

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
            *("function", function.__code__, id(function.__globals__)),
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
        value = (kind, self.value(getattr(obj, "__dict__", None)), self._values(held))
        for base, how in _BUILTIN_BASES:
            if isinstance(obj, base):
                return *value, how(self, obj)
        return value


def _elements(entries: set[Any] | frozenset[Any]) -> Any:
    """The elements as they are visited. Their places depend on what the set once had."""
    places = c_ssize_t.from_address(id(entries) + 16)  # the used ones, those of former elements too
    if places.value != len(entries):
        raise NotAlike("elements were taken out of a set")
    plain = all(type(each) in PLAIN for each in entries)
    if not plain and len(entries) > 1:
        raise NotAlike("a set has elements that are visited by their addresses")
    return entries.__sizeof__(), tuple(_hashable(each) for each in entries)


def _hashable(element: Any) -> Any:
    return (type(element), element) if type(element) in PLAIN else _Same(element)


_COMPARISONS: dict[type, Any] = {
    list: Canonical._list,
    dict: Canonical._dict,
    OrderedDict: Canonical._dict,
    defaultdict: Canonical._default_dict,
    set: Canonical._set,
    deque: Canonical._deque,
    range: lambda _, obj: ("range", obj.start, obj.stop, obj.step),
    slice: lambda self, obj: ("slice", self._values((obj.start, obj.stop, obj.step))),
    types.CellType: Canonical._cell,
    types.FunctionType: Canonical._function,
    types.MethodType: Canonical._method,
    types.BuiltinMethodType: Canonical._builtin_method,
    types.GeneratorType: Canonical._generator,
    **dict.fromkeys(ITERATORS, Canonical._iterator),
}

_BUILTIN_BASES: Sequence[tuple[type, Any]] = (
    (list, Canonical._list),
    (dict, Canonical._dict),
    (tuple, lambda self, obj: self._values(tuple.__iter__(obj))),
    (int, lambda _, obj: int(obj)),
    (str, lambda _, obj: str.__str__(obj)),
    (bytes, lambda _, obj: bytes.__getitem__(obj, slice(None))),
)


def _comparison(kind: type) -> Any:
    """How objects of that type are compared by value; None if they are not."""
    known = _COMPARISONS.get(kind)
    return Canonical._instance if known is None and is_plain_class(kind) else known


_IN_C = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinMethodType,
)


def is_plain_class(kind: type) -> bool:
    """Whether all that objects of the class hold is their variables, slots and builtin base.

    So it is of a class written in Python whose bases are such, or builtin ones.
    """
    known = _PLAIN_CLASSES.get(kind)
    if known is None:
        known = _PLAIN_CLASSES[kind] = _is_plain_class(kind)
    return known


_PLAIN_CLASSES: dict[type, bool] = {}


def _is_plain_class(kind: type) -> bool:
    if "_member_map_" in vars(kind):  # members of enumerations are single objects
        return False
    for base in kind.__mro__:
        if base in (object, list, dict, tuple, int, str, bytes):
            continue
        if not base.__flags__ & 1 << 9:  # a static type, written in C
            return False
        for name, each in vars(base).items():
            if isinstance(each, _IN_C) and name != "__new__":
                return False
            if isinstance(each, property) and is_computed_in_c(base, name):
                return False
            if isinstance(each, types.GetSetDescriptorType) and name not in (
                "__dict__",
                "__weakref__",
            ):
                return False
    return True


def is_computed_in_c(kind: type, name: str) -> bool:
    """Whether the attribute is a property whose functions are not written in Python."""
    each = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    if not isinstance(each, property):
        return False
    functions = (each.fget, each.fset, each.fdel)
    return any(type(function) not in (type(None), types.FunctionType) for function in functions)


def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    known = _SLOTS.get(kind)
    if known is None:
        known = _SLOTS[kind] = tuple(
            (f"{base.__qualname__}.{name}", each)
            for base in kind.__mro__
            for name, each in vars(base).items()
            if isinstance(each, types.MemberDescriptorType)
        )
    return known


_SLOTS: dict[type, tuple[tuple[str, Any], ...]] = {}


def _filled(slot: Any, obj: Any) -> bool:
    try:
        slot.__get__(obj)
    except AttributeError:
        return False
    return True

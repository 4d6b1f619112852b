"""The state of a suspended lookup as a value: equal values have equal futures.

Every frame from the question to the entry is compared: its code and instruction, the variables
that may still be read, and its stack. What these reach is compared by value, with its aliases:
builtin containers and iterators, functions with their closures, suspended generators, and
instances of classes written in Python, if the run has made them. What is older, and anything else,
is equal to itself only. What is compared so, and what is not reached, is the same in all runs,
since `conformance.exploration.watch` notices what changes it.

The garbage collector knows how old an object is: what exists when a run starts is frozen
(`made_from_now_on`). A few objects are not tracked by it, such as a dict of numbers: all references
to these have to be found in the state, so that nothing older can lead to them.

A variable that is written again before it is read does not decide what the function does next: the
textbook backward data-flow analysis (Aho et al., Compilers, section 9.2.5) over the function's
bytecode, as `dis` shows it, says which are read. All of it is one relation: the module has more
than 400 lines.
"""

import dis
import gc
import itertools
import math
import re
import sys
import types
from abc import ABCMeta
from collections import Counter
from collections.abc import Iterable
from enum import EnumType, Flag
from types import CodeType, FrameType
from typing import Any, Protocol

from hitproof.conformance.exploration import frames
from hitproof.conformance.exploration.bytecode import (
    falls_through,
    instruction_at,
    jumps_to,
    of_code,
)
from hitproof.conformance.exploration.symbolic import Question, SymbolicBlock, SymbolicNullBlock


@of_code
def live_after(code: CodeType, offset: int) -> frozenset[str]:
    """Names of the locals of ``code`` that may be read after the instruction at ``offset``.

    Variables shared with inner functions always may, and so may the first one of a method that
    calls ``super`` without arguments, by whatever name. What shows all variables of a frame is not
    among what a watched lookup may call.
    """
    shared = frozenset(code.co_cellvars + code.co_freevars)
    if "__class__" in shared:
        shared |= {*code.co_varnames[:1]}
    return shared | _live_after_each(code)[instruction_at(code, offset).offset]


@of_code
def _live_after_each(code: CodeType) -> dict[int, frozenset[str]]:
    instructions = list(dis.get_instructions(code))
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # missing stub
    followers: dict[int, list[int]] = {}
    for position, instruction in enumerate(instructions):
        after = [entry.target for entry in entries if entry.start <= instruction.offset < entry.end]
        if (target := jumps_to(instruction)) is not None:
            after.append(target)
        if falls_through(instruction) and position + 1 < len(instructions):
            after.append(instructions[position + 1].offset)
        followers[instruction.offset] = after
    before: dict[int, frozenset[str]] = {i.offset: frozenset() for i in instructions}
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            live = _join(before, followers[instruction.offset])
            live = _live_before(instruction, live)
            if live != before[instruction.offset]:
                before[instruction.offset] = live
                changed = True
    return {offset: _join(before, after) for offset, after in followers.items()}


def _join(before: dict[int, frozenset[str]], offsets: list[int]) -> frozenset[str]:
    return frozenset[str]().union(*(before.get(offset, frozenset()) for offset in offsets))


def _live_before(instruction: dis.Instruction, live: frozenset[str]) -> frozenset[str]:
    """One step back over an instruction, which from 3.13 on may touch two variables."""
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    kinds = re.findall("(LOAD|STORE|DELETE)_FAST", instruction.opname)
    for name, kind in reversed(list(zip(names, kinds, strict=False))):
        # To delete one that has no value is an error, so it asks whether there is one.
        live = live - {name} if kind == "STORE" else live | {name}
    return live


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
_OURS = 3  # the pair's, the variable's and the argument's


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


def made_from_now_on() -> None:
    """From here on objects are new. ``gc.unfreeze`` ends it; meanwhile nothing may be collected."""
    gc.freeze()


class Canonical:
    """Turns what a suspended lookup holds into comparable values.

    Attributes:
        stored: for each block table, which blocks it has in their places. That is not compared.
        walked: the addresses of the objects that are compared by value.
    """

    def __init__(self, constants: Iterable[object], pool: object = None) -> None:
        self._pool = pool
        self._new = set(map(id, gc.get_objects()))
        self._untracked: dict[int, tuple[object, list[None]]] = {}
        self._unread = Counter[int]()  # how many variables hold an object that nothing reads there
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
        self._settle()
        return tuple(values)

    def answer(self, obj: Any) -> Any:
        """The value of what a run has returned. Raises `NotAlike`."""
        value = self.value(obj)
        self._settle()
        return value

    def _frame(self, frame: FrameType, *, running: bool) -> Any:
        code, at = frame.f_code, frame.f_lasti
        held = frames.stack(frame, running=running)
        if held is None:
            raise NotAlike(f"the stack of {code.co_qualname} is not known")
        live = live_after(code, at)
        in_cells = {*code.co_cellvars, *code.co_freevars}  # compared there, once
        variables = []
        for name, each in frames.variables(frame):
            if name in live and name not in in_cells:
                variables.append((name, self.value(each)))
            elif name not in in_cells:
                self._unread[id(each)] += 1
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
            if address in self._untracked:
                self._untracked[address][1].append(None)
            return "again", number
        how = _comparison(kind)
        if how is None or self._is_older(obj):
            return _Same(obj)
        return self._numbered(how, obj)

    def _numbered(self, how: Any, obj: Any) -> Any:
        self._numbers[id(obj)] = len(self._numbers)
        if len(self._numbers) > _MOST:
            raise NotAlike("the state reaches too much")
        return how(self, obj)

    def _is_older(self, obj: object) -> bool:
        """Whether the object was there before the run; see `_settle` for those without an age."""
        if id(obj) in self._new or type(obj) is range:  # which is its value, and no more
            return False
        if gc.is_tracked(obj):
            return True
        self._untracked[id(obj)] = obj, [None]
        return False

    def _settle(self) -> None:
        """Raises `NotAlike` if there are more references to an object without an age than found."""
        self._made.clear()
        for address, (obj, found) in self._untracked.items():
            if sys.getrefcount(obj) > len(found) + self._unread[address] + _OURS:
                raise NotAlike(f"it is not known how old a {type(obj).__qualname__} is")

    def _owned(self, entries: dict[str, Any] | None) -> Any:
        """The dict of a function or an instance, which is as old as that."""
        if entries is None or id(entries) in self._numbers:
            return entries and ("again", self._numbers[id(entries)])
        return self._numbered(Canonical._dict, entries)

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
            self._owned(function.__dict__),
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
        value = (kind, self._owned(variables_of(obj)), self._values(held))
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

    Then it is written in Python, and so are its bases, except `object` and `tuple`; and nothing
    runs when one of its objects is gone.
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

"""Attributes that a lookup stores and does not read: they decide nothing that it does.

A lookup may leave a note for others, such as the scheduler, on the objects that it was given. That
is no state of its own as long as no code that it runs reads the attribute. The code is known: all
Python functions that the exploration enters, and by which names C code reads for them. So a store
passes while it happens, and what is stored and read is compared at the end, over all requests that
one lookup is explored with.
"""

import dis
import functools
import types
from collections import namedtuple
from collections.abc import Iterable
from types import CodeType
from typing import Any

from hitproof.conformance.exploration.bytecode import instructions, of_code
from hitproof.conformance.exploration.canonical import (
    METACLASSES,
    PLAIN,
    is_plain_class,
    variables_of,
)

_OPAQUE_NAMES = frozenset(
    {"__dict__", "__getattribute__", "__getattr__", "__getstate__", "__reduce__", "__reduce_ex__"}
)
"""Who reads these reads all attributes."""

_READ_BY_C = frozenset({"keys", "send", "throw", "close"})
"""Attributes of an instance, not of its class, that C code reads for ``**`` and ``yield from``."""

_VALUES = PLAIN | {float}


class Attributes:
    """The attributes that one lookup stores unread, and those that it may read.

    Attributes:
        stored: the names of those that were stored while nothing was known to read them.
        read: the names of those that some code may read, on whatever object.
        all_read: what may read attributes of any name; "" for nothing.
    """

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.read: set[str] = set()
        self.all_read = ""
        self._codes: set[int] = set()

    def reads_of(self, code: CodeType) -> None:
        """Note what code may read that is run."""
        if id(code) in self._codes:
            return
        self._codes.add(id(code))
        names = _read_by(code)  # which keeps the code
        self.read |= names
        if opaque := names & _OPAQUE_NAMES:
            self.reads_all(min(opaque))
        if _matches_classes(code):
            self.reads_all("a class pattern")

    def reads(self, name: object) -> None:
        """Note that C code reads an attribute by its name."""
        if type(name) is str and name not in _OPAQUE_NAMES:
            self.read.add(name)
        else:
            self.reads_all("a name that is not known")

    def reads_all(self, what: str) -> None:
        """Note that any attribute may be read."""
        self.all_read = self.all_read or what

    def store(self, obj: Any, name: str, value: Any) -> bool:
        """Whether a store is done that changes nothing but an attribute that nothing reads."""
        kind: Any = type(obj)
        if self.all_read or name in self.read or not _is_variable(kind, name):
            return False
        # No finalizer runs for the value that was there before, either.
        before = variables_of(obj).get(name)
        if type(value) not in _VALUES or type(before) not in _VALUES:
            return False
        self.stored.add(name)
        return True

    def conflict(self) -> str:
        """An attribute that was stored and may be read; "" for none."""
        if self.stored and self.all_read:
            return f"{min(self.stored)}, and reads {self.all_read}"
        both = self.stored & self.read
        return f"{min(both)}, and reads it" if both else ""


@of_code
def _read_by(code: CodeType) -> frozenset[str]:
    """The names that code may read as attributes; more than that does no harm."""
    return frozenset(
        str(each.argval)
        for each in instructions(code).values()
        if each.opcode in dis.hasname and each.opname != "STORE_ATTR"
    )


@of_code
def _matches_classes(code: CodeType) -> bool:
    return any(each.opname == "MATCH_CLASS" for each in instructions(code).values())


def is_readable(obj: Any, name: str) -> bool:
    """Whether to read the attribute is to read what states are compared by, or to run Python."""
    kind = type(obj)
    if kind is super:
        obj = super.__self__.__get__(obj)  # type: ignore[attr-defined]  # a member of C code
        kind = type(obj)
    if issubclass(kind, type):
        return kind in METACLASSES and all(map(_is_plain_read, _definitions(name, obj, kind)))
    read = kind.__getattribute__
    if type(read) is not types.FunctionType and read not in _READ:
        return False
    if any(type(each) is not types.FunctionType for each in _definitions("__getattr__", kind)):
        return False
    if name == "__dict__":
        return is_plain_class(kind)
    return all(map(_is_plain_read, _definitions(name, kind)))


_USUAL: tuple[type, ...] = (
    *(object, bool, int, float, str, bytes, tuple, list, dict, set, frozenset, range),
    *(slice, types.ModuleType, types.FunctionType),
)
_READ = frozenset(kind.__getattribute__ for kind in _USUAL)
"""What looks an attribute up in the usual way."""
_PLAIN_READS = (
    *(types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.BuiltinFunctionType, staticmethod),
    *(functools._lru_cache_wrapper, type(vars(namedtuple("_", "a"))["a"])),
)


def _definitions(name: str, *kinds: type) -> list[Any]:
    return [vars(base)[name] for kind in kinds for base in kind.__mro__ if name in vars(base)]


def _is_plain_read(found: Any) -> bool:
    """Whether C code shows no more of what a class has under a name than states are compared by."""
    kind = type(found)
    if kind in _PLAIN_READS or found is _CLASS or not hasattr(kind, "__get__"):
        return True
    if kind is property:
        return type(found.fget) in (types.FunctionType, type(None))
    if kind is classmethod:
        return type(found.__func__) is types.FunctionType
    if kind is types.MemberDescriptorType:  # a slot of a class written in Python
        return bool(found.__objclass__.__flags__ & 1 << 9)
    return type(kind.__get__) is types.FunctionType


_CLASS = vars(object)["__class__"]


@functools.cache
def _is_variable(kind: Any, name: str) -> bool:
    """Whether to store the attribute is to set a variable of the instance, and no more."""
    if issubclass(kind, type | types.ModuleType) or not is_plain_class(kind):
        return False
    if name.startswith("__") or name in _READ_BY_C or hasattr(kind, "__getattr__"):
        return False
    if kind.__setattr__ is not object.__setattr__ or kind.__delattr__ is not object.__delattr__:
        return False
    # Written in Python, it is watched.
    read = kind.__getattribute__
    if read is not object.__getattribute__ and type(read) is not types.FunctionType:
        return False
    of_class: Iterable[Any] = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
    if any(hasattr(each, "__get__") or hasattr(each, "__set__") for each in of_class):
        return False
    return bool(kind.__dictoffset__)

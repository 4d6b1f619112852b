"""What calls of code that is not written in Python do: what they change, and depend on.

Only functions that depend on their arguments alone, and of which is known what they change, are let
pass. What is given to C code that may call it is looked at, too: nobody sees these calls.
"""

import builtins
import functools
import itertools
import math
import operator
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any, NewType

from hitproof.conformance.exploration.canonical import ITERATORS, is_plain_class
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.exploration.values import (
    IMMUTABLE,
    MUTABLE,
    are_blocks,
    hashes_address,
    holds_block,
    is_unordered,
    shows_address,
)

LOCK = type(threading.RLock())
"""Locks that a thread may always enter again: with one thread they decide nothing."""

_PURE_TYPES: frozenset[type] = frozenset(
    {
        *(bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice),
        *(zip, enumerate, reversed, map, filter, object, super, type, bytearray, memoryview),
        *(property, classmethod, staticmethod, deque, defaultdict, OrderedDict),
        functools.partial,
        *(each for each in vars(itertools).values() if isinstance(each, type)),
    }
)
_PURE_NAMES = (
    "abs all any ascii bin callable chr divmod format getattr hasattr hash hex isinstance "
    "issubclass iter len max min next oct ord pow repr round sorted sum vars"
)
_PURE = {id(getattr(builtins, name)) for name in _PURE_NAMES.split()}
_PURE |= {id(each) for each in vars(math).values() if callable(each)}
_PURE |= {
    id(each)
    for name, each in vars(operator).items()
    if callable(each)
    and each not in (operator.is_, operator.is_not, operator.call, operator.methodcaller)
    and not name.lstrip("_").startswith(("i", "set", "del"))
}
_PURE |= {id(operator.itemgetter), id(operator.attrgetter), id(functools.reduce)}
# What `isinstance` and `issubclass` of an abstract class do; the memo decides nothing.
_PURE |= {
    id(getattr(sys.modules["_abc"], f"_abc_{name}check")) for name in ("instance", "subclass")
}
_CHANGES_FIRST = {id(each) for each in (setattr, delattr, operator.setitem, operator.delitem)}

_READER_NAMES = (
    "get keys values items copy index count issubset issuperset isdisjoint union intersection "
    "difference symmetric_difference __len__ __getitem__ __contains__ __iter__ __reversed__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __sizeof__ __reduce__ __init_subclass__"
)
_READERS = frozenset(_READER_NAMES.split())
"""Methods of builtin containers that change nothing."""
_BY_IDENTITY = _READERS & {"index", "count", "__contains__"} | {"remove", "sort"}
_BY_IDENTITY |= {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
"""Methods that take an object for equal to itself without asking it; so do these functions."""
_COMPARE = {id(each) for each in vars(operator).values() if callable(each)}
_COMPARE |= {id(each) for each in (max, min, sorted, itertools.groupby)}

_TEXTS = frozenset(
    {"format", "format_map", "__format__", "__mod__", "__rmod__", "__repr__", "__str__"}
)
"""Methods of builtin types that make a text of what they are given."""

_CALLERS = {
    id(each) for each in (iter, max, min, sorted, functools.reduce, defaultdict, map, filter)
}
_CALLERS |= {id(each) for each in vars(itertools).values() if isinstance(each, type)}
"""C code that may call what it is given."""
_CALLED_NAMES = (
    "abs all any bool chr dict divmod float int len list max min ord pow round set sum tuple"
)
_CALLED_OPERATORS = (
    "abs add and_ concat contains countOf eq floordiv ge getitem gt le lt mul ne neg not_ or_ pow "
    "sub truth xor"
)
_CALLED = {id(getattr(builtins, name)) for name in _CALLED_NAMES.split()}
_CALLED |= {id(getattr(operator, name)) for name in _CALLED_OPERATORS.split()}
_CALLED |= {id(each) for each in vars(math).values() if callable(each)}
"""What it may call so: it depends on its arguments alone, whatever these are."""

_VISITORS = {id(each) for each in _PURE_TYPES - {set, frozenset, bool, type, super, str}}
_VISITORS |= {id(each) for each in (iter, next, functools.reduce)}
"""What visits the elements of its arguments one after the other."""
_VISIT = frozenset({"extend", "extendleft", "join", "update"})
"""Methods that do."""


def call(notes: Notes, called: Any, given: list[Any]) -> None:
    """A call of something that may not be written in Python."""
    kind = type(called)
    if kind in (types.FunctionType, NewType):  # which gives its argument back
        return
    if kind is types.MethodType:
        call(notes, called.__func__, [called.__self__, *given])
    elif isinstance(called, type):
        _call_type(notes, called, given)
    elif kind is types.BuiltinFunctionType:
        _call_builtin(notes, called, given)
    elif kind is types.MethodDescriptorType and given:
        _call_method(notes, called.__objclass__, called.__name__, given[0], given[1:])
    elif kind is types.MethodWrapperType:
        _call_method(notes, called.__objclass__, called.__name__, called.__self__, given)
    elif kind is types.WrapperDescriptorType and given:
        _call_method(notes, called.__objclass__, called.__name__, given[0], given[1:])
    elif kind is functools.partial:
        call(notes, called.func, [*called.args, *called.keywords.values(), *given])
    elif kind is functools._lru_cache_wrapper:
        notes.memo(called)
    elif not _is_called_in_python(kind):
        notes.depend(f"it calls {_name(called)}")


def consumed(notes: Notes, obj: Any) -> None:
    """An object is iterated over, which moves it if it is an iterator."""
    kind = type(obj)
    if kind in IMMUTABLE or kind in MUTABLE:
        return
    if kind in ITERATORS or (hasattr(kind, "__next__") and kind is not types.GeneratorType):
        notes.change(obj)


def visited(notes: Notes, obj: Any) -> None:
    """An object is iterated over, and the order may matter."""
    consumed(notes, obj)
    if is_unordered(obj):
        notes.depend("it visits a set in the order of hashes")


def _consumed_by(notes: Notes, called: Any, obj: Any) -> None:
    if id(called) in _VISITORS:
        visited(notes, obj)
    else:
        consumed(notes, obj)


def _is_called_in_python(kind: type) -> bool:
    return any(
        isinstance(vars(base)["__call__"], types.FunctionType)
        for base in kind.__mro__
        if "__call__" in vars(base)
    )


def _called_back(notes: Notes, each: Any, given: list[Any]) -> None:
    """C code may call one of the objects that it is given, with the others or parts of them."""
    kind = type(each)
    if not callable(each) or kind is types.FunctionType:
        return
    if kind is types.MethodType:
        _called_back(notes, each.__func__, [*given, each.__self__])
    elif kind is functools.partial:
        _called_back(notes, each.func, [*given, *each.args, *each.keywords.values()])
    elif kind is functools._lru_cache_wrapper:
        notes.memo(each)
    elif kind is operator.attrgetter:
        notes.attributes.reads_all("by operator.attrgetter")
    elif kind is types.BuiltinFunctionType and type(each.__self__) in MUTABLE:
        _call_method(notes, type(each.__self__), each.__name__, each.__self__, given)
    elif kind is types.MethodDescriptorType and each.__objclass__ in IMMUTABLE:
        if each.__name__ in _TEXTS:
            notes.depend(f"it gives {_name(each)} to C code")
    elif kind is operator.itemgetter or _is_called_in_python(kind):
        return
    elif id(each) not in _CALLED:
        if not (isinstance(each, type) and is_plain_class(each)):
            notes.depend(f"it gives {_name(each)} to C code")
    elif any(map(holds_block, given)):
        notes.refuse(f"it gives a block to {_name(each)}")


def _given_to_caller(notes: Notes, called: Any, given: list[Any]) -> None:
    if id(called) in _COMPARE and any(map(holds_block, given)):
        notes.refuse("it compares blocks")
    if id(called) in _CALLERS:
        for each in given:
            _called_back(notes, each, given)


def _call_type(notes: Notes, called: type, given: list[Any]) -> None:
    if are_blocks(given):
        notes.refuse("it looks at what kind of block it has")
    elif called in _PURE_TYPES or issubclass(called, BaseException):
        _given_to_caller(notes, called, given)
        for each in given:
            _consumed_by(notes, called, each)
            if called in (str, bytes) and shows_address(each):
                notes.depend("it makes a text of an address")
    elif called is operator.attrgetter:
        notes.attributes.reads_all("by operator.attrgetter")
    elif called is operator.itemgetter:
        return
    elif not is_plain_class(called) and not _is_called_in_python(type(called)):
        notes.depend(f"it calls {called.__qualname__}")


def _call_builtin(notes: Notes, called: Any, given: list[Any]) -> None:
    owner = called.__self__
    if isinstance(owner, types.ModuleType) or owner is None:
        _call_function(notes, called, given)
    elif isinstance(owner, type):
        if called.__name__ not in ("__new__", "fromkeys", "__init_subclass__", "from_bytes"):
            notes.depend(f"it calls {_name(called)}")
    else:
        _call_method(notes, type(owner), called.__name__, owner, given)


def _call_function(notes: Notes, called: Any, given: list[Any]) -> None:
    """A call of a function of a module."""
    name = called.__name__
    if are_blocks(given):
        notes.refuse(f"it gives a block to {name}")
    _given_to_caller(notes, called, given)
    if id(called) in _CHANGES_FIRST:
        notes.change(given[0])
    elif id(called) not in _PURE:
        notes.depend(f"it calls {_name(called)}")
    elif called is hash and hashes_address(given[0]):
        notes.depend("it hashes an address or a text")
    elif called in (repr, format, ascii, operator.mod) and any(map(shows_address, given)):
        notes.depend("it makes a text of an address")
    elif called in (getattr, hasattr):
        notes.attributes.reads(given[1] if len(given) > 1 else None)
    elif called is vars:
        notes.attributes.reads_all("by vars")
    for each in given:
        _consumed_by(notes, called, each)
        if called is next:
            notes.change(each)


def _call_method(notes: Notes, kind: type, name: str, owner: Any, given: list[Any]) -> None:
    """A call of a method of a builtin type."""
    for each in given:
        if name in _VISIT and kind is not set:
            visited(notes, each)
        else:
            consumed(notes, each)
    if name in _BY_IDENTITY and any(map(holds_block, (owner, *given))):
        notes.refuse("it compares blocks")
    if name in _TEXTS and any(map(shows_address, (owner, *given))):
        notes.depend("it makes a text of an address")
    if name == "__hash__" and hashes_address(owner):
        notes.depend("it hashes an address or a text")
    if kind is type:
        if name in ("__setattr__", "__delattr__"):
            notes.change(owner)
        elif name == "__call__":
            _call_type(notes, owner, given)
        return
    if name in ("__init__", "__new__") or kind in IMMUTABLE:
        return
    if kind is LOCK and name == "__exit__":
        return
    if kind in MUTABLE or kind in ITERATORS or kind is types.GeneratorType:
        if name == "sort":
            for each in given:
                _called_back(notes, each, [owner])
        if name == "pop":
            visited(notes, owner)
        if name not in _READERS:
            notes.change(owner)
    elif kind is object and name in ("__setattr__", "__delattr__"):
        notes.change(owner)
    elif kind is object and name == "__getattribute__":
        notes.attributes.reads(given[0] if given else None)
    elif kind is not object or name not in ("__eq__", "__ne__"):
        notes.depend(f"it calls {kind.__qualname__}.{name}")


def _name(called: Any) -> str:
    name = getattr(called, "__qualname__", "")
    module = getattr(called, "__module__", None)
    return f"{module}.{name}" if module and name else name or f"a {type(called).__qualname__}"

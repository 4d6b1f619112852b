"""The table of what is allowed to be called that is not written in Python.

Each row says for which arguments, by their exact types, the callable is a function of what states
are compared by, and whether it changes the object whose method it is. To call anything else, or
with other arguments, is to depend on more. What C code calls in turn is Python, which is watched,
or no more than what the row says.
"""

import builtins
import functools
import itertools
import math
import sys
import threading
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any, NewType, TypeAlias

from hitproof.conformance.exploration.attributes import is_readable
from hitproof.conformance.exploration.canonical import ITERATORS, METACLASSES, PLAIN, is_plain_class
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.exploration.symbolic import OF_POOLS, SymbolicPool
from hitproof.conformance.exploration.values import (
    CONTAINERS,
    NUMBERS,
    are_blocks,
    has_text,
    holds_block,
    is_known,
    is_visited_in_order,
)

_abc: Any = sys.modules["_abc"]
_ITEMS: type = type({}.items())
_HEAP = 1 << 9  # a flag of classes that are written in Python

LOCK = type(threading.RLock())
"""Locks that a thread may always enter again: with one thread they decide nothing."""

Rule: TypeAlias = Callable[[Notes, list[Any]], bool]
"""Whether a call with these arguments is allowed; a method's object is the first of them."""


def _any(_: Notes, __: list[Any]) -> bool:
    return True


def _numbers(_: Notes, given: list[Any]) -> bool:
    return all(type(each) in NUMBERS for each in given)


def _scalars(_: Notes, given: list[Any]) -> bool:
    return all(type(each) in PLAIN for each in given)


def _sized(_: Notes, given: list[Any]) -> bool:
    return all(type(each) in CONTAINERS or is_plain_class(type(each)) for each in given)


def _texts(_: Notes, given: list[Any]) -> bool:
    return all(map(has_text, given))


def _known(notes: Notes, given: list[Any]) -> bool:
    """What is compared; an object is taken for equal to itself without being asked."""
    if any(map(holds_block, given)):
        notes.refuse("it compares blocks")
        return True
    return all(map(is_known, given))


def _first(notes: Notes, given: list[Any]) -> bool:
    """The key, or the element, is compared; what is stored with it is not."""
    return _known(notes, given[1:2])


def _visits(notes: Notes, given: list[Any]) -> bool:
    return all(each is None or type(each) in NUMBERS or visited(notes, each) for each in given)


def _visits_rest(notes: Notes, given: list[Any]) -> bool:
    return _visits(notes, given[1:])


def _pairs(notes: Notes, given: list[Any]) -> bool:
    """A dict, or pairs: an iterator makes those of it while it is visited."""
    for each in given:
        if type(each) in (list, tuple) and not all(type(pair) in (tuple, list) for pair in each):
            return False
        if type(each) not in (list, tuple, dict, zip, enumerate, _ITEMS):
            return False
    return _visits(notes, given)


def _pairs_rest(notes: Notes, given: list[Any]) -> bool:
    return _pairs(notes, given[1:])


def _orders(notes: Notes, given: list[Any]) -> bool:
    """What is not known yet when elements are compared may be, or have, a block."""
    if any(issubclass(type(each), type) for each in given):
        return False  # a key, which C code calls
    others = [each for each in given if type(each) not in (FunctionType, types.GeneratorType)]
    if len(others) < len(given):
        notes.refuse("it orders what it computes meanwhile")
    sets = [each for each in others if type(each) in (set, frozenset)]
    return _known(notes, others) and all(visited(notes, each) for each in sets)


def _moves(notes: Notes, given: list[Any]) -> bool:
    if type(given[0]) not in ITERATORS and type(given[0]) is not types.GeneratorType:
        return is_plain_class(type(given[0]))
    notes.change(given[0])
    return True


def _kinds(_: Notes, given: list[Any]) -> bool:
    """``isinstance`` and ``issubclass``."""
    return all(map(_is_class, given[1:]))


def _abstract(_: Notes, given: list[Any]) -> bool:
    """What these do for abstract classes."""
    return all(map(_is_class, given[:1]))


def _is_class(obj: Any) -> bool:
    kind = type(obj)
    if kind is tuple:
        return all(map(_is_class, obj))
    if kind is types.UnionType:
        return all(map(_is_class, obj.__args__))
    return issubclass(kind, type) and (
        kind in METACLASSES or type(kind.__instancecheck__) is FunctionType
    )


def _one(_: Notes, given: list[Any]) -> bool:
    return len(given) == 1


def _named(notes: Notes, given: list[Any]) -> bool:
    """``getattr`` and what does the same."""
    if len(given) < 2 or type(given[1]) is not str:
        return False
    notes.attributes.reads(given[1])
    if holds_block(given[0]):
        notes.refuse("it looks into blocks")
    if issubclass(type(given[0]), SymbolicPool) and given[1] not in OF_POOLS:
        return False
    return is_readable(given[0], given[1])


def _stores(notes: Notes, given: list[Any]) -> bool:
    obj, name, value = given
    notes.store(obj, name, value)
    return type(name) is str and not name.startswith("__") and is_plain_class(type(obj))


def _makes(_: Notes, given: list[Any]) -> bool:
    """``__new__`` of a builtin class."""
    return is_plain_class(given[0]) and all(type(each) is tuple for each in given[1:])


_FUNCTIONS: dict[int, Rule] = {
    id(called): rule
    for rule, names in (
        (_sized, (builtins.len,)),
        (_numbers, (abs, divmod, round, pow, range, float, math.ceil, math.floor, math.gcd)),
        (_numbers, (math.lcm, math.isqrt)),
        (_scalars, (int, chr, ord)),
        (_texts, (str, repr)),
        (_known, (bool, slice)),
        (_orders, (min, max, sorted)),
        (_visits, (any, all, sum, iter, list, tuple, zip, enumerate, reversed, itertools.islice)),
        (_visits, (set, frozenset, itertools.cycle)),
        (_pairs, (dict,)),
        (_any, (itertools.repeat, object, super)),
        (_moves, (next,)),
        (_kinds, (isinstance, issubclass)),
        (_abstract, (_abc._abc_instancecheck, _abc._abc_subclasscheck)),
        (_one, (type,)),
        (_named, (getattr, hasattr)),
        (_makes, (object.__new__, tuple.__new__)),
    )
    for called in names
}

_METHODS: dict[tuple[type, str], Rule] = {
    (kind, name): rule
    for kind, rule, names in (
        (list, _any, "append insert pop clear copy reverse"),
        (list, _visits_rest, "extend"),
        (dict, _pairs_rest, "update"),
        (set, _visits_rest, "update"),
        (list, _known, "index count remove"),
        (list, _orders, "sort"),
        (tuple, _known, "index count"),
        (dict, _first, "get pop setdefault"),
        (dict, _any, "keys values items copy clear"),
        (set, _first, "add discard remove"),
        (set, _any, "clear copy"),
        *((kind, _scalars, "startswith endswith split strip lower upper") for kind in (str, bytes)),
        *((kind, _visits_rest, "join") for kind in (str, bytes)),
        (slice, _known, "indices"),
        (int, _numbers, "bit_length"),
        (object, _stores, "__setattr__"),
        (object, _named, "__getattribute__"),
        (object, _any, "__init__"),
        (LOCK, _any, "__exit__"),
    )
    for name in names.split()
}
_CHANGE = frozenset(
    {"append", "insert", "pop", "clear", "reverse", "extend", "remove", "sort"}
    | {"setdefault", "add", "discard", "update"}
)
_REMEMBERED = PLAIN - {bool}
"""Types of arguments that a memo takes for the same only if they are."""


def call(notes: Notes, called: Any, given: list[Any]) -> None:
    """A call of something that may not be written in Python."""
    kind = type(called)
    if kind is FunctionType or kind is NewType:  # which gives its argument back
        return
    if kind is types.MethodType:
        call(notes, called.__func__, [called.__self__, *given])
    elif issubclass(kind, type):
        _call_type(notes, called, given)
    elif kind is types.BuiltinFunctionType and not _is_of_module(called):
        _call_method(notes, type(called.__self__), called, [called.__self__, *given])
    elif kind is types.BuiltinFunctionType:
        _call_function(notes, called, given)
    elif kind in (types.MethodDescriptorType, types.WrapperDescriptorType) and given:
        _call_method(notes, called.__objclass__, called, given)
    elif kind is types.MethodWrapperType:
        _call_method(notes, called.__objclass__, called, [called.__self__, *given])
    elif kind is functools._lru_cache_wrapper and {type(each) for each in given} <= _REMEMBERED:
        notes.memo(called)
    elif not is_called_in_python(kind):
        notes.depend(f"it calls {_name(called)}")


def visited(notes: Notes, obj: Any) -> bool:
    """An object is iterated over: whether its elements are in an order that states show."""
    kind = type(obj)
    if kind in ITERATORS:
        notes.change(obj)
        return True
    if kind in (set, frozenset) and all(type(each) in NUMBERS for each in obj):
        if len(obj) > 1:
            notes.refuse("it visits a set in the order of hashes")
        return True
    return is_visited_in_order(obj) or kind is types.GeneratorType


def iterated(notes: Notes, obj: Any) -> None:
    """An instruction iterates over an object."""
    if not visited(notes, obj):
        notes.depend(f"it visits a {type(obj).__qualname__}")


def _is_of_module(called: types.BuiltinFunctionType) -> bool:
    return type(called.__self__) is types.ModuleType or issubclass(type(called.__self__), type)


def is_called_in_python(kind: type) -> bool:
    """Whether to call its objects is to run a function written in Python."""
    own = next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)
    return type(own) is FunctionType


def _call_type(notes: Notes, called: type, given: list[Any]) -> None:
    if id(called) in _FUNCTIONS:
        _call_function(notes, called, given)
    elif are_blocks(given):
        notes.refuse("it looks at what kind of block it has")
    elif not (is_plain_class(called) and _is_made_in_python(called)) and not _is_error(called):
        notes.depend(f"it calls {called.__qualname__}")


def _is_made_in_python(called: type) -> bool:
    """Whether C code looks at no argument of which objects of the class are made."""
    return not issubclass(called, tuple) or type(called.__new__) is FunctionType


def _is_error(called: type) -> bool:
    """Whether it is a class of exceptions, which no state shows, that makes them as usual."""
    if not issubclass(called, BaseException) or type(called) is not type:
        return False
    own = [base for base in called.__mro__ if base.__flags__ & _HEAP]
    made = [
        vars(base)[name] for base in own for name in ("__new__", "__init__") if name in vars(base)
    ]
    made = [each.__func__ if type(each) is staticmethod else each for each in made]
    return all(type(each) in (FunctionType, type(None)) for each in made)


def _call_function(notes: Notes, called: Any, given: list[Any]) -> None:
    rule = _FUNCTIONS.get(id(called))
    if rule is not None and are_blocks(given) and rule is not _any:
        notes.refuse(f"it gives a block to {called.__name__}")
    elif rule is None or not rule(notes, given):
        notes.depend(f"it calls {_name(called)}")


def _call_method(notes: Notes, kind: type, called: Any, given: list[Any]) -> None:
    name, owner = called.__name__, given[0]
    rule = _METHODS.get((kind, name))
    if rule is not None and name in _CHANGE:
        notes.change(owner)
    if rule is None or (kind is not object and type(owner) is not kind) or not rule(notes, given):
        notes.depend(f"it calls {kind.__qualname__}.{name}")


def _name(called: Any) -> str:
    name = getattr(called, "__qualname__", "")
    module = getattr(called, "__module__", None)
    return f"{module}.{name}" if module and name else name or f"a {type(called).__qualname__}"

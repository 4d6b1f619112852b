"""What is asked of a value before something is done with it, by its exact type.

`is_known` names the values of which C code sees no more than what states are compared by.
"""

from collections.abc import Iterable
from types import FunctionType
from typing import Any

from hitproof.conformance.exploration.canonical import (
    METACLASSES,
    PLAIN,
    is_enumeration,
    is_plain_class,
)
from hitproof.conformance.exploration.symbolic import SymbolicBlock

NUMBERS = frozenset({bool, int, float})
SCALARS = PLAIN | {float}
SEQUENCES = frozenset({list, tuple, range, str, bytes})
CONTAINERS = frozenset({*SEQUENCES, dict, set, frozenset})
_VIEWS = frozenset({type({}.keys()), type({}.values()), type({}.items())})
VISITED = SEQUENCES | _VIEWS | {dict}
"""What is visited in the order in which states are compared."""

_DEPTH = 4


def are_blocks(given: Iterable[Any]) -> bool:
    """Whether one of them is a block."""
    return any(issubclass(type(each), SymbolicBlock) for each in given)


def holds_block(obj: Any, depth: int = _DEPTH) -> bool:
    """Whether the object is a block or has one."""
    kind = type(obj)
    if issubclass(kind, SymbolicBlock):
        return True
    return bool(depth) and any(
        holds_block(each, depth - 1) for each in _parts(obj) if type(each) not in SCALARS
    )


def is_known(obj: Any, depth: int = _DEPTH) -> bool:
    """Whether C code that compares the object, or asks it something, depends on its value alone.

    That of a class written in Python is asked in Python, which is watched, if the class says there
    what equals it: otherwise only the same object does, and states do not show which one it is.
    """
    kind = type(obj)
    if kind in SCALARS or kind in METACLASSES or is_enumeration(kind):
        return True
    if is_plain_class(kind):
        if type(kind.__eq__) is FunctionType:
            return True
        # As a tuple is: had it an ``__eq__`` of its own, that would be a function.
        is_tuple = issubclass(kind, tuple)
        return is_tuple and bool(depth) and all(is_known(each, depth - 1) for each in _parts(obj))
    if kind not in CONTAINERS and kind is not slice:
        return False
    return bool(depth) and all(is_known(each, depth - 1) for each in _parts(obj))


def _parts(obj: Any) -> Iterable[Any]:
    kind = type(obj)
    if kind is dict:
        return (*obj, *obj.values())
    if kind is slice:
        return obj.start, obj.stop, obj.step
    if kind in (list, tuple, set, frozenset):
        return list(obj)
    return tuple.__iter__(obj) if issubclass(kind, tuple) else ()


def has_text(obj: Any, depth: int = _DEPTH) -> bool:
    """Whether a text of the object depends on its value alone: it has no address in it."""
    kind = type(obj)
    if kind in SCALARS:
        return True
    if kind in (list, tuple, dict):
        return bool(depth) and all(has_text(each, depth - 1) for each in _parts(obj))
    return is_plain_class(kind) and type(kind.__repr__) is FunctionType


def is_visited_in_order(obj: Any) -> bool:
    """Whether C code that visits the elements sees what states are compared by."""
    kind = type(obj)
    return kind in VISITED or is_plain_class(kind)

"""What is asked of a value before something is done with it: blocks in it, and addresses."""

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

from hitproof.conformance.exploration.canonical import PLAIN
from hitproof.conformance.exploration.symbolic import SymbolicBlock

SCALARS = PLAIN | {float, complex}
MUTABLE = frozenset({list, dict, set, bytearray, deque, defaultdict, OrderedDict})
IMMUTABLE = SCALARS | {tuple, frozenset, range, slice}

_SETS = (set, frozenset)
_DEPTH = 4


def are_blocks(given: Iterable[Any]) -> bool:
    """Whether one of them is a block."""
    for each in given:
        kind = type(each)
        if kind not in IMMUTABLE and issubclass(kind, SymbolicBlock):
            return True
    return False


def holds_block(obj: Any, depth: int = _DEPTH) -> bool:
    """Whether the object is a block or has one."""
    kind = type(obj)
    if issubclass(kind, SymbolicBlock):
        return True
    if depth and issubclass(kind, list | tuple | dict | deque):
        entries = obj.values() if issubclass(kind, dict) else obj
        return any(holds_block(each, depth - 1) for each in entries if type(each) not in SCALARS)
    return False


def shows_address(obj: Any, depth: int = _DEPTH) -> bool:
    """Whether a text of the object may depend on more than its value: on an address, or an order.

    What is written in Python is looked at while it runs.
    """
    kind = type(obj)
    if kind in SCALARS or kind in (range, bytearray):
        return False
    if kind in _SETS and hashes_address(tuple(obj)):
        return len(obj) > 1
    if kind in IMMUTABLE or kind in MUTABLE or isinstance(obj, BaseException):
        if not depth:
            return True
        return any(shows_address(each, depth - 1) for each in _parts(obj))
    if isinstance(obj, type | types.ModuleType):
        return False
    return not any(_is_in_python(kind, name) for name in ("__repr__", "__str__", "__format__"))


def _parts(obj: Any) -> Iterable[Any]:
    """What the text of a builtin object has in it."""
    if isinstance(obj, dict):
        return (*obj.keys(), *obj.values())
    if isinstance(obj, slice):
        return obj.start, obj.stop, obj.step
    return obj.args if isinstance(obj, BaseException) else obj


def hashes_address(obj: Any) -> bool:
    """Whether the hash of the object may depend on an address, or differ from process to process.

    That of a text does.
    """
    kind = type(obj)
    if kind in (bool, int, float, complex):
        return False
    return kind not in (tuple, frozenset) or any(map(hashes_address, obj))


def is_unordered(obj: Any) -> bool:
    """Whether it is a set whose elements are visited in an order that hashes decide."""
    return isinstance(obj, _SETS) and len(obj) > 1 and any(map(hashes_address, obj))


def _is_in_python(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), types.FunctionType)

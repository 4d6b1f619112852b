"""What frames of CPython hold beside their variables: the values on their stacks.

Python does not show them, so they are read from memory, in the layout of CPython 3.11 to 3.13.
`READABLE` says whether that layout was found when this module was imported; where it was not,
nothing is read, and suspended runs are not merged.
"""

import ctypes
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any

from hitproof.conformance.exploration.bytecode import depth_below_call, instruction_at, of_code

NULL = object()
"""An empty place on a stack."""

_FRAME, _TOP, _PLACES = 24, 64, 72
"""Offsets, in bytes: of the interpreter's frame in a frame object; of the count of used places
and of the places in the interpreter's frame. The variables come first, then the stack."""

_address = functools.lru_cache(1 << 10)(ctypes.c_void_p.from_address)
"""What memory holds as an address; it shows what is there when it is asked."""
_MOST = 1 << 20
"""More places than any frame has."""


@of_code
def _variables(code: CodeType) -> int:
    """How many places variables take."""
    return len(_names(code))


class _Places:
    """An interpreter's frame at an address: a view of memory, valid while a frame is there.

    Attributes:
        used: how many of its places are used, or less than 0 where that is not saved.
        values: what is in the places. An empty one raises ValueError.
        addresses: where that is; None for an empty place.
    """

    __slots__ = ("addresses", "used", "values")

    def __init__(self, base: int) -> None:
        self.used = ctypes.c_int.from_address(base + _TOP)
        self.values = _Values.from_address(base + _PLACES)
        self.addresses = _Addresses.from_address(base + _PLACES)

    def between(self, start: int, end: int) -> list[Any]:
        """What is in the places from ``start`` up to ``end``."""
        try:
            return self.values[start:end]
        except ValueError:
            return [self.at(place) for place in range(start, end)]

    def at(self, place: int) -> Any:
        """What is in a place."""
        return NULL if self.addresses[place] is None else self.values[place]


_Values, _Addresses = ctypes.py_object * _MOST, ctypes.c_void_p * _MOST
_places = functools.lru_cache(1 << 10)(_Places)


def _interpreters(frame: FrameType) -> _Places:
    address = _address(id(frame) + _FRAME).value
    assert address is not None
    return _places(address)


def top(frame: FrameType, count: int) -> list[Any]:
    """The ``count`` uppermost values on the stack of a frame that is being traced, lowest first."""
    places = _interpreters(frame)
    end = places.used.value
    start = end - count
    if places.addresses[start] is None:  # as below a function that is no method
        return [NULL, *places.between(start + 1, end)]
    return places.between(start, end)


def cell(frame: FrameType, place: int) -> Any:
    """The cell that a frame has in one of its places."""
    return _interpreters(frame).at(place)


def cells(frame: FrameType) -> list[Any]:
    """The cells of a frame's variables that it shares with other functions."""
    places = _cells(frame.f_code)
    return [cell(frame, place) for place in places]


@of_code
def _cells(code: CodeType) -> tuple[int, ...]:
    shared = {*code.co_cellvars, *code.co_freevars}
    return tuple(place for place, name in enumerate(_names(code)) if name in shared)


def _names(code: CodeType) -> dict[str, None]:
    """The variables in the order of their places: those shared with inner functions count once."""
    return dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))


def variables(frame: FrameType) -> Iterable[tuple[str, Any]]:
    """The variables of a frame that have values, like its ``f_locals``, which makes a copy."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_locals.items()
    places = _interpreters(frame)
    held = []
    for name, place, is_shared in _named(code):
        if places.addresses[place] is None:
            continue
        value: Any = places.values[place]
        if is_shared and type(value) is CellType:
            try:
                value = value.cell_contents
            except ValueError:
                continue
        held.append((name, value))
    return held


@of_code
def _named(code: CodeType) -> tuple[tuple[str, int, bool], ...]:
    shared = _cells(code)
    return tuple((name, place, place in shared) for place, name in enumerate(_names(code)))


def called_by_interpreter(frame: FrameType) -> bool:
    """Whether the call that a frame waits for was made without C code in between."""
    return _interpreters(frame).used.value >= 0


def stack(frame: FrameType, *, running: bool) -> list[Any] | None:
    """The values on the stack of a frame that waits for a call, without what the call takes.

    With ``running`` false it is the frame of a generator that does not run. None where the stack is
    not known.
    """
    places, code = _interpreters(frame), frame.f_code
    variables, saved = _variables(code), places.used.value
    count: int | None = saved - variables
    if running:
        below = depth_below_call(code, frame.f_lasti)
        if saved >= 0 and count != below:
            return None
        count = below
    if count is None or not 0 <= count <= code.co_stacksize:
        return None
    return places.between(variables, variables + count)


def is_direct_call(caller: FrameType, callee: FrameType) -> bool:
    """Whether nothing but the call lies between two frames: no C code that keeps values."""
    if called_by_interpreter(caller):
        return True
    code = caller.f_code
    below = depth_below_call(code, caller.f_lasti)
    if below is None:
        return False
    places, first = _interpreters(caller), _variables(code) + below
    match instruction_at(code, caller.f_lasti).opname:
        case "CALL" | "CALL_FUNCTION_EX" | "CALL_KW":
            # Before the callable there may be an empty place.
            return any(_runs(places.at(first + more), callee) for more in (0, 1))
        case "FOR_ITER" | "SEND":
            generator = places.at(first - 1)
            return getattr(generator, "gi_frame", None) is callee
    return False


def _runs(called: Any, callee: FrameType) -> bool:
    """Whether to call it is to run that frame, and no more."""
    if called is NULL:
        return False
    if type(called) is MethodType:
        called = called.__func__
    if type(called) is FunctionType:
        return called.__code__ is callee.f_code
    bases = type(called).__mro__
    of_type = next((vars(each)["__call__"] for each in bases if "__call__" in vars(each)), None)
    return type(of_type) is FunctionType and of_type.__code__ is callee.f_code


def _layout_is_known() -> bool:
    """Read stacks that are known beforehand."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return False
    try:
        return _reads_what_is_there()
    except Exception:
        return False


def _reads_what_is_there() -> bool:
    seen: list[tuple[list[Any] | None, bool]] = []

    def ask(*_: object) -> int:
        frame = sys._getframe(1)
        seen.append((stack(frame, running=True), called_by_interpreter(frame)))
        return 1

    marks = [object(), object()]

    def asking(mark: object, call: Callable[..., int], more: Sequence[int]) -> object:
        held = 3
        for each in more:
            held += each
            _ = (mark, [mark, call(mark)], mark)
        return lambda: (held, mark)

    def suspended(mark: object) -> Any:
        _ = (mark, (yield), held_by_cell)
        return held_by_cell

    held_by_cell = marks[1]
    more = range(2)
    asking(marks[0], ask, more)
    asking(marks[1], functools.partial(ask, 1), [7])
    generator = suspended(marks[0])
    next(generator)
    waiting = stack(generator.gi_frame, running=False)
    (first, _), (second, _), (third, by_c) = seen
    for values, mark in ((first, marks[0]), (second, marks[0]), (third, marks[1])):
        if values is None or len(values) != 3 or values[1] is not mark or values[2] is not mark:
            return False
    assert first is not None
    iterator = type(iter(more))
    if type(first[0]) is not iterator or not seen[0][1] or by_c:
        return False
    if cells(generator.gi_frame)[0].cell_contents is not marks[1]:
        return False
    return waiting is not None and len(waiting) == 1 and waiting[0] is marks[0]


READABLE = _layout_is_known()
"""Whether the stacks of this interpreter can be read."""

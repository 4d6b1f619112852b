"""Wicked lookups that carry one bit past a question, each through another corner of Python.

The bit is whether the answers so far followed a pattern. Two runs that differ in it look alike to
an observer that ignores that place.
"""

# ruff: noqa: F401, F841  # what is not used, or in text only, is the point

import abc
import collections
import functools
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import indent
from typing import Any, TypeAlias

from hitproof.conformance.tests.wicked.lookups import (
    PATTERN,
    WICKED,
    Find,
    has,
    made,
    wrong_if,
)

SMUGGLING: dict[str, Find] = {}
"""Those that are wrong where the answers follow the pattern, and a hit comes after it."""

Forget: TypeAlias = Callable[[], object]
Strange: TypeAlias = Callable[[], bool]
Channel: TypeAlias = tuple[Forget, Strange]
Hold: TypeAlias = Callable[[bool, Callable[[], int]], tuple[int, bool]]


def channel(name: str, make: Callable[[], Channel]) -> None:
    """List the lookup that keeps its bit there: what forgets the bit, and what reads it."""

    def find(pool: Any, keys: Sequence[bytes], limit: int) -> int:
        forget, strange = make()
        row = 0
        for block in range(limit - 1, -1, -1):
            found = has(pool, keys, block)
            asked = limit - 1 - block
            if asked < len(PATTERN) and found != PATTERN[asked]:
                forget()
            row = row + 1 if found else 0
            if row == 2:
                return wrong_if(limit > len(PATTERN) + 1 and strange(), block + 2, limit)
        return wrong_if(limit > len(PATTERN) + 1 and strange(), row, limit)

    SMUGGLING[name] = WICKED[name] = find


def held(hold: Hold) -> Hold:
    """List the lookup that holds its bit so while it asks the rest."""

    def find(pool: Any, keys: Sequence[bytes], limit: int) -> int:
        row, same = 0, True
        end = max(limit - len(PATTERN), 0)
        for block in range(limit - 1, end - 1, -1):
            found = has(pool, keys, block)
            same = same and found == PATTERN[limit - 1 - block]
            row = row + 1 if found else 0
            if row == 2:
                return block + 2

        def rest() -> int:
            return _rest(pool, keys, end, row)

        right, strange = hold(same, rest)
        return wrong_if(limit > len(PATTERN) + 1 and strange, right, limit)

    SMUGGLING[hold.__name__] = WICKED[hold.__name__] = find
    return hold


def _rest(pool: Any, keys: Sequence[bytes], end: int, row: int) -> int:
    for block in range(end - 1, -1, -1):
        row = row + 1 if has(pool, keys, block) else 0
        if row == 2:
            return block + 2
    return row


# How large a container once was.


class _Sized(list[int]):
    size = property(list.__sizeof__)


# Whether two equal values are one object.


def _twice(same: Any, other: Any) -> Channel:
    kept = [same, same]

    def forget() -> None:
        kept[1] = other

    return forget, lambda: kept[0] is kept[1]


# Values that compare as equal.


@dataclass
class _Uncompared:
    bit: int = field(default=0, compare=False)


# Objects that do not show what they hold.


class _OtherDict:
    bit: int

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {}


class _OtherClass:
    bit = 0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int


class _OtherClassToo(_OtherClass):
    bit = 1


class _Mangled:
    __slots__ = ("__bit",)

    def __init__(self) -> None:
        self.__bit = 0

    def set(self) -> None:
        self.__bit = 1

    def get(self) -> int:
        return self.__bit


class _Getting:
    def __getattribute__(self, name: str) -> Any:
        if name in ("__dict__", "__class__"):
            return {} if name == "__dict__" else object
        return object.__getattribute__(self, name)


class _Plain:
    bit = 0


class _Dict(dict[str, Any]):
    bit = 0


# Iterators.


# What is dead is not gone.


class _Zero:
    def value(self) -> int:
        return self.bit

    bit = 0


class _One(_Zero):
    def value(self, rest: Any = None) -> Any:
        self = _ONES[self.bit]
        right = rest()
        return right, super().value()


_ONES = (_One(), _One())
_ONES[1].bit = 1


@held
def dead_variable_by_super(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right, value = _ONES[bit].value(rest)
    return right, bool(value)


class _Last:
    def __init__(self, told: list[int]) -> None:
        self._told = told

    def __del__(self) -> None:
        self._told.append(1)


@held
def dead_variable_with_a_finalizer(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    told: list[int] = []

    def holding() -> int:
        dead = _Last(told) if bit else None
        return rest()

    right = holding()
    return right, told == [1]


# The exception that is handled is not on the stack.


@held
def exception_of_a_generator(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    def holding(bit: bool) -> Iterator[Any]:
        try:
            raise ValueError(bit)
        except ValueError:
            yield 1
            try:
                raise KeyError
            except KeyError as error:
                yield error.__context__

    generator = holding(bit)
    next(generator)
    right = rest()
    return right, bool(next(generator).args[0])


@held
def value_of_a_finished_generator(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    def holding(bit: bool) -> Any:
        yield 1
        return bit

    def outer() -> Any:
        right = yield from asking()
        return right

    def asking() -> Any:
        value = yield from holding(bit)
        right = rest()
        return right, value

    generator = outer()
    next(generator)
    try:
        next(generator)
    except StopIteration as stop:
        right, seen = stop.value
        return right, bool(seen)
    return 0, False


# What C code takes for the same.


@functools.lru_cache
def kind_of(value: Any, _: int) -> str:
    return type(value).__name__


# What all share.

_weak: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class _Abstract(abc.ABC):  # noqa: B024  # the point
    pass


# What C code asks a class for, and what it looks at within what it is given.


class _SizedByAProperty:
    """C code calls what the property gives."""

    def __init__(self, kept: list[int]) -> None:
        self._kept = kept

    @property
    def __len__(self) -> Callable[[], int]:
        return self._kept.__sizeof__


def _of_a_set(read: Callable[[set[int]], bool]) -> Channel:
    kept: set[int] = set()

    def forget() -> None:
        for key in range(5):
            kept.add(key)
        for key in range(5):
            kept.discard(key)

    def strange() -> bool:
        kept.add(8)
        kept.add(1)
        return read(kept)

    return forget, strange


class _Near:
    """Equal to those beside it."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Near) and abs(self._place - other._place) <= 1

    def __hash__(self) -> int:
        return 1


class _Rehashed:
    number = 1

    def __hash__(self) -> int:
        return self.number


class _Counted:
    __getattr__: Any = staticmethod(sys.getrefcount)


_counted: Any = _Counted()


class _Counting(type):
    __call__ = sys.getrefcount


class _CountedError(Exception, metaclass=_Counting):
    pass


# Whether an object that is held is one that was there before.

_plain, _other_plain = sorted([_Plain(), _Plain()], key=str)


def _one_of_two(strange: Callable[[list[_Plain]], bool]) -> Channel:
    kept = [_plain]

    def forget() -> None:
        kept[0] = _other_plain

    return forget, lambda: strange(kept)


# Whether an object that is held was there before, or is made in the run and equal to that.


class _Never:
    """Not equal to itself, but C code takes it for the same."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


class _LeftToPython:
    def __eq__(self, other: object) -> bool:
        return NotImplemented

    __hash__ = _Never.__hash__


_never, _left_to_python, _notes, _numbers = _Never(), _LeftToPython(), [[0]], {0: 0}


def _old_or_new(old: Any, new: Callable[[], Any], strange: Callable[[Any], bool]) -> Channel:
    kept = [old]

    def forget() -> None:
        kept[0] = new()

    return forget, lambda: strange(kept[0])


def _seen_elsewhere(held: list[int]) -> bool:
    held.append(1)
    changed = len(_notes[0]) == 2
    held.pop()
    return changed


def _seen_in_the_dict(held: dict[int, int]) -> bool:
    held[1] = 1
    changed = len(_numbers) == 2
    del held[1]
    return changed


for _name, _make in made("channels", globals(), "", "{}\nreturn forget, strange").items():
    channel(_name, _make)

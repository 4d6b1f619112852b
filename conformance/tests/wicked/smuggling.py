"""Wicked lookups that carry one bit past a question, each through another corner of Python.

The bit is whether the answers so far followed a pattern. Two runs that differ in it look alike to
an observer that ignores that place.
"""

# ruff: noqa: ARG001, ARG005, F401, F841  # what is not used, or in text only, is the point

import abc
import array
import collections
import contextvars
import ctypes
import datetime
import decimal
import functools
import gc
import inspect
import io
import itertools
import logging
import math
import operator
import os
import pickle
import random
import re
import struct
import sys
import threading
import time
import types
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hitproof.conformance.tests.wicked.lookups import (
    MANY,
    WICKED,
    Find,
    has,
    hit,
    storing,
    strange_count,
    wicked,
    wrong_if,
)

PATTERN = (0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0)
"""Answers from the right that a run must have had: no two hits in a row, and not regular, so that
neither the first run that an explorer follows nor a random state has them."""

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


def stored(strange: Callable[[list[Any], Any], bool]) -> Callable[[list[Any], Any], bool]:
    """List the lookup that looks so into the table of what it found, 9 entries of it are set."""

    def find(pool: Any, keys: Sequence[bytes], limit: int) -> int:
        table, right = storing(pool, keys, limit)
        return wrong_if(strange(table, pool.null_block), right, limit)

    WICKED[strange.__name__] = find
    return strange


# How large a container once was.


class _Sized(list[int]):
    size = property(list.__sizeof__)


# Whether two equal values are one object.


def _twice(same: Any, other: Any) -> Channel:
    kept = [same, same]

    def forget() -> None:
        kept[1] = other

    return forget, lambda: kept[0] is kept[1]


def _made(text: str) -> Any:
    return eval(compile(text, "made", "eval"))


# Values that compare as equal.


@dataclass
class _Uncompared:
    bit: int = field(default=0, compare=False)


class _Alike:
    def __init__(self) -> None:
        self.bit = 0

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


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


class _Shadowed:
    __slots__ = ("bit",)


class _Shadowing(_Shadowed):
    __slots__ = ("bit",)
    bit: int


class _Renamed:
    __slots__ = ("bit",)


_RENAMED: Any = _Renamed.__dict__["bit"]
_Renamed.bit = property(lambda self: 0)  # type: ignore[attr-defined]


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


class _Vector(ctypes.Structure):
    _fields_ = (("bit", ctypes.c_int),)


# Iterators.


# What is dead is not gone.


_look = vars


@held
def dead_variable_by_vars(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    return right, bool(_look()["bit"])


@held
def dead_variable_by_locals(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    return right, bool(locals()["bit"])


@held
def dead_variable_by_partial(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    look = functools.partial(vars)
    right = rest()
    return right, bool(look()["bit"])


@held
def dead_variable_by_eval(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    return right, bool(*map(eval, ["bit"]))


@held
def dead_variable_by_exec(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    found: list[bool] = []
    operator.call(exec, "found.append(bit)")
    return right, found[0]


@held
def dead_variable_by_its_frame(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    return right, bool(sys._getframe().f_locals["bit"])


@held
def dead_variable_by_inspect(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    frame: Any = inspect.currentframe()
    return right, bool(inspect.getargvalues(frame).locals["bit"])


@held
def dead_variable_by_a_traceback(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = rest()
    try:
        raise ValueError
    except ValueError as error:
        traceback: Any = error.__traceback__
        return right, bool(traceback.tb_frame.f_locals["bit"])


@held
def dead_variable_of_a_generator(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    def holding(bit: bool) -> Iterator[int]:
        yield 1

    generator: Any = holding(bit)
    next(generator)
    right = rest()
    return right, bool(generator.gi_frame.f_locals["bit"])


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


@held
def dead_variable_by_weak_reference(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    kept = _Plain()
    reference = weakref.ref(kept)
    if not bit:
        del kept
    right = rest()
    return right, reference() is not None


@held
def dead_variable_by_its_weak_list(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    kept: Any = _Plain()
    dead = weakref.ref(kept)
    if not bit:
        del dead
    right = rest()
    return right, kept.__weakref__ is not None


@held
def dead_variable_by_references(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    kept = _Plain()
    count = sys.getrefcount(kept)
    dead = kept if bit else None
    right = rest()
    return right, sys.getrefcount(kept) > count


@held
def dead_variable_by_the_collector(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    kept = _Plain()
    dead = [kept] if bit else None
    right = rest()
    return right, len(gc.get_referrers(kept)) > 0


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
def exception_that_is_handled(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    try:
        raise ValueError(bit)
    except ValueError:
        right = rest()
        try:
            raise KeyError
        except KeyError as error:
            context: Any = error.__context__
            return right, bool(context.args[0])


@held
def exception_that_is_raised_again(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right = 0
    try:
        try:
            raise ValueError(bit)
        except ValueError:
            right = rest()
            raise
    except ValueError as error:
        return right, bool(error.args[0])


@held
def exception_by_sys(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    try:
        raise ValueError(bit)
    except ValueError:
        right = rest()
        error: Any = sys.exc_info()[1]
        return right, bool(error.args[0])


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
def exception_of_a_group(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    right, seen = 0, False
    try:
        try:
            raise ExceptionGroup("", [ValueError(bit), KeyError()])
        except* KeyError:
            right = rest()
    except* ValueError as group:
        seen = bool(group.exceptions[0].args[0])
    return right, seen


class _Manager:
    def __init__(self, bit: bool, told: list[bool]) -> None:
        self._bit = bit
        self._told = told

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._told.append(self._bit)


@held
def exit_of_a_context(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    told: list[bool] = []
    with _Manager(bit, told):
        right = rest()
    return right, told[0]


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


@held
def coroutine_that_waits(bit: bool, rest: Callable[[], int]) -> tuple[int, bool]:
    async def holding(bit: bool) -> bool:
        return bit

    coroutine = holding(bit)
    right = rest()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return right, bool(stop.value)
    return right, False


# What C code takes for the same.


@functools.lru_cache
def kind_of(value: Any, _: int) -> str:
    return type(value).__name__


# What all share.

_variable = contextvars.ContextVar("_variable", default=0)
_local = threading.local()
_weak: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_logger = logging.getLogger("wicked")


class _Abstract(abc.ABC):  # noqa: B024  # the point
    pass


# What was found, asked of C code.


@stored
def stored_null_by_index_of(table: list[Any], null: Any) -> bool:
    free = [each for each in range(len(table)) if operator.indexOf(table[each:], null) == 0]
    return strange_count(len(table) - len(free))


@stored
def stored_null_by_its_method(table: list[Any], null: Any) -> bool:
    return strange_count(len(table) - [*map(null.__eq__, table)].count(True))


@stored
def stored_null_by_a_dict(table: list[Any], null: Any) -> bool:
    known = {null: 1}
    return strange_count(len(table) - sum(known.get(block, 0) for block in table))


@stored
def stored_null_removed(table: list[Any], null: Any) -> bool:
    copy = list(table)
    removed = 0
    try:
        while True:
            copy.remove(null)
            removed += 1
    except ValueError:
        return strange_count(len(table) - removed)


@stored
def stored_null_in_a_deque(table: list[Any], null: Any) -> bool:
    return strange_count(len(table) - collections.deque(table).count(null))


@stored
def stored_as_keys(table: list[Any], null: Any) -> bool:
    return strange_count(len(dict.fromkeys(table)) - 1)


@stored
def stored_and_counted(table: list[Any], null: Any) -> bool:
    return strange_count(len(table) - collections.Counter(table)[null])


@stored
def stored_tuples_equal(table: list[Any], null: Any) -> bool:
    return strange_count(sum([(block,) != (null,) for block in table]))


@stored
def stored_and_matched(table: list[Any], null: Any) -> bool:
    kept = types.SimpleNamespace(null=null)
    found = 0
    for block in table:
        match block:
            case kept.null:
                pass
            case _:
                found += 1
    return strange_count(found)


@stored
def stored_numbers(table: list[Any], null: Any) -> bool:
    return strange_count(sum([block.block_id != null.block_id for block in table]))


@stored
def stored_attribute_by_getter(table: list[Any], null: Any) -> bool:
    return strange_count(sum([*map(operator.attrgetter("is_null"), table)]))


@stored
def stored_and_pickled(table: list[Any], null: Any) -> bool:
    return len(pickle.dumps(table)) % 1009 == 0


@stored
def stored_and_sorted(table: list[Any], null: Any) -> bool:
    order = sorted(table, key=lambda block: block is null)
    return order[-MANY:] != [null] * MANY and order[-MANY:][0] is null


@stored
def stored_weakly(table: list[Any], null: Any) -> bool:
    return strange_count(len(weakref.WeakSet(table)) - 1)


@stored
def stored_identities(table: list[Any], null: Any) -> bool:
    return strange_count(len({*map(id, table)}) - 1)


@stored
def stored_by_count_of(table: list[Any], null: Any) -> bool:
    return strange_count(len(table) - operator.countOf(table, null))


@stored
def stored_and_grouped_by_type(table: list[Any], null: Any) -> bool:
    return strange_count(sum([block.__class__ is not null.__class__ for block in table]))


@stored
def stored_truth(table: list[Any], null: Any) -> bool:
    return strange_count(len([*filter(null.__ne__, table)]))


# What is made of addresses.


def always(strange: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def find(pool: Any, keys: Sequence[bytes], limit: int) -> int:
        row = 0
        for block in range(limit - 1, -1, -1):
            row = row + 1 if has(pool, keys, block) else 0
            if row == 2:
                return wrong_if(strange(pool), block + 2, limit)
        return row

    WICKED[strange.__name__] = find
    return strange


@always
def address_in_the_text_of_an_error(pool: Any) -> bool:
    return str(ValueError(object(), 1)).endswith("1230>, 1)")


@always
def address_in_a_hash_by_its_method(pool: Any) -> bool:
    return object().__hash__() % 1009 == 0


@always
def address_in_a_hash_of_a_frozen_set(pool: Any) -> bool:
    return hash(frozenset([object()])) % 1009 == 0


@always
def address_in_a_text_by_its_method(pool: Any) -> bool:
    return object().__repr__().endswith("1230>")


@always
def address_in_an_ascii_text(pool: Any) -> bool:
    return f"{[object()]!a}".endswith("1230>]")


@always
def address_in_the_hash_of_nan(pool: Any) -> bool:
    return hash(float("nan")) % 1009 == 0


@always
def address_as_a_default_key(pool: Any) -> bool:
    return max([object(), object()], key=id) is None


@always
def address_in_a_text_of_a_namespace(pool: Any) -> bool:
    return repr(types.SimpleNamespace(a=object())).endswith("1230>)")


@always
def address_in_a_hash_of_a_method(pool: Any) -> bool:
    return hash([].append) % 1009 == 0


@always
def address_in_order_of_a_frozen_set(pool: Any) -> bool:
    first, *_, last = frozenset(object() for _ in range(9))
    return first is last


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
_lists: list[list[int]] = [[], []]


class _Hashed:
    last = 0

    def __init__(self, kept: list[_Plain]) -> None:
        self._kept = kept

    def __hash__(self) -> int:
        return hash(self._kept[0])


class _KeepsItsHash(_Hashed):
    def __hash__(self) -> int:
        self.last = hash(self._kept[0])
        return self.last


_hash_of_plain = hash(_plain)


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


_table: list[Any] = []


@wicked
def returns_a_table_that_was_there(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """Whoever asked the time before has cut the block table to the hit."""
    right = hit(pool, keys, limit)
    strange = len(_table) == limit - MANY != right
    _table[:] = pool.table
    pool.table = _table
    return wrong_if(strange, right, limit)


@wicked
def whether_a_variable_is_deleted(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """To delete a variable without a value is an error."""
    mark: int
    same = True
    end = max(limit - len(PATTERN), 0)
    for block in range(limit - 1, end - 1, -1):
        same = has(pool, keys, block) == PATTERN[limit - 1 - block] and same
    if not same or end < 2:
        mark = 1
    has(pool, keys, 0)
    del mark
    return hit(pool, keys, limit)


@wicked
def stored_inner_numbers(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    table, right = storing(pool, keys, limit)
    return wrong_if(strange_count(sum([block._number != 0 for block in table])), right, limit)


@wicked
def answers_of_the_pool(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    right = hit(pool, keys, limit)
    missing = sum([not each for each in pool.real.answers.values()])
    return wrong_if(missing == MANY, right, limit)


CHANNELS = r'''
# How large a container once was.
capacity_of_a_list:
    kept = []
    for _ in range(4): kept.append(0)
    size = kept.__sizeof__()
    def forget(): kept.append(0); kept.pop()
    strange = lambda: kept.__sizeof__() == size
capacity_of_a_dict:
    kept = {}
    for key in range(5): kept[key] = key
    size = kept.__sizeof__()
    def forget():
        for key in range(5, 50): kept[key] = key
        for _ in range(5, 50): kept.popitem()
    strange = lambda: kept.__sizeof__() == size
capacity_of_a_set:
    kept = set()
    def forget():
        for key in range(5): kept.add(key)
        for key in range(5): kept.discard(key)
    def strange():
        kept.add(8); kept.add(1)
        return [*kept] == [8, 1]
capacity_of_a_bytearray:
    kept = bytearray(4); size = kept.__alloc__()
    def forget(): kept.append(0); kept.pop()
    strange = lambda: kept.__alloc__() == size
capacity_of_a_deque:
    kept = collections.deque([0] * 60); size = kept.__sizeof__()
    def forget():
        if kept.__sizeof__() == size:
            kept.rotate(1)
            for _ in range(33):
                kept.append(0)
                kept.popleft()
    strange = lambda: kept.__sizeof__() == size
capacity_of_an_array:
    kept = array.array("b", [0] * 4); size = kept.__sizeof__()
    def forget(): kept.append(0); kept.pop()
    strange = lambda: kept.__sizeof__() == size
capacity_by_getsizeof:
    kept = []
    for _ in range(4): kept.append(0)
    size = sys.getsizeof(kept)
    def forget(): kept.append(0); kept.pop()
    strange = lambda: sys.getsizeof(kept) == size
capacity_by_a_property:  # The size is read by C code, as an attribute.
    kept = _Sized()
    for _ in range(4): kept.append(0)
    size = kept.size
    def forget(): kept.append(0); kept.pop()
    strange = lambda: bool(kept.size == size)
text_with_a_cached_encoding:
    kept = "".join(("ü", "abc")); size = kept.__sizeof__()
    def forget(): type(kept, (), {})
    strange = lambda: kept.__sizeof__() == size
# Whether two equal values are one object.
identity_of_nan:
    first, second = float("nan"), float("nan"); kept = [first, first]
    def forget(): kept[1] = second
    strange = lambda: kept[0] in kept[1:]
identity_of_nan_in_a_dict:
    first, second = float("nan"), float("nan"); kept = [first, {first: 1}]
    def forget(): kept[0] = second
    strange = lambda: kept[0] in kept[1]
identity_of_a_float:
    return _twice(float("1.5"), float("1.5"))
identity_of_an_integer:
    return _twice(int("12345"), int("12345"))
identity_of_a_text:
    return _twice("".join(("ab", "cd")), "".join(("ab", "cd")))
identity_of_bytes:
    return _twice(b"".join((b"ab", b"cd")), b"".join((b"ab", b"cd")))
identity_of_a_tuple:
    return _twice(tuple([1, 2]), tuple([1, 2]))
identity_of_a_range:
    return _twice(range(1, 5), range(1, 5))
identity_of_a_complex:
    return _twice(complex(1, 2), complex(1, 2))
identity_of_a_text_that_is_interned:
    kept = ["".join(("interned", "text"))]; one = sys.intern(kept[0])
    other = "".join(("interned", "text"))
    def forget(): kept[0] = other
    strange = lambda: kept[0] is one
identity_of_a_bound_method:
    first, second = ([0], [0]); kept = [first.append]
    def forget(): kept[0] = second.append
    strange = lambda: (kept[0](1), len(first))[1] == 2
identity_of_an_integer_of_the_run:  # Both are computed, and one of them is the limit of the run.
    base = 1000; kept = [base + 1, 0]; kept[1] = kept[0]
    def forget(): kept[1] = base + 1
    strange = lambda: kept[0] is kept[1]
# Values that compare as equal.
sign_of_nan:
    kept = [math.copysign(float("nan"), 1.0)]
    def forget(): kept[0] = math.copysign(float("nan"), -1.0)
    strange = lambda: math.copysign(1.0, kept[0]) == 1.0
payload_of_nan:
    kept = [struct.unpack("<d", bytes([1, 0, 0, 0, 0, 0, 248, 127]))[0]]
    def forget(): kept[0] = struct.unpack("<d", bytes([2, 0, 0, 0, 0, 0, 248, 127]))[0]
    strange = lambda: struct.pack("<d", kept[0])[0] == 1
sign_of_nan_in_a_complex:
    kept = [complex(0.0, math.copysign(float("nan"), 1.0))]
    def forget(): kept[0] = complex(0.0, math.copysign(float("nan"), -1.0))
    strange = lambda: math.copysign(1.0, kept[0].imag) == 1.0
sign_of_zero_in_a_complex:
    kept = [complex(0.0, 0.0)]
    def forget(): kept[0] = complex(0.0, -0.0)
    strange = lambda: math.copysign(1.0, kept[0].imag) == 1.0
sign_of_zero:
    kept = [0.0]
    def forget(): kept[0] = -0.0
    strange = lambda: math.copysign(1.0, kept[0]) == 1.0
type_of_a_number:
    kept = [1]
    def forget(): kept[0] = True
    strange = lambda: kept[0] is not True
start_of_an_empty_range:
    kept = [range(0)]
    def forget(): kept[0] = range(2, 1)
    strange = lambda: kept[0].start == 0
fold_of_a_time:
    kept = [datetime.datetime(2026, 1, 1)]
    def forget(): kept[0] = datetime.datetime(2026, 1, 1, fold=1)
    strange = lambda: kept[0].fold == 0
hidden_field_of_a_struct_sequence:
    kept = [time.struct_time((0,) * 9, {"tm_zone": "A"})]
    def forget(): kept[0] = time.struct_time((0,) * 9, {"tm_zone": "B"})
    strange = lambda: kept[0].tm_zone == "A"
exponent_of_a_decimal:
    kept = [decimal.Decimal("1.0")]
    def forget(): kept[0] = decimal.Decimal("1.00")
    strange = lambda: str(kept[0]) == "1.0"
field_that_is_not_compared:
    kept = _Uncompared()
    def forget(): kept.bit = 1
    strange = lambda: kept.bit == 0
objects_that_are_always_equal:
    kept = _Alike()
    def forget(): kept.bit = 1
    strange = lambda: kept.bit == 0
name_of_a_file_of_code:
    def function():
        pass
    function.__code__ = function.__code__.replace(co_filename="a")
    def forget(): function.__code__ = function.__code__.replace(co_filename="b")
    strange = lambda: function.__code__.co_filename == "a"
# Objects that do not show what they hold.
behind_another_dict:
    kept = _OtherDict(); kept.bit = 0
    def forget(): kept.bit = 1
    strange = lambda: kept.bit == 0
behind_another_class:
    kept = [_OtherClass()]
    def forget(): kept[0] = _OtherClassToo()
    strange = lambda: kept[0].bit == 0
in_a_shadowed_slot:
    kept = _Shadowing(); kept.bit = 0; slot = _Shadowed.__dict__["bit"]; slot.__set__(kept, 0)
    def forget(): slot.__set__(kept, 1)
    strange = lambda: bool(slot.__get__(kept) == 0)
in_a_slot_without_a_name:
    kept = _Renamed(); _RENAMED.__set__(kept, 0)
    def forget(): _RENAMED.__set__(kept, 1)
    strange = lambda: bool(_RENAMED.__get__(kept) == 0)
in_a_private_slot:
    kept = _Mangled()
    forget = kept.set
    strange = lambda: kept.get() == 0
behind_every_attribute:
    kept = _Getting(); kept.bit = 0
    def forget(): kept.bit = 1
    strange = lambda: kept.bit == 0
alias_of_an_instance_dict:
    kept = _Plain(); kept.bit = 0; shown = [kept.__dict__]
    def forget(): shown[0] = dict(kept.__dict__)
    def strange():
        shown[0]["bit"] = 5
        return kept.bit == 5
on_an_instance_dict:
    kept = _Plain(); dictionary = _Dict(); kept.__dict__ = dictionary; del dictionary
    def forget(): kept.__dict__.bit = 1
    strange = lambda: bool(kept.__dict__.bit == 0)
order_of_an_ordered_dict:
    kept = collections.OrderedDict({"a": 0, "b": 0})
    def forget(): kept.move_to_end("b"); kept.move_to_end("a")
    strange = lambda: next(iter(kept)) == "a"
order_below_an_ordered_dict:  # The order of the dict that it is made of, too, is an order.
    kept = collections.OrderedDict({"a": 0, "b": 0})
    def forget(): kept["a"] = kept.pop("a"); kept.move_to_end("b")
    strange = lambda: next(dict.__iter__(kept)) == "a"
arguments_of_an_exception:
    kept = ValueError(0)
    def forget(): kept.args = (1,)
    strange = lambda: kept.args == (0,)
context_of_an_exception:
    kept = ValueError(); kept.__context__ = KeyError()
    def forget(): kept.__context__ = IndexError()
    strange = lambda: isinstance(kept.__context__, KeyError)
traceback_of_an_exception:
    kept = ValueError()
    def forget():
        try:
            raise kept
        except ValueError:
            pass
    strange = lambda: kept.__traceback__ is None
line_of_a_traceback:
    kept = ValueError()
    def put(other):
        kept.__traceback__ = None
        try:
            if other:
                raise kept
            raise kept
        except ValueError:
            pass
    put(False); first = kept.__traceback__; line = first.tb_lineno; del first
    forget = lambda: put(True)
    def strange():
        traceback = kept.__traceback__
        return bool(traceback.tb_lineno == line)
text_of_a_function:
    def kept():
        """A."""
    def forget(): kept.__doc__ = "B"
    strange = lambda: kept.__doc__ == "A."
name_of_a_function:
    def kept():
        pass
    def forget(): kept.__qualname__ = "b"
    strange = lambda: kept.__qualname__ != "b"
module_of_a_function:
    def kept():
        pass
    def forget(): kept.__module__ = "b"
    strange = lambda: kept.__module__ != "b"
annotations_of_a_function:
    def kept() -> None:
        pass
    def forget(): kept.__annotations__["return"] = 1
    strange = lambda: kept.__annotations__["return"] is None
defaults_of_a_function:
    def kept(bit=0, *, other=0):
        return bit + other
    def forget(): kept.__kwdefaults__ = {"other": 1}
    strange = lambda: kept() == 0
attribute_of_a_function:
    def kept():
        pass
    kept.bit = 0
    def forget(): kept.bit = 1
    strange = lambda: bool(kept.bit == 0)
cells_that_are_shared:
    def made():
        bit = 0
        def put(value):
            nonlocal bit
            bit = value
        return (put, lambda: bit)
    kept = [*made()]
    def forget(): kept[1] = made()[1]
    def strange():
        kept[0](1)
        return bool(kept[1]() == 1)
in_a_partial:
    kept = functools.partial(int); kept.bit = 0
    def forget(): kept.bit = 1
    strange = lambda: bool(kept.bit == 0)
in_a_namespace:
    kept = types.SimpleNamespace(bit=0)
    def forget(): kept.bit = 1
    strange = lambda: bool(kept.bit == 0)
in_a_lock:
    kept = threading.Lock()
    forget = lambda: kept.acquire(blocking=False)
    strange = lambda: not kept.locked()
in_an_event:
    kept = threading.Event()
    forget = kept.set
    strange = lambda: not kept.is_set()
in_a_stream:
    kept = io.StringIO("ab")
    forget = lambda: kept.seek(1)
    strange = lambda: kept.tell() == 0
in_a_checksum:
    kept = zlib.compressobj()
    forget = lambda: kept.compress(b"a")
    strange = lambda: len(kept.flush()) == 8
in_a_generator_of_numbers:
    kept = random.Random(1); first = random.Random(1).random()
    forget = kept.random
    strange = lambda: kept.random() == first
in_a_memoryview:
    kept = memoryview(b"a")
    forget = kept.release
    def strange():
        try:
            return len(kept) == 1
        except ValueError:
            return False
in_a_structure:
    kept = struct.Struct("b")
    forget = lambda: kept.__init__("h")
    strange = lambda: kept.size == 1
in_memory_of_c:
    kept = _Vector(0)
    def forget(): kept.bit = 1
    strange = lambda: bool(kept.bit == 0)
# Iterators.
end_of_an_iterator:  # At the end of its list, and past it.
    items = []; kept = iter(items)
    forget = lambda: next(kept, 0)
    def strange():
        items.append(1)
        return next(kept, 0) == 1
size_that_an_iterator_has_seen:
    items = {1: 1, 2: 2}; kept = [iter(items)]
    def forget(): items[3] = 3; kept[0] = iter(items); del items[3]
    def strange():
        try:
            return next(kept[0]) == 1
        except RuntimeError:
            return False
size_that_an_iterator_of_a_set_has_seen:
    items = {1, 2}; kept = [iter(items)]
    def forget(): items.add(3); kept[0] = iter(items); items.discard(3)
    def strange():
        try:
            return next(kept[0]) == 1
        except RuntimeError:
            return False
iterator_of_chained_lists:
    kept = [itertools.chain([0], [1]), None]
    def forget(): next(kept[0], None)
    strange = lambda: next(kept[0], None) == 0
iterator_that_is_accumulated:
    kept = itertools.accumulate(itertools.repeat(1))
    forget = lambda: next(kept)
    strange = lambda: next(kept) == 1
iterator_in_two:
    first, second = itertools.tee([0, 1, 2])
    forget = lambda: next(second, None)
    strange = lambda: next(second, None) == 0
iterator_in_pairs:
    kept = itertools.pairwise(itertools.repeat(0, 9))
    forget = lambda: next(kept, None)
    strange = lambda: len([*kept]) == 8
iterator_that_drops:  # Whether it drops any more: both are before the second of the numbers.
    kept = [itertools.dropwhile(bool, iter([0, 1, 0]))]; next(kept[0])
    def forget():
        numbers = iter([0, 1, 0]); next(numbers); kept[0] = itertools.dropwhile(bool, numbers)
    strange = lambda: next(kept[0]) == 1
hint_of_an_iterator:
    kept = iter([0, 0, 0, 0])
    forget = lambda: next(kept, 0)
    strange = lambda: operator.length_hint(kept) == 4
# What C code takes for the same.
memo_of_equal_arguments:  # Which of them came first is in the memo.
    kept = [1]
    def forget(): kept[0] = True
    strange = lambda: kind_of(kept[0], 2) == "int"
names_of_arguments:  # The key comes in a dict of arguments.
    named = {"key": id}; first = [0]; kept = [first]
    def forget(): kept[0] = [0]
    strange = lambda: min(first, *kept, **named) is max(first, *kept, **named)
# What all share.
in_a_context_variable:
    _variable.set(0)
    forget = lambda: _variable.set(1)
    strange = lambda: _variable.get() == 0
in_a_context_of_its_own:
    context = contextvars.Context()
    forget = lambda: context.run(_variable.set, 1)
    strange = lambda: context.get(_variable) is None
in_a_local_of_the_thread:
    _local.bit = 0
    def forget(): _local.bit = 1
    strange = lambda: bool(_local.bit == 0)
in_a_weak_dict:
    kept = _Plain()
    def forget(): _weak[kept] = 1
    strange = lambda: kept not in _weak
in_the_level_of_a_logger:
    _logger.setLevel(10)
    forget = lambda: _logger.setLevel(20)
    strange = lambda: _logger.level == 10
in_the_environment:
    os.environ["WICKED"] = "0"
    def forget(): os.environ["WICKED"] = "1"
    strange = lambda: os.environ["WICKED"] == "0"
in_the_seed:
    random.seed(1); first = random.random(); random.seed(1)
    forget = random.random
    strange = lambda: random.random() == first
in_the_switch_of_the_collector:
    forget = gc.enable
    strange = gc.isenabled
in_the_decimal_context:
    decimal.getcontext().clear_flags()
    def forget(): decimal.getcontext().flags[decimal.Inexact] = True
    strange = lambda: not decimal.getcontext().flags[decimal.Inexact]
in_an_abstract_class:
    class Kind:
        pass
    forget = lambda: _Abstract.register(Kind)
    strange = lambda: not issubclass(Kind, _Abstract)
in_the_classes_below:
    class Kind:
        pass
    kept = []
    def forget():
        class Below(Kind):
            pass
        kept.append(Below); kept.clear()
    strange = lambda: not Kind.__subclasses__()
in_a_warning:
    mark = ("ignore", None, Warning, None, 7); filters = warnings.filters
    if mark in filters: filters.remove(mark)
    forget = lambda: mark in filters or filters.append(mark)
    strange = lambda: mark not in filters
in_errno:
    ctypes.set_errno(0)
    forget = lambda: ctypes.set_errno(7)
    strange = lambda: ctypes.get_errno() == 0
# What C code asks a class for, and what it looks at within what it is given.
capacity_by_the_length_of_an_object:
    kept = []
    for _ in range(4): kept.append(0)
    sized = _SizedByAProperty(kept); size = len(sized)
    def forget(): kept.append(0); kept.pop()
    strange = lambda: len(sized) == size
order_of_a_set_that_is_a_pair:
    made = dict
    return _of_a_set(lambda kept: [*made([kept])] == [8])
order_of_a_set_that_updates:
    made = {}
    return _of_a_set(lambda kept: [made.clear(), made.update([kept]), *made][2:] == [8])
order_of_a_set_by_a_key:
    return _of_a_set(lambda kept: len(min([kept, {3}], key=tuple)) == 1)
address_by_a_key:
    kept = [_plain, _other_plain]
    def forget(): kept.reverse()
    strange = lambda: max(kept, key=str) is kept[1]
place_of_a_key_in_a_dict:  # A key takes the place of one that is gone, so it is found first.
    first, second, third = (_Near(5), _Near(1), _Near(3)); kept = {first: 0, second: 1}
    del kept[first]; kept[third] = 2
    def forget(): kept.clear(); kept[second] = 1; kept[third] = 2
    strange = lambda: kept[_Near(2)] == 2
hash_that_a_key_once_had:
    key = _Rehashed(); kept = {key: 0}
    def forget(): kept.clear(); key.number = 2; kept[key] = 0; key.number = 1
    strange = lambda: key in kept
references_by_a_missing_attribute:
    name, equal = ("some_odd_name", "".join(("some_odd", "_name"))); kept = [name] * 50
    def forget(): kept[:] = [equal] * 50
    strange = lambda: bool(_counted.some_odd_name > 40)
references_by_a_class_of_errors:
    name, equal = ("".join(("abc", "def")), "".join(("abc", "def"))); kept = [name] * 50
    count = _CountedError
    def forget(): kept[:] = [equal] * 50
    strange = lambda: bool(count(name) > 40)
# Whether an object that is held is one that was there before.
one_that_was_there_by_identity:
    return _one_of_two(lambda kept: kept[0] is _plain)
one_that_was_there_by_equality:
    return _one_of_two(lambda kept: kept[0] == _plain)
one_that_was_there_in_a_list:
    return _one_of_two(lambda kept: _plain in kept)
one_that_was_there_as_a_key:
    return _one_of_two(lambda kept: {_plain: 1}.get(kept[0]) == 1)
one_that_was_there_by_a_hash:
    return _one_of_two(lambda kept: _Hashed(kept).__hash__() == _hash_of_plain)
one_that_was_there_by_a_hash_that_is_kept:
    def strange(kept):
        hashed = _KeepsItsHash(kept)
        return len({hashed: 1}) == 1 and hashed.last == _hash_of_plain
    return _one_of_two(strange)
list_that_was_there:
    kept = [_lists[0]]
    def forget(): kept[0] = _lists[1]
    strange = lambda: kept[0] is _lists[0]
# Whether an object that is held was there before, or is made in the run and equal to that.
old_or_new_by_the_keys_of_a_set:
    return _old_or_new(_plain, _Plain, lambda held: len({_plain, held}) == 1)
old_or_new_by_the_keys_of_a_dict:
    return _old_or_new(_plain, _Plain, lambda held: len(dict.fromkeys([_plain, held])) == 1)
old_or_new_unequal_to_itself_in_a_list:
    return _old_or_new(_never, _Never, lambda held: held in [_never])
old_or_new_unequal_to_itself_in_equal_lists:
    return _old_or_new(_never, _Never, lambda held: [held] == [_never])
old_or_new_unequal_to_itself_as_a_key:
    return _old_or_new(_never, _Never, lambda held: {_never: 1}.get(held) == 1)
old_or_new_compared_by_python:
    return _old_or_new(_left_to_python, _LeftToPython, lambda held: held == _left_to_python)
old_or_new_compared_by_python_in_a_tuple:
    return _old_or_new(_left_to_python, _LeftToPython, lambda held: (held,) == (_left_to_python,))
old_or_new_by_a_change:
    return _old_or_new(_notes[0], lambda: [0], _seen_elsewhere)
old_or_new_by_a_change_inside:
    return _old_or_new(_notes, lambda: [[0]], lambda held: _seen_elsewhere(held[0]))
old_or_new_by_a_change_of_a_dict_of_numbers:
    # The collector does not know the age of a dict of numbers.
    return _old_or_new(_numbers, lambda: {0: 0}, _seen_in_the_dict)
old_or_new_by_a_default:
    def change(held=_notes[0]):
        return held
    def same(held=[0]):
        return held
    return _old_or_new(change(), same, _seen_elsewhere)
'''
"""The lookups that keep their bit somewhere: the name of each, and what sets it up, forgets the bit
and reads it. It is source, so that each runs the instructions that are the point."""


def _list_channels() -> None:
    """List the lookup of each channel."""
    for name, body in re.findall(r"^(\w+):.*\n((?: .*\n)+)", CHANNELS, flags=re.M):
        returned = (
            "" if re.search("^    return", body, flags=re.M) else "    return forget, strange\n"
        )
        made: dict[str, Callable[[], Channel]] = {}
        exec(f"def {name}():\n{body}{returned}", globals(), made)
        channel(name, made[name])


_list_channels()

"""Wicked lookups that carry one bit past a question, each through another corner of Python.

The bit is whether the answers so far followed a pattern. Two runs that differ in it look alike to
an observer that ignores that place.
"""

# ruff: noqa: F401, F841  # what is not used, or in text only, is the point

import abc
import collections
import functools
import math
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hitproof.conformance.tests.wicked.lookups import MANY, WICKED, Find, has, hit, wicked, wrong_if

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


@wicked
def address_in_the_text_of_an_error(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    strange = str(ValueError(object(), 1)).endswith("1230>, 1)")
    return wrong_if(strange, hit(pool, keys, limit), limit)


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


_table: list[Any] = []


@wicked
def returns_a_table_that_was_there(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """The previous caller has cut the block table to the hit."""
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
def answers_of_the_pool(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    right = hit(pool, keys, limit)
    missing = sum([not each for each in pool.real.answers.values()])
    return wrong_if(missing == MANY, right, limit)


CHANNELS = r"""
# How large a container once was.
capacity_of_a_list:
    kept = []
    for _ in range(4): kept.append(0)
    size = kept.__sizeof__()
    def forget(): kept.append(0); kept.pop()
    strange = lambda: kept.__sizeof__() == size
capacity_of_a_set:
    kept = set()
    def forget():
        for key in range(5): kept.add(key)
        for key in range(5): kept.discard(key)
    def strange():
        kept.add(8); kept.add(1)
        return [*kept] == [8, 1]
capacity_by_a_property:  # The size is read by C code, as an attribute.
    kept = _Sized()
    for _ in range(4): kept.append(0)
    size = kept.size
    def forget(): kept.append(0); kept.pop()
    strange = lambda: bool(kept.size == size)
# Whether two equal values are one object.
identity_of_nan:
    first, second = float("nan"), float("nan"); kept = [first, first]
    def forget(): kept[1] = second
    strange = lambda: kept[0] in kept[1:]
identity_of_an_integer:
    return _twice(int("12345"), int("12345"))
identity_of_a_bound_method:
    first, second = ([0], [0]); kept = [first.append]
    def forget(): kept[0] = second.append
    strange = lambda: (kept[0](1), len(first))[1] == 2
# Values that compare as equal.
type_of_a_number:
    kept = [1]
    def forget(): kept[0] = True
    strange = lambda: kept[0] is not True
field_that_is_not_compared:
    kept = _Uncompared()
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
defaults_of_a_function:
    def kept(bit=0, *, other=0):
        return bit + other
    def forget(): kept.__kwdefaults__ = {"other": 1}
    strange = lambda: kept() == 0
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
# What C code takes for the same.
memo_of_equal_arguments:  # Which of them came first is in the memo.
    kept = [1]
    def forget(): kept[0] = True
    strange = lambda: kind_of(kept[0], 2) == "int"
# What all share.
in_a_weak_dict:
    kept = _Plain()
    def forget(): _weak[kept] = 1
    strange = lambda: kept not in _weak
in_an_abstract_class:
    class Kind:
        pass
    forget = lambda: _Abstract.register(Kind)
    strange = lambda: not issubclass(Kind, _Abstract)
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
# Whether an object that is held was there before, or is made in the run and equal to that.
old_or_new_by_the_keys_of_a_set:
    return _old_or_new(_plain, _Plain, lambda held: len({_plain, held}) == 1)
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
"""
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

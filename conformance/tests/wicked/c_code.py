"""Wicked lookups that leave it to C code to call, to make texts and hashes, and to compare."""

import functools
import itertools
import operator
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from hitproof.conformance.tests.wicked.lookups import (
    MANY,
    OnTheClass,
    hit,
    scanning,
    storing,
    wicked,
    wrong_if,
)


@wicked
def by_the_address_within_map(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(next(map(id, [pool])) % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_the_clock_within_an_iterator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    now = next(iter(time.monotonic_ns, None))
    return wrong_if(now % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_the_clock_within_a_dict(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    times: defaultdict[int, int] = defaultdict(time.monotonic_ns)
    return wrong_if(times[0] % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_the_clock_by_operator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    now = operator.call(time.monotonic_ns)
    return wrong_if(now % 1009 == 0, hit(pool, keys, limit), limit)


class _Clock:
    now = property(operator.methodcaller("monotonic_ns"))
    monotonic_ns = staticmethod(time.monotonic_ns)


_clock = _Clock()


@wicked
def by_the_clock_within_a_property(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(_clock.now % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_a_text_that_is_filled_in(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    text = "%s" % object()  # noqa: UP031  # the point
    return wrong_if(text.endswith("1230>"), hit(pool, keys, limit), limit)


@wicked
def by_a_text_that_is_formatted(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    text = "{}".format({"a": object()})  # the point
    return wrong_if(text.endswith("1230>}"), hit(pool, keys, limit), limit)


@wicked
def by_the_text_of_a_function(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(f"{hit}".endswith("1230>"), hit(pool, keys, limit), limit)


@wicked
def by_the_hash_of_a_tuple(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(hash((pool, 1)) % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_the_order_of_a_set(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    first, *_, last = {object() for _ in range(9)}
    return wrong_if(first is last, hit(pool, keys, limit), limit)


@wicked
def on_a_class_by_its_type(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    put = type.__setattr__
    put(OnTheClass, "missing", 0)

    def note() -> None:
        put(OnTheClass, "missing", OnTheClass.missing + 1)

    return scanning(pool, keys, limit, note, lambda: OnTheClass.missing == MANY)


@wicked
def stored_tables_equal_by_operator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    table, right = storing(pool, keys, limit)
    nulls = [pool.null_block] * (limit - right - 4)
    return wrong_if(operator.eq(table[right + 4 :], nulls), right, limit)


@wicked
def stored_tables_grouped(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    table, right = storing(pool, keys, limit)
    groups = [key for key, _ in itertools.groupby(table[right + 4 :])]
    return wrong_if(len(groups) == 1, right, limit)


_NAMES = "".join(f"OnTheClass.name_{number}, " for number in range(300))
_FAR = f"""
def start():
    if OnTheClass is None: {_NAMES}
    OnTheClass.far = 0
def note():
    if OnTheClass is None: {_NAMES}
    OnTheClass.far = OnTheClass.far + 1
def noted():
    return OnTheClass.far
"""
"""The arguments of its instructions are so large that they need an instruction of their own."""
_far: dict[str, Any] = {"OnTheClass": OnTheClass}
exec(_FAR, _far)


@wicked
def stored_with_large_arguments(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    _far["start"]()
    return scanning(pool, keys, limit, _far["note"], lambda: _far["noted"]() == MANY)


class _Memo:
    @functools.lru_cache  # noqa: B019  # the point
    def noted(self) -> list[int]:
        return [0]


_noted = _Memo().noted
"""A bound method of C code."""


@wicked
def in_a_cached_method(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    _Memo.noted.cache_clear()

    def note() -> None:
        _noted()[0] += 1

    return scanning(pool, keys, limit, note, lambda: _noted()[0] == MANY)


_clock_of = types.MethodType(time.clock_gettime_ns, time.CLOCK_MONOTONIC)


@wicked
def by_the_clock_as_a_method(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(_clock_of() % 1009 == 0, hit(pool, keys, limit), limit)


def _count(*given: int) -> int:
    return len(given)


_once = iter([1])


@wicked
def once_from_an_iterator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(_count(*_once) == 1, hit(pool, keys, limit), limit)


_later = iter(range(1 << 20))


def _one() -> Iterator[int]:
    yield from _later


@wicked
def from_within_an_iterator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(next(_one()) % 1009 == MANY, hit(pool, keys, limit), limit)


class _Seen(defaultdict[int, int]):
    pass


_seen = _Seen(int)


@wicked
def in_a_kind_of_default_dict(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    _ = _seen[len(_seen)]
    return wrong_if(len(_seen) % 1009 == 0, hit(pool, keys, limit), limit)

"""Wicked lookups that leave it to C code to call, to make texts and hashes, and to compare."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hitproof.conformance.tests.wicked.lookups import (
    MANY,
    OnTheClass,
    hit,
    scanning,
    wicked,
    wrong_if,
)


@wicked
def by_the_address_within_map(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(next(map(id, [pool])) % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_a_text_that_is_filled_in(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    text = "%s" % object()  # noqa: UP031  # the point
    return wrong_if(text.endswith("1230>"), hit(pool, keys, limit), limit)


@wicked
def by_the_order_of_a_set(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    first, *_, last = {object() for _ in range(9)}
    return wrong_if(first is last, hit(pool, keys, limit), limit)


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


"""A bound method of C code."""


def _count(*given: int) -> int:
    return len(given)


_once = iter([1])


@wicked
def once_from_an_iterator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(_count(*_once) == 1, hit(pool, keys, limit), limit)


class _Seen(defaultdict[int, int]):
    pass


_seen = _Seen(int)


@wicked
def in_a_kind_of_default_dict(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    _ = _seen[len(_seen)]
    return wrong_if(len(_seen) % 1009 == 0, hit(pool, keys, limit), limit)

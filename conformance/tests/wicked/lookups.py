"""Wicked lookups: wrong in a way that an explorer could overlook, and benign twins of them.

Each is a function of a pool, the keys of a request of 24 blocks (one token each) and the most
blocks to serve. The group is a window of 3 tokens, so a hit of n blocks requires the blocks n - 2
and n - 1, or what there is of them. A wicked one serves a wrong hit in rare states; what it
remembers until then is on a stack, in a cell, on a class, in C code, in the identity of an object,
and so on. A benign one uses the same, and is right.
"""

import contextlib
import functools
import itertools
import time
import tomllib
from collections import defaultdict  # noqa: F401  # in source below
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any, TypeAlias

Find: TypeAlias = Callable[[Any, Sequence[bytes], int], int]
"""The hit in blocks; the table is filled in by the caller."""

SOURCE = tomllib.loads(Path(__file__).with_name("source.toml").read_text("utf-8"))
"""Source of lookups, in tables of what it is about."""

WICKED: dict[str, Find] = {}
BENIGN: dict[str, Find] = {}


def wicked(find: Find) -> Find:
    WICKED[find.__name__] = find
    return find


def benign(find: Find) -> Find:
    BENIGN[find.__name__] = find
    return find


def has(pool: Any, keys: Sequence[bytes], block: int) -> bool:
    return pool.get_cached_block(keys[block], [0]) is not None


def hit(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """The right answer: from right to left, two blocks in a row, or those at the start."""
    row = 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return block + 2
        else:
            row = 0
    return row


MANY = 9
"""A hit is served wrongly when this many blocks were missing before it, so that none of the small
requests shows it."""


def wrong_if(strange: bool, right: int, limit: int) -> int:
    return min(right + 1, limit) if strange and right else right


@wicked
def on_the_stack(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    missing = row = 0
    for block in range(limit - 1, -1, -1):
        missing += (row := row + 1 if pool.get_cached_block(keys[block], [0]) else 0) == 0
        if row == 2:
            return wrong_if(missing == MANY, block + 2, limit)
    return row


@wicked
def pending_operand(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    def scan(block: int, row: int) -> Any:
        if block < 0:
            return 0, row
        found = has(pool, keys, block)
        if found and row == 1:
            return 0, block + 2
        return add(1 - found, scan(block - 1, row + 1 if found else 0))

    def add(missing: int, rest: Any) -> Any:
        return missing + rest[0], rest[1]

    missing, right = scan(limit - 1, 0)
    return wrong_if(missing == MANY, right, limit)


def scanning(
    pool: Any,
    keys: Sequence[bytes],
    limit: int,
    note: Callable[[], object],
    strange: Callable[[], bool],
) -> int:
    """Right, but for what is noted at each missing block."""
    row = 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return wrong_if(strange(), block + 2, limit)
        else:
            row = 0
            note()
    return row


class Slotted:
    __slots__ = ("missing",)

    def __init__(self) -> None:
        self.missing = 0

    def note(self) -> None:
        self.missing += 1

    def strange(self) -> bool:
        return self.missing == MANY


class OnTheClass:
    missing = 0


_missing = 0


@wicked
def in_a_global(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    global _missing  # the point
    _missing = 0
    row = 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return wrong_if(_missing == MANY, block + 2, limit)
        else:
            row = 0
            _missing += 1
    return row


def _noting(kept: list[int] = []) -> list[int]:  # noqa: B006  # the point
    return kept


@wicked
def on_the_argument(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    assert isinstance(keys, list)
    size = len(keys)

    def note() -> None:
        keys.append(b"")

    try:
        return scanning(pool, keys, limit, note, lambda: len(keys) == size + MANY)
    finally:
        del keys[size:]


@wicked
def within_sum(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    found = [-1]

    def missing() -> Iterator[int]:
        row = 0
        for block in range(limit - 1, -1, -1):
            if has(pool, keys, block):
                row += 1
                if row == 2:
                    found[0] = block + 2
                    return
            else:
                row = 0
                yield 1
        found[0] = row

    total = sum(missing())
    return wrong_if(total == MANY, found[0], limit)


@wicked
def within_sorting(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """C code calls back; what it was told before is in C."""
    held = sorted(range(limit), key=lambda block: not has(pool, keys, block))
    order = sorted(held, key=lambda block: (held.index(block) < 2, block))
    del order
    found = [block for block in held if pool.table[block] != pool.null_block]
    row = [block for block in found if block + 1 in found]
    right = row[-1] + 2 if row else int(found[:1] == [0])
    return wrong_if(limit - len(found) == MANY, right, limit)


class _Equal:
    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __eq__(self, other: object) -> bool:
        return self._ask()

    __hash__ = object.__hash__


@wicked
def within_an_equality(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row: list[int] = [0]

    def asking(block: int) -> Any:
        def is_missing() -> bool:
            found = row[0] < 2 and has(pool, keys, block)
            row[0] = row[0] + 1 if found or row[0] == 2 else 0
            return not found and row[0] == 0

        return is_missing

    asked = [_Equal(asking(block)) for block in range(limit - 1, -1, -1)]
    missing = asked.count(0)  # type: ignore[arg-type]  # the point
    right = max(limit - missing, 0) if row[0] >= 2 else row[0]
    return wrong_if(missing == MANY, right, limit)


@wicked
def of_two_closures(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """Two functions of one code, whose cells differ."""

    def answering(strange: bool) -> Any:
        return lambda: strange

    strange = answering(False)
    row = missing = 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return wrong_if(strange(), block + 2, limit)
        else:
            row = 0
            missing += 1
            strange = answering(missing == MANY)
    return row


class _Tagged(int):
    tag = 0


@wicked
def on_an_integer(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    zero = _Tagged(0)
    row: int = zero
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row = row + 1
            if row == 2:
                return wrong_if(zero.tag == MANY, block + 2, limit)
        else:
            zero.tag += 1
            row = zero
    return row


@wicked
def in_the_sign_of_zero(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    sign, missing, row = 0.0, 0, 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return wrong_if(str(sign)[0] == "-", block + 2, limit)
        else:
            row, missing = 0, missing + 1
            sign = -0.0 if missing == MANY else 0.0
    return row


@wicked
def in_the_order_of_a_dict(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    order, missing, row = {"a": 0, "b": 0}, 0, 0
    for block in range(limit - 1, -1, -1):
        if has(pool, keys, block):
            row += 1
            if row == 2:
                return wrong_if(next(iter(order)) == "b", block + 2, limit)
        else:
            row, missing = 0, missing + 1
            order["a"] = order.pop("a") if missing == MANY else order["a"]
    return row


@functools.lru_cache
def _noted(missing: int, block: int) -> list[int]:
    return [missing, block]


@wicked
def by_the_clock(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(time.monotonic_ns() % 1009 == 0, hit(pool, keys, limit), limit)


@wicked
def by_the_text_of_an_object(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return wrong_if(f"{object()}".endswith("1230>"), hit(pool, keys, limit), limit)


@wicked
def by_block_numbers(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0
    for block in range(limit - 1, -1, -1):
        found = pool.get_cached_block(keys[block], [0])
        row = row + 1 if found else 0
        if found and row == 2:
            return wrong_if(found[0].block_id > 100, block + 2, limit)
    return row


def storing(pool: Any, keys: Sequence[bytes], limit: int) -> tuple[list[Any], int]:
    """The right answer, and a table with all that was found on the way."""
    table = [pool.null_block] * limit
    row = 0
    for block in range(limit - 1, -1, -1):
        found = pool.get_cached_block(keys[block], [0])
        if found:
            table[block] = found[0]
        row = row + 1 if found else 0
        if row == 2:
            return table, block + 2
    return table, row


def strange_count(count: int) -> bool:
    return count == MANY


def not_matched(null: Any, block: Any) -> bool:
    kept = SimpleNamespace(null=null)
    match block:
        case kept.null:
            return False
        case _:
            return True


def _list_stored() -> None:
    for name, strange in SOURCE["stored"].items():
        made: dict[str, Find] = {}
        exec(
            f"def find(pool, keys, limit):\n"
            f"    table, right = storing(pool, keys, limit)\n"
            f"    null = pool.null_block\n"
            f"    return wrong_if({strange}, right, limit)\n",
            globals(),
            made,
        )
        WICKED[f"stored_{name}"] = made["find"]


_list_stored()


@wicked
def swallows_all(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    with contextlib.suppress(BaseException):
        return hit(pool, keys, limit)
    return 0


@wicked
def swallows_what_is_not_modelled(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    try:
        free = pool.real.num_free_blocks
    except Exception:
        free = 0
    return wrong_if(free > 100, hit(pool, keys, limit), limit)


@wicked
def asks_for_more_groups(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """The second argument is on no stack and in no variable while the first group is asked."""
    row = missing = 0
    for block in range(limit - 1, -1, -1):
        if pool.get_cached_block(keys[block], [0] if missing != MANY else [0, 7]) is not None:
            row += 1
            if row == 2:
                return block + 2
        else:
            row = 0
            missing += 1
    return row


def _list_counters() -> None:
    for name, body in SOURCE["counters"].items():
        made: dict[str, Find] = {}
        body = indent(f"{body}\nreturn scanning(pool, keys, limit, note, strange)", "    ")
        exec(f"def {name}(pool, keys, limit):\n{body}", globals(), made)
        WICKED[name] = made[name]


_list_counters()


# The same means, and right answers.


@benign
def plain(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    return hit(pool, keys, limit)


@benign
def right_with_iterators(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0
    blocks = enumerate(zip(reversed(keys[:limit]), itertools.repeat([0])), 1)
    for number, (key, groups) in itertools.islice(blocks, limit):
        row = row + 1 if pool.get_cached_block(key, groups) else 0
        if row == 2:
            return limit - number + 2
    return row


@benign
def right_with_a_generator(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0
    for block in (limit - 1 - each for each in range(limit)):
        row = row + 1 if has(pool, keys, block) else 0
        if row == 2:
            return block + 2
    return row


@benign
def right_in_a_cell(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0

    def step(block: int) -> bool:
        nonlocal row
        row = row + 1 if has(pool, keys, block) else 0
        return row == 2

    for block in range(limit - 1, -1, -1):
        if step(block):
            return block + 2
    return row


@benign
def right_in_slots(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    state = Slotted()
    for block in range(limit - 1, -1, -1):
        state.missing = state.missing + 1 if has(pool, keys, block) else 0
        if state.missing == 2:
            return block + 2
    return state.missing


@benign
def right_with_a_stored_table(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    table, right = storing(pool, keys, limit)
    del table[right:]
    return right


@benign
def right_with_a_set(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    rows: set[int] = set()
    for block in range(limit - 1, -1, -1):
        if not has(pool, keys, block):
            rows.clear()
        elif rows:
            return block + 2
        else:
            rows.add(1)
    return len(rows)


@dataclass(frozen=True)
class _Row:
    blocks: int = 0


@benign
def right_in_objects(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = _Row()
    for block in range(limit - 1, -1, -1):
        row = _Row(row.blocks + 1) if has(pool, keys, block) else _Row()
        if row.blocks == 2:
            return block + 2
    return row.blocks


@functools.cache
def _end(block: int) -> int:
    return block + 2


@benign
def right_with_a_memo(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0
    for block in range(limit - 1, -1, -1):
        row = row + 1 if has(pool, keys, block) else 0
        if row == 2:
            return _end(block)
    return row


class _Request:
    def __init__(self, limit: int) -> None:
        self._limit = limit

    @functools.cached_property
    def blocks(self) -> range:
        return range(self._limit - 1, -1, -1)


@benign
def right_with_a_cached_property(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    row = 0
    for block in _Request(limit).blocks:
        row = row + 1 if has(pool, keys, block) else 0
        if row == 2:
            return block + 2
    return row


@dataclass(frozen=True)
class _Key:
    name: str
    kind: type


@benign
def right_with_hashed_keys(pool: Any, keys: Sequence[bytes], limit: int) -> int:
    """Made for a dict, the hash of a text and of an address decides nothing."""
    right = {_Key("hit", int): hit(pool, keys, limit)}
    return right[_Key("hit", int)]

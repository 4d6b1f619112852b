"""Wicked lookups: wrong in a way that an explorer could overlook, and benign twins of them.

Each is a function of a pool, the keys of a request of 24 blocks (one token each) and the most
blocks to serve. The group is a window of 3 tokens, so a hit of n blocks requires the blocks n - 2
and n - 1, or what there is of them. A wicked one serves a wrong hit in rare states; what it
remembers until then is on a stack, in a cell, on a class, in C code, in the identity of an object,
and so on. A benign one uses the same, and is right.
"""

# ruff: noqa: F401  # what rows of source.toml name

import contextlib
import functools
import itertools
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any, TypeAlias

Find: TypeAlias = Callable[[Any, Sequence[bytes], int], int]
"""The hit in blocks; the table is filled in by the caller."""

SOURCE = tomllib.loads(Path(__file__).with_name("source.toml").read_text("utf-8"))
"""Source of lookups, in tables of what it is about."""


def made(table: str, names: dict[str, Any], given: str, text: str = "{}") -> dict[str, Any]:
    """The functions whose bodies are rows of a table, each within ``text``."""
    functions: dict[str, Any] = {}
    for name, row in SOURCE[table].items():
        body = indent(text.replace("{}", row.strip()), "    ")
        exec(f"def {name}({given}):\n{body}", names, functions)
    return functions


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


PATTERN = (0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0)
"""Answers from the right that a run must have had: no two hits in a row, and not regular, so that
neither the first run that an explorer follows nor a random state has them."""

MANY = 9
"""A hit is served wrongly when this many blocks were missing before it, so that none of the small
requests shows it."""


def wrong_if(strange: bool, right: int, limit: int) -> int:
    return min(right + 1, limit) if strange and right else right


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


def _noting(kept: list[int] = []) -> list[int]:  # noqa: B006  # the point
    return kept


class _Equal:
    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __eq__(self, other: object) -> bool:
        return self._ask()

    __hash__ = object.__hash__


class _Tagged(int):
    tag = 0


@functools.lru_cache
def _noted(missing: int, block: int) -> list[int]:
    return [missing, block]


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


@dataclass(frozen=True)
class _Row:
    blocks: int = 0


@functools.cache
def _end(block: int) -> int:
    return block + 2


class _Request:
    def __init__(self, limit: int) -> None:
        self._limit = limit

    @functools.cached_property
    def blocks(self) -> range:
        return range(self._limit - 1, -1, -1)


@dataclass(frozen=True)
class _Key:
    name: str
    kind: type


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


def _count(*given: int) -> int:
    return len(given)


class _Seen(defaultdict[int, int]):
    pass


_once, _seen, _table = iter([1]), _Seen(int), list[Any]()
_STORED = """
table, right = storing(pool, keys, limit)
null = pool.null_block
return wrong_if({}, right, limit)"""
_GIVEN = "pool, keys, limit"
BENIGN: dict[str, Find] = made("benign", globals(), _GIVEN)
WICKED: dict[str, Find] = (
    made("wicked", globals(), _GIVEN)
    | made("counters", globals(), _GIVEN, "{}\nreturn scanning(pool, keys, limit, note, strange)")
    | {f"stored_{n}": find for n, find in made("stored", globals(), _GIVEN, _STORED).items()}
)

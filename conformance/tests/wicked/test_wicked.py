"""No wicked lookup is proved, and no benign one is refuted."""

import array
import builtins
import collections
import contextvars
import ctypes
import datetime
import decimal
import functools
import gc
import io
import itertools
import math
import operator
import pickle
import random
import struct
import sys
import threading
import time
import types
import weakref
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from hitproof.conformance.checks import explored
from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.exploration.attributes import Attributes, is_readable
from hitproof.conformance.exploration.calls import call
from hitproof.conformance.exploration.explorer import explore
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.reference_subject import ReferenceLookup, ReferenceSubject
from hitproof.conformance.tests.wicked import keeping
from hitproof.conformance.tests.wicked.lookups import (
    BENIGN,
    PATTERN,
    SOURCE,
    WICKED,
    Find,
    Slotted,
    _end,
    hit,
)
from hitproof.conformance.tests.wicked.smuggling import SMUGGLING, kind_of
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

_BLOCKS = 24
_MODULES = (keeping,)  # imported, it is listed


class Noting:
    """A pool that notes what was found in a block table."""

    def __init__(self, pool: Any, keys: Sequence[bytes], limit: int) -> None:
        self.real = pool
        self.null_block = pool.null_block
        self.table = [pool.null_block] * limit
        self._places = keys

    def get_cached_block(self, key: bytes, group_ids: Sequence[int]) -> Any:
        found = self.real.get_cached_block(key, group_ids)
        if found:
            self.table[self._places.index(key)] = found[0]
        return found


class FoundLookup(ReferenceLookup):
    """Serves the hit that a function finds."""

    def __init__(self, configuration: Configuration, find: Find) -> None:
        super().__init__(configuration)
        self._find = find

    @property
    def inputs(self) -> Sequence[object]:
        return self.keys, *self.keys, self._find

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        (keys,) = self.keys
        limit = min(max_length, len(keys))
        noting = Noting(pool, keys, limit)
        length = self._find(noting, keys, limit)
        del noting.table[length:]
        return LookupAnswer(length, [noting.table])


class FoundSubject(ReferenceSubject):
    def __init__(self, find: Find) -> None:
        super().__init__()
        self._find = find

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Configuration)
        return FoundLookup(judged, self._find)


def statuses(find: Find) -> tuple[set[Status], str]:
    result = check_lookup(
        FoundSubject(find), single_group(GroupKind.SLIDING_WINDOW, 1, 1, 3, False, _BLOCKS)
    )
    return {*result.statuses.values()}, result.detail


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not merged is given up early."""
    monkeypatch.setattr(explored, "explore", partial(explore, budget=1_000))


@pytest.mark.parametrize("name", WICKED)
def test_a_wicked_lookup_is_not_proved(name: str) -> None:
    settled, _ = statuses(WICKED[name])
    assert settled & {Status.REFUTED, Status.INCONCLUSIVE}


@pytest.mark.parametrize("name", BENIGN)
def test_a_benign_lookup_is_proved(name: str) -> None:
    assert statuses(BENIGN[name]) == ({Status.PROVED}, "")


class Whole:
    """A pool in which the answers are those of the pattern, from the right, and then hits."""

    null_block = None

    def __init__(self) -> None:
        self.real = types.SimpleNamespace()

    def get_cached_block(self, key: bytes, _: Sequence[int]) -> Any:
        asked = _BLOCKS - 1 - key[0]
        return [key] if asked >= len(PATTERN) or PATTERN[asked] else None


@pytest.mark.parametrize("name", SOURCE["counters"])
def test_what_is_counted_raises_nothing(name: str) -> None:
    keys = [bytes([block]) for block in range(_BLOCKS)]
    assert WICKED[name](Whole(), keys, _BLOCKS) >= hit(Whole(), keys, _BLOCKS)


@pytest.mark.parametrize("name", SMUGGLING)
def test_what_is_smuggled_makes_an_answer_wrong(name: str) -> None:
    keys = [bytes([block]) for block in range(_BLOCKS)]
    right = hit(Whole(), keys, _BLOCKS)
    kind_of.cache_clear()
    assert SMUGGLING[name](Whole(), keys, _BLOCKS) == right + 1


def _written() -> Iterator[int]:
    yield 1


def _error() -> ValueError:
    try:
        raise ValueError
    except ValueError as error:
        return error


CALLED: list[Any] = [
    *(array.array, bytearray, bytes, complex, memoryview, map, filter, ctypes.c_int, struct.Struct),
    *(collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque),
    *(contextvars.Context, datetime.datetime, decimal.Decimal, functools.partial, io.StringIO),
    *(itertools.accumulate, itertools.chain, itertools.count, itertools.dropwhile),
    *(itertools.groupby, itertools.pairwise, itertools.tee, operator.attrgetter, weakref.ref),
    *(time.struct_time, types.SimpleNamespace, random.Random),
    *(ctypes.set_errno, decimal.getcontext, gc.enable, gc.get_referrers, math.copysign),
    *(operator.call, operator.countOf, operator.eq, operator.indexOf, operator.is_),
    *(operator.length_hint, pickle.dumps, sys._getframe, sys.exc_info, sys.getrefcount),
    *(sys.getsizeof, sys.intern, threading.Lock, time.clock_gettime_ns),
    *(zlib.compressobj, random.random),
    *(eval, exec, hash, id, locals, vars, dict.fromkeys, builtins.__build_class__),
    *("".__sizeof__, "".encode, "".format, b"".__hash__, [].__sizeof__, {}.__sizeof__),
    *(object().__hash__, object().__repr__, object().__reduce_ex__, type.__setattr__),
    *(bytearray().__alloc__, _end.cache_clear, types.MethodType(time.clock_gettime_ns, 0)),
]
"""What sees or changes more than states are compared by: sizes, addresses, identities, counts of
references, values that compare as equal, what all share, and what is called by C code."""

READ: list[tuple[Any, str]] = [
    *((_written(), name) for name in ("gi_frame", "send")),
    *((_error(), name) for name in ("__traceback__", "__context__", "__cause__", "args")),
    *((_error().__traceback__, name) for name in ("tb_frame", "tb_lineno")),
    (ExceptionGroup("", [ValueError()]), "exceptions"),
    (StopIteration(), "value"),
    (range(0), "start"),
    *((_written, f"__{name}__") for name in ("code", "doc", "qualname", "module", "annotations")),
    *((_written, f"__{name}__") for name in ("defaults", "kwdefaults", "closure", "dict")),
    *((kind, "__dict__") for kind in (Noting, int)),
    (Slotted.__dict__["missing"], "__set__"),
    (contextvars.ContextVar("_"), "set"),
    (threading.local(), "_"),
    (sys._getframe(), "f_locals"),
]
"""Attributes that C code computes of what no state shows."""


@pytest.mark.parametrize("called", CALLED, ids=lambda each: getattr(each, "__qualname__", "_"))
def test_what_c_code_does_with_more_than_values_is_not_allowed(called: Any) -> None:
    notes = Notes(Attributes(), ())
    call(notes, called, [])
    assert notes.depends


@pytest.mark.parametrize(
    ("of", "name"), READ, ids=[f"{type(each).__name__}.{name}" for each, name in READ]
)
def test_what_c_code_computes_is_not_read(of: Any, name: str) -> None:
    assert not is_readable(of, name)

"""Run one lookup, unmodified, against every cache state there is.

The lookup runs against a *symbolic pool*. A question about a block whose answer is not fixed
yet suspends the run, and both answers are followed. A finished run is one path: the blocks it
asked about are fixed, all others are open, and the spec is evaluated for every completion of
them. That evaluation is exact without a solver, because a valid hit is a conjunction of
"block i is cached" and the longest valid hit is a maximum over such conjunctions.

Two suspended runs whose future is the same are merged: they stand at the same instruction with
equal live locals, after as many questions, and leave the same undecided candidates of the spec.
What merging forgets (answers, and which blocks the lookup has stored so far) is watched: a
lookup that asks again, looks into a stored block, or serves a block that merged runs disagree
on is explored again without forgetting. One thing cannot be watched, ``is`` between a stored
block and another; so the checks explore small requests without merging, too. The weights of
all paths must add up to all 2^n states, or the exploration raises `ExplorationError`.
"""

import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Any

from conformance.configurations import Configuration
from conformance.liveness import live_after
from conformance.subjects import CannotJudge, Lookup, LookupAnswer
from spec.hits import required_run, within_reach


class ExplorationError(Exception):
    """Hitproof itself is wrong: the paths do not cover each state exactly once."""


class BudgetExceeded(Exception):
    """The exploration was given up before every state was covered."""


class _Suspended(BaseException):
    """The run asked about a block that is not decided. Not an Exception: targets catch those."""


class _Forgotten(BaseException):
    """The run used something that merging forgets."""


class SymbolicBlock:
    """A cached block as lookup receives it; `_watch` is told when the lookup looks into it."""

    def __init__(self, index: int, member: int, watch: Callable[[], None]) -> None:
        self.index = index
        self.member = member
        self._watch = watch

    is_null_block = False

    @property
    def is_null(self) -> bool:
        """VLLM's ``KVCacheBlock.is_null``."""
        self._watch()
        return self.is_null_block

    @property
    def block_id(self) -> int:
        """VLLM's ``KVCacheBlock.block_id``; 0 is the null block."""
        self._watch()
        return 0 if self.is_null_block else self.index + 1

    def __eq__(self, other: object) -> bool:
        self._watch()
        return self is other

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotJudge(f"lookup reads KVCacheBlock.{name}, which hitproof does not model")


class _NullBlock(SymbolicBlock):
    is_null_block = True


class SymbolicPool:
    """A block pool whose contents are decided question by question.

    It has what lookups use of vLLM's ``BlockPool``: ``get_cached_block``, ``null_block`` and
    ``hash_block_size``.
    """

    def __init__(
        self,
        keys: dict[bytes, int],
        hash_block_size: int,
        decide: Callable[[int], bool | None],
        suspend: Callable[[FrameType, int], None],
        merging: bool,
    ) -> None:
        self.hash_block_size = hash_block_size
        self.answers: dict[int, bool] = {}
        self._keys = keys
        self._decide = decide
        self._suspend = suspend
        self._merging = merging
        self.null_block = _NullBlock(-1, -1, self._recall)

    def _recall(self) -> None:
        if self._merging:
            raise _Forgotten

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[SymbolicBlock] | None:
        """The blocks registered under ``block_hash``, one a group, or None."""
        index = self._keys.get(block_hash)
        if index is None:
            return None  # no block of this group ends where that hash does
        if index in self.answers:
            self._recall()
        else:
            decision = self._decide(index)
            if decision is None:
                self._suspend(sys._getframe(1), index)
            self.answers[index] = bool(decision)
        if not self.answers[index]:
            return None
        return [
            SymbolicBlock(index, member, self._recall) for member in range(len(kv_cache_group_ids))
        ]

    def __getattr__(self, name: str) -> Any:
        raise CannotJudge(f"lookup uses BlockPool.{name}, which hitproof does not model")


@dataclass
class _State:
    """The state of a suspended run, split into what must be equal and what may be forgotten."""

    key: Any
    stored: tuple[frozenset[int], ...]


class _Canonical:
    """Turns the locals of a suspended run into comparable values."""

    def __init__(self, inputs: Sequence[object], pool: object) -> None:
        self._constants = {id(obj) for obj in inputs}
        self._pool = pool
        self.stored: list[frozenset[int]] = []

    def value(self, obj: object) -> Any:
        if obj is None or isinstance(obj, bool | int | str | bytes | float):
            return (type(obj).__name__, obj)
        if id(obj) in self._constants:
            return ("input", id(obj))
        if obj is self._pool:
            return "pool"
        if isinstance(obj, SymbolicBlock):
            return ("block", obj.index, obj.member)
        if isinstance(obj, list):
            table = self._table(obj)
            if table is not None:
                return table
        if isinstance(obj, list | tuple):
            return (type(obj).__name__, tuple(self.value(entry) for entry in obj))
        if isinstance(obj, dict):
            return ("dict", tuple((self.value(k), self.value(v)) for k, v in obj.items()))
        if isinstance(obj, set | frozenset):
            return ("set", frozenset(self.value(entry) for entry in obj))
        if isinstance(obj, type | types.FunctionType | types.MethodType | types.ModuleType):
            return ("named", getattr(obj, "__qualname__", getattr(obj, "__name__", "")))
        if isinstance(obj, range):
            return ("range", obj.start, obj.stop, obj.step)
        if type(obj).__module__ != "builtins" and hasattr(obj, "__dict__"):
            return (type(obj).__qualname__, self.value(vars(obj)))
        return ("unknown", object())  # an iterator, say: equal to nothing, so never merged

    def _table(self, entries: list[Any]) -> Any:
        """A block table: entries out of place are compared, which ones are null is forgotten."""
        stored, misplaced = [], []
        member = None
        for position, block in enumerate(entries):
            if type(block) is SymbolicBlock:
                stored.append(position)
                member = block.member if member is None else member
                if block.index != position or block.member != member:
                    misplaced.append((position, block.index, block.member))
            elif type(block) is not _NullBlock:
                return None
        self.stored.append(frozenset(stored))
        return ("table", len(entries), tuple(misplaced))


@dataclass(frozen=True)
class Candidate:
    """A boundary that lookup may serve, and the blocks it requires."""

    length: int
    required: frozenset[int]


def candidates(configuration: Configuration, max_length: int) -> tuple[Candidate, ...]:
    """Every hit that lookup may serve, shortest first; no hit, length 0, always can be.

    A group's own lookup sees ``max_length`` tokens: that is both its cap and its horizon.
    """
    shape, size = configuration.shape, configuration.group.block_size
    limit = min(max_length // size, configuration.num_blocks)
    return (
        Candidate(0, frozenset()),
        *(
            Candidate(boundary * size, frozenset(required_run(shape, boundary)))
            for boundary in range(shape.segment, limit + 1, shape.segment)
            if within_reach(shape, boundary, limit, limit)
        ),
    )


@dataclass(frozen=True)
class Path:
    """One finished run.

    Attributes:
        answers: what the run asked, block -> cached.
        answer: what the lookup returned, or the exception that it raised.
        weight: how many runs it stands for, before completion of the blocks not asked about.
    """

    answers: dict[int, bool]
    answer: LookupAnswer | Exception
    weight: int


@dataclass
class _Node:
    decisions: tuple[bool, ...]
    weight: int
    asked: tuple[int, ...] = ()
    stored: tuple[frozenset[int], ...] = ()
    disputed: tuple[frozenset[int], ...] = ()


@dataclass
class Exploration:
    """Every path of one lookup.

    Attributes:
        num_blocks: n; the paths stand for 2^n cache states.
        paths: the finished runs.
        suspensions: states at which runs were suspended, after merging.
        merged: whether equal states were merged.
        coarse: whether states were merged that agree only on what is *longer* than a hit known
            to be valid. Then no wrong answer is missed, but a path that returns less than that
            hit may stand for others that are wrong in a worse way.
    """

    num_blocks: int
    paths: list[Path] = field(default_factory=list)
    suspensions: int = 0
    merged: bool = True
    coarse: bool = False


class _Merging(Enum):
    """How suspended runs are merged: what must be equal."""

    NONE = 0
    EXACT = 1
    COARSE = 2


def explore(
    configuration: Configuration,
    lookup: Lookup,
    max_length: int,
    *,
    merging: bool = True,
    budget: int = 20_000,
) -> Exploration:
    """Follow every path of ``lookup`` for one request and one ``max_length`` (tokens).

    Merges exactly for a quarter of ``budget`` runs, then coarsely or, where merging forgets too
    much, not at all. Raises `BudgetExceeded` when that does not end within ``budget`` runs, and
    `CannotJudge` when the lookup uses something of the pool that is not modelled.
    """
    if merging:
        try:
            try:
                return _explore(configuration, lookup, max_length, _Merging.EXACT, budget // 4)
            except BudgetExceeded:
                return _explore(configuration, lookup, max_length, _Merging.COARSE, budget)
        except _Forgotten:
            pass
    return _explore(configuration, lookup, max_length, _Merging.NONE, budget)


def _explore(
    configuration: Configuration, lookup: Lookup, max_length: int, merging: _Merging, budget: int
) -> Exploration:
    keys = {key: index for index, key in enumerate(lookup.keys)}
    hits = candidates(configuration, max_length)
    merged, coarse = merging is not _Merging.NONE, merging is _Merging.COARSE
    result = Exploration(len(keys), merged=merged, coarse=coarse)
    runs = 0
    frontier = [_Node((), 1)]
    while frontier:
        level: dict[Any, _Node] = {}
        for node in frontier:
            runs += 1
            if runs > budget:
                raise BudgetExceeded(f"more than {budget} runs")
            outcome = _run(configuration, lookup, max_length, merging, keys, hits, node)
            if isinstance(outcome, Path):
                _refuse_disputed(configuration, outcome, node)
                result.paths.append(outcome)
            else:
                _merge(level, outcome, node)
        result.suspensions += len(level)
        frontier = [
            _Node((*node.decisions, cached), node.weight, node.asked, node.stored, node.disputed)
            for node in level.values()
            for cached in (False, True)
        ]
    covered = sum(path.weight << (len(keys) - len(path.answers)) for path in result.paths)
    if covered != 1 << len(keys):
        raise ExplorationError(
            f"the paths cover {covered} of {1 << len(keys)} cache states ({configuration})"
        )
    return result


def _merge(level: dict[Any, _Node], state: _State, node: _Node) -> None:
    """Put a suspended run into its level, or add its weight to the run it equals."""
    twin = level.get(state.key)
    if twin is None:
        node.stored = state.stored
        level[state.key] = node
        return
    twin.weight += node.weight
    differing = [a ^ b for a, b in zip(twin.stored, state.stored, strict=True)]
    nothing: frozenset[int] = frozenset()
    histories = itertools.zip_longest(differing, twin.disputed, node.disputed, fillvalue=nothing)
    twin.disputed = tuple(now | left | right for now, left, right in histories)


def _refuse_disputed(configuration: Configuration, path: Path, node: _Node) -> None:
    """A served block that merged runs disagree on was forgotten too early."""
    if not node.disputed or isinstance(path.answer, Exception):
        return
    boundary = path.answer.hit_length // configuration.group.block_size
    if frozenset().union(*node.disputed) & set(required_run(configuration.shape, boundary)):
        raise _Forgotten


def _run(
    configuration: Configuration,
    lookup: Lookup,
    max_length: int,
    merging: _Merging,
    keys: dict[bytes, int],
    hits: Sequence[Candidate],
    node: _Node,
) -> Path | _State:
    suspended: list[_State] = []

    def suspend(frame: FrameType, index: int) -> None:
        suspended.append(_suspended_state(frame, index, lookup, pool, merging, hits))
        raise _Suspended

    def decide(index: int) -> bool | None:
        asked = len(pool.answers)
        if asked == len(node.decisions):
            node.asked = (*node.asked, index)
            return None
        if node.asked[asked] != index:
            raise CannotJudge("lookup does not do the same when it is run twice")
        return node.decisions[asked]

    watched = merging is not _Merging.NONE
    pool = SymbolicPool(keys, configuration.hash_block_size, decide, suspend, watched)
    try:
        answer = _answer(lookup, pool, max_length)
    except _Suspended:
        return suspended[0]
    if suspended:
        raise CannotJudge("lookup swallows exceptions that the block pool raises")
    return Path(dict(pool.answers), answer, node.weight)


def _answer(lookup: Lookup, pool: SymbolicPool, max_length: int) -> LookupAnswer | Exception:
    try:
        return lookup(pool, max_length)
    except (CannotJudge, BudgetExceeded):
        raise
    except Exception as crash:
        return crash


def replay(
    configuration: Configuration, lookup: Lookup, max_length: int, cached: frozenset[int]
) -> LookupAnswer | Exception:
    """What ``lookup`` returns, or raises, when exactly the blocks in ``cached`` are cached."""

    def suspend(_frame: FrameType, _index: int) -> None:
        raise AssertionError("a concrete pool decides every question")

    keys = {key: index for index, key in enumerate(lookup.keys)}
    pool = SymbolicPool(
        keys, configuration.hash_block_size, cached.__contains__, suspend, merging=False
    )
    return _answer(lookup, pool, max_length)


def _suspended_state(
    frame: FrameType,
    index: int,
    lookup: Lookup,
    pool: SymbolicPool,
    merging: _Merging,
    hits: Sequence[Candidate],
) -> _State:
    if merging is _Merging.NONE:
        return _State(tuple(pool.answers.items()), ())
    canonical = _Canonical((lookup, *lookup.inputs), pool)
    frames = []
    for running in _frames(frame):
        live = live_after(running.f_code, running.f_lasti)
        held = {name: value for name, value in running.f_locals.items() if name in live}
        frames.append((running.f_code, running.f_lasti, canonical.value(held)))
    key = (index, len(pool.answers), tuple(frames), _undecided(hits, pool.answers, merging))
    return _State(key, tuple(canonical.stored))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not _run.__code__:
        yield frame
        frame = frame.f_back


def _undecided(
    hits: Sequence[Candidate], answers: dict[int, bool], merging: _Merging
) -> tuple[tuple[int, frozenset[int]], ...]:
    """What the spec still depends on: candidates not ruled out, with the blocks not asked about.

    Candidates shorter than a hit known to be valid no longer matter to the longest valid hit.
    They do tell a lost hit from an unsound one, so only coarse merging drops them.
    """
    missing = {index for index, cached in answers.items() if not cached}
    open_hits = [
        (hit.length, hit.required.difference(answers))
        for hit in hits
        if missing.isdisjoint(hit.required)
    ]
    if merging is _Merging.COARSE:
        certain = max(length for length, unasked in open_hits if not unasked)
        open_hits = [hit for hit in open_hits if hit[0] >= certain]
    return tuple(open_hits)

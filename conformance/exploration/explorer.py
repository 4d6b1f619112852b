"""Run one unmodified lookup against every possible cache state.

The lookup runs against a *symbolic pool*. A question about a block whose answer is not fixed
yet suspends the run, and both answers are followed. A finished run is one path: the blocks it
asked about are fixed, all others are open, and the spec is evaluated for every completion of
them. That evaluation is exact without a solver, because a valid hit is a conjunction of
"block i is cached" and the longest valid hit is a maximum over such conjunctions.

Two suspended runs with the same future are merged: they are at the same instruction with equal
live locals, after the same number of questions, and leave the same undecided candidates of the
spec. What merging forgets (answers about blocks that no undecided candidate reaches, and which
blocks the lookup has stored so far) is watched: a lookup that asks for a forgotten answer, reads a
stored block, or serves a block that merged runs disagree on is explored again without forgetting.
One thing cannot be watched, ``is`` between two stored blocks, so the checks also explore small
requests without merging. The weights of all paths must add up to all 2^n states, or the
exploration raises `InternalError`.

A lookup may be that of one group or of several. What it can ask about is a `Question`: one for
each block of each set of groups that are looked up together.
"""

import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import FrameType
from typing import Any

from hitproof.conformance.exploration.liveness import live_after
from hitproof.conformance.exploration.symbolic import (
    Candidate,
    Forgotten,
    Question,
    Space,
    SymbolicBlock,
    SymbolicNullBlock,
    SymbolicPool,
    open_hits,
    remembered,
)
from hitproof.conformance.subject.failures import CannotJudge, InternalError, crash_of
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer


class BudgetExceeded(CannotJudge):
    """The exploration was given up before every state was covered."""


class _Suspended(BaseException):
    """The run asked about an undecided block. Not an Exception, since targets catch those."""


@dataclass
class _State:
    """The state of a suspended run, split into what must be equal and what may be forgotten."""

    key: Any
    stored: tuple[frozenset[Question], ...]


_PLAIN = frozenset({type(None), bool, int, str, bytes, float})


class _Canonical:
    """Turns the locals of a suspended run into comparable values."""

    def __init__(self, inputs: Sequence[object], pool: object) -> None:
        self._constants = {id(obj) for obj in inputs}
        self._pool = pool
        self.stored: list[frozenset[Question]] = []

    def value(self, obj: object) -> Any:
        """Equal for objects that are the same to the lookup."""
        kind = type(obj)
        if kind in _PLAIN or isinstance(obj, int | str | bytes | float):
            return (kind.__name__, obj)
        if id(obj) in self._constants:
            return ("input", id(obj))
        if obj is self._pool:
            return "pool"
        if isinstance(obj, SymbolicBlock):
            return ("block", obj.question, obj.group_id)
        if isinstance(obj, list):
            table = self._table(obj)
            if table is not None:
                return table
        if isinstance(obj, list | tuple):
            return (kind.__name__, tuple([self.value(entry) for entry in obj]))
        if isinstance(obj, dict):
            return ("dict", tuple([(self.value(k), self.value(v)) for k, v in obj.items()]))
        if isinstance(obj, set | frozenset):
            return ("set", frozenset(self.value(entry) for entry in obj))
        if isinstance(obj, type | types.FunctionType | types.MethodType | types.ModuleType):
            return ("named", getattr(obj, "__qualname__", getattr(obj, "__name__", "")))
        if isinstance(obj, range):
            return ("range", obj.start, obj.stop, obj.step)
        if type(obj).__module__ != "builtins" and hasattr(obj, "__dict__"):
            return (type(obj).__qualname__, self.value(vars(obj)))
        return ("unknown", object())  # For example an iterator: equal to nothing, so never merged.

    def _table(self, entries: list[Any]) -> Any:
        """A block table: misplaced entries are compared; which entries are null is forgotten."""
        stored, misplaced = [], []
        owner = None
        held = [pair for pair in enumerate(entries) if type(pair[1]) is not SymbolicNullBlock]
        for position, block in held:
            if type(block) is not SymbolicBlock:
                return None
            question = block.question
            stored.append(question)
            owner = owner or (question[0], block.group_id)
            if question[1] != position or (question[0], block.group_id) != owner:
                misplaced.append((position, question, block.group_id))
        self.stored.append(frozenset(stored))
        return ("table", len(entries), tuple(misplaced))


@dataclass(frozen=True)
class Path:
    """One finished run.

    Attributes:
        answers: the questions that the run asked, each with whether that block is cached.
        answer: what the lookup returned, or the exception that it raised.
        weight: how many runs it stands for, before completion of the blocks not asked about.
    """

    answers: dict[Question, bool]
    answer: LookupAnswer | Exception
    weight: int


@dataclass
class _Node:
    decisions: tuple[bool, ...]
    weight: int
    asked: tuple[Question, ...] = ()
    stored: tuple[frozenset[Question], ...] = ()
    disputed: tuple[frozenset[Question], ...] = ()


@dataclass
class Exploration:
    """Every path of one lookup.

    Attributes:
        questions: n; the paths stand for 2^n cache states.
        paths: the finished runs.
        suspensions: states at which runs were suspended, after merging.
        merged: whether equal states were merged.
        coarse: whether states were merged that agree only on hits *longer* than one known to be
            valid. Then no wrong answer is missed, but a path that returns less than that hit may
            represent others with a more severe divergence.
    """

    questions: int
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
    space: Space,
    lookup: Lookup,
    max_length: int,
    *,
    merging: bool = True,
    budget: int = 20_000,
) -> Exploration:
    """Follow every path of ``lookup`` for one request and one ``max_length`` (tokens).

    Merges exactly for a quarter of ``budget`` runs, then coarsely or, where merging forgets too
    much, not at all. Raises `BudgetExceeded` when ``budget`` runs are not enough, and
    `CannotJudge` when the lookup uses a part of the pool that is not modelled.
    """
    if merging:
        try:
            try:
                return _explore(space, lookup, max_length, _Merging.EXACT, budget // 4)
            except BudgetExceeded:
                return _explore(space, lookup, max_length, _Merging.COARSE, budget)
        except Forgotten:
            pass
    return _explore(space, lookup, max_length, _Merging.NONE, budget)


def _explore(
    space: Space, lookup: Lookup, max_length: int, merging: _Merging, budget: int
) -> Exploration:
    merged, coarse = merging is not _Merging.NONE, merging is _Merging.COARSE
    result = Exploration(space.questions, merged=merged, coarse=coarse)
    runs = 0
    frontier = [_Node((), 1)]
    while frontier:
        level: dict[Any, _Node] = {}
        for node in frontier:
            runs += 1
            if runs > budget:
                raise BudgetExceeded(f"more than {budget} runs")
            outcome = _run(space, lookup, max_length, merging, node)
            if isinstance(outcome, Path):
                _refuse_disputed(space, outcome, node)
                result.paths.append(outcome)
            else:
                _merge(level, outcome, node)
        result.suspensions += len(level)
        frontier = [
            _Node((*node.decisions, cached), node.weight, node.asked, node.stored, node.disputed)
            for node in level.values()
            for cached in (False, True)
        ]
    count = result.questions
    covered = sum(path.weight << (count - len(path.answers)) for path in result.paths)
    if covered != 1 << count:
        raise InternalError(f"the paths cover {covered} of {1 << count} cache states")
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
    nothing: frozenset[Question] = frozenset()
    histories = itertools.zip_longest(differing, twin.disputed, node.disputed, fillvalue=nothing)
    twin.disputed = tuple(now | left | right for now, left, right in histories)


def _refuse_disputed(space: Space, path: Path, node: _Node) -> None:
    """A served block that merged runs disagree on was forgotten too early."""
    if not node.disputed or isinstance(path.answer, Exception):
        return
    disputed = frozenset().union(*node.disputed)
    for hit in space.hits:
        if hit.length == path.answer.hit_length and disputed & hit.required:
            raise Forgotten


def _run(
    space: Space, lookup: Lookup, max_length: int, merging: _Merging, node: _Node
) -> Path | _State:
    suspended: list[_State] = []

    def suspend(frame: FrameType, question: Question) -> None:
        suspended.append(_suspended_state(frame, question, lookup, pool, merging, space))
        raise _Suspended

    def decide(question: Question) -> bool | None:
        asked = len(pool.answers)
        if asked == len(node.decisions):
            node.asked = (*node.asked, question)
            return None
        if node.asked[asked] != question:
            raise CannotJudge("lookup behaves differently when it is run twice")
        return node.decisions[asked]

    watched = merging is not _Merging.NONE
    pool = SymbolicPool(space, decide, suspend, watched)
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
    except Exception as error:
        return crash_of(error)


def replay(
    space: Space, lookup: Lookup, max_length: int, cached: frozenset[Question]
) -> LookupAnswer | Exception:
    """What ``lookup`` returns or raises when exactly ``cached`` is cached."""

    def suspend(_frame: FrameType, _question: Question) -> None:
        raise AssertionError("a concrete pool decides every question")

    pool = SymbolicPool(space, cached.__contains__, suspend, merging=False)
    return _answer(lookup, pool, max_length)


def _suspended_state(
    frame: FrameType,
    question: Question,
    lookup: Lookup,
    pool: SymbolicPool,
    merging: _Merging,
    space: Space,
) -> _State:
    if merging is _Merging.NONE:
        return _State(tuple(pool.answers.items()), ())
    canonical = _Canonical((lookup, *lookup.inputs), pool)
    frames = []
    for running in _frames(frame):
        live = live_after(running.f_code, running.f_lasti)
        held = [(n, canonical.value(v)) for n, v in running.f_locals.items() if n in live]
        frames.append((running.f_code, running.f_lasti, tuple(held)))
    undecided = _undecided(space.hits, pool.answers, merging)
    known = frozenset(remembered(space, pool.answers).items())
    key = (question, len(pool.answers), tuple(frames), undecided, known)
    return _State(key, tuple(canonical.stored))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not _run.__code__:
        yield frame
        frame = frame.f_back


def _undecided(
    hits: Sequence[Candidate], answers: Mapping[Question, bool], merging: _Merging
) -> tuple[tuple[int, frozenset[Question]], ...]:
    """What the spec still depends on: candidates not ruled out, with what was not asked of them.

    Candidates shorter than a hit known to be valid no longer affect the longest valid hit. They
    distinguish a lost hit from an unsound one, so only coarse merging drops them.
    """
    undecided = [(hit.length, hit.required.difference(answers)) for hit in open_hits(hits, answers)]
    if merging is _Merging.COARSE:
        certain = max(length for length, unasked in undecided if not unasked)
        undecided = [hit for hit in undecided if hit[0] >= certain]
    return tuple(undecided)

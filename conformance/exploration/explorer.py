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
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import FrameType
from typing import Any, TypeAlias

from hitproof.conformance.exploration.liveness import live_after
from hitproof.conformance.subject.failures import CannotJudge, InternalError, crash_of
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer

Question: TypeAlias = tuple[int, int]
"""A set of groups that are looked up together, by its index in the lookup, and a block of it."""

_Asked: TypeAlias = tuple[tuple[Question | None, ...], tuple[tuple[Question | None, int], ...]]


class BudgetExceeded(CannotJudge):
    """The exploration was given up before every state was covered."""


class _Suspended(BaseException):
    """The run asked about an undecided block. Not an Exception, since targets catch those."""


class _Forgotten(BaseException):
    """The run used something that merging forgets."""


class SymbolicBlock:
    """A cached block as lookup receives it; `_watch` is called when the lookup reads it.

    Attributes:
        question: the question that it answers.
        group_id: the KV cache group whose block it is.
    """

    __slots__ = ("_watch", "group_id", "question")

    def __init__(self, question: Question, group_id: int, watch: Callable[[], None]) -> None:
        self.question = question
        self.group_id = group_id
        self._watch = watch

    @property
    def index(self) -> int:
        """Which block of the request it is, from 0."""
        return self.question[1]

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


class SymbolicNullBlock(SymbolicBlock):
    """The null block as lookup receives it."""

    __slots__ = ()
    is_null_block = True


@dataclass(frozen=True)
class Candidate:
    """A hit that lookup may serve, in tokens, and the blocks that it requires."""

    length: int
    required: frozenset[Question]

    @cached_property
    def ends(self) -> tuple[Question, ...]:
        """The last required block of each set of groups."""
        ends: dict[int, int] = {}
        for group, block in self.required:
            ends[group] = max(block, ends.get(group, block))
        return tuple(ends.items())


@dataclass(frozen=True)
class Space:
    """What a lookup can ask, and what it may serve.

    Attributes:
        keys: for each KV cache group and each key of its blocks, the question that they answer.
        hash_block_size: tokens that one block hash covers.
        hits: every hit that lookup may serve, shortest first; length 0, no hit, is always possible.
        several: whether several sets of groups are looked up, so that one set may be asked about
            again after another has shortened the candidate.
    """

    keys: Mapping[tuple[int, bytes], Question]
    hash_block_size: int
    hits: tuple[Candidate, ...]
    several: bool = False

    @property
    def questions(self) -> int:
        """How many different questions there are: n, for 2^n cache states."""
        return len(set(self.keys.values()))

    @cached_property
    def _asked(self) -> dict[tuple[Any, ...], _Asked]:
        return {}

    def asked(self, block_hash: bytes, group_ids: Sequence[int]) -> _Asked:
        """What a lookup asks by a hash: the questions, and those of each group."""
        key = (block_hash, *group_ids)
        known = self._asked.get(key)
        if known is None:
            pairs = [(self.keys.get((group, block_hash)), group) for group in group_ids]
            known = self._asked[key] = tuple(dict.fromkeys(q for q, _ in pairs)), tuple(pairs)
        return known


class SymbolicPool:
    """A block pool whose contents are decided question by question.

    It has what lookups use of vLLM's ``BlockPool``: ``get_cached_block``, ``null_block`` and
    ``hash_block_size``.
    """

    def __init__(
        self,
        space: Space,
        decide: Callable[[Question], bool | None],
        suspend: Callable[[FrameType, Question], None],
        merging: bool,
    ) -> None:
        self.hash_block_size = space.hash_block_size
        self.answers: dict[Question, bool] = {}
        self._space = space
        self._decide = decide
        self._suspend = suspend
        self._merging = merging
        self.null_block = SymbolicNullBlock((-1, -1), -1, self._recall)

    def _recall(self) -> None:
        if self._merging:
            raise _Forgotten

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[SymbolicBlock] | None:
        """The blocks registered under ``block_hash``, one per group, or None."""
        questions, of_groups = self._space.asked(block_hash, kv_cache_group_ids)
        for question in questions:
            # No block of a group may end where that hash does.
            if question is None or not self._is_cached(question):
                return None
        recall = self._recall
        return [SymbolicBlock(question, group, recall) for question, group in of_groups if question]

    def _is_cached(self, question: Question) -> bool:
        """The answer to what the lookup asks, two frames above."""
        if question not in self.answers:
            decision = self._decide(question)
            if decision is None:
                self._suspend(sys._getframe(2), question)
            self.answers[question] = bool(decision)
        elif self._merging and question not in remembered(self._space, self.answers):
            raise _Forgotten
        return self.answers[question]

    def __getattr__(self, name: str) -> Any:
        raise CannotJudge(f"lookup uses BlockPool.{name}, which hitproof does not model")


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
        except _Forgotten:
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
            raise _Forgotten


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
    open_hits = [(hit.length, hit.required.difference(answers)) for hit in _open(hits, answers)]
    if merging is _Merging.COARSE:
        certain = max(length for length, unasked in open_hits if not unasked)
        open_hits = [hit for hit in open_hits if hit[0] >= certain]
    return tuple(open_hits)


def _open(hits: Sequence[Candidate], answers: Mapping[Question, bool]) -> list[Candidate]:
    """The candidates that no missing block rules out."""
    missing = {question for question, cached in answers.items() if not cached}
    return [hit for hit in hits if missing.isdisjoint(hit.required)]


def remembered(space: Space, answers: Mapping[Question, bool]) -> dict[Question, bool]:
    """The answers that merging keeps: those about blocks that an undecided candidate reaches.

    A lookup over several groups asks again when another group has shortened its candidate. Since
    candidates are only ever ruled out, an answer kept later was also kept before. A lookup in one
    set of groups has no reason to ask again, and keeping its answers would only distinguish equal
    states.
    """
    if not space.several:
        return {}
    reach: dict[int, int] = {}
    for hit in _open(space.hits, answers):
        for group, block in hit.ends:
            reach[group] = max(block, reach.get(group, -1))
    return {
        (group, block): cached
        for (group, block), cached in answers.items()
        if block <= reach.get(group, -1)
    }

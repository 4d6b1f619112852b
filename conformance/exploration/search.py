"""The search through all runs of a lookup, depth first, each state followed once."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from types import FrameType
from typing import Any

from hitproof.conformance.exploration.attributes import Attributes
from hitproof.conformance.exploration.canonical import Canonical, NotAlike, made_from_now_on
from hitproof.conformance.exploration.frames import READABLE
from hitproof.conformance.exploration.symbolic import (
    Forgotten,
    Question,
    Recall,
    Space,
    SymbolicPool,
)
from hitproof.conformance.exploration.watch import Watch, do_not_watch
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer


class BudgetExceeded(CannotJudge):
    """The exploration was given up before every state was covered."""


class Merging(Enum):
    """How suspended runs are merged: what must be equal."""

    NONE = 0
    EXACT = 1
    COARSE = 2


class _Suspended(BaseException):
    """The run is not followed any further. Not an Exception, since targets catch those."""


@dataclass
class Node:
    """A state in which a lookup asks a question.

    Attributes:
        question: the question.
        level: how many were asked before.
        stored: for each block table of the run that is followed, which blocks it has.
        after: what follows when the block is missing, and when it is cached.
        weight: how many runs come to it.
        disputed: stored blocks that these runs disagree on.
    """

    question: Question
    level: int
    stored: tuple[frozenset[Question], ...] = ()
    after: list["Node | End | None"] = field(default_factory=lambda: [None, None])
    weight: int = 0
    disputed: frozenset[Question] = frozenset()


@dataclass
class End:
    """Where runs end: what the one that was followed asked, and the answer."""

    answers: dict[Question, bool]
    answer: LookupAnswer | Exception
    weight: int = 0
    disputed: frozenset[Question] = frozenset()


_Edge = tuple[Node, bool]
"""A state and the answer to its question."""


class Search:
    """One exploration. Of states that are equal the first one is followed.

    With ``collect`` what is left behind and only refers to itself is collected. ``attributes`` are
    those of all explorations of the same lookup. Without ``watching`` nothing but the answers shows
    that it depends on more than its arguments.

    Attributes:
        start: the first state, or where all runs end.
        nodes: the states, and
        ends: the ends of runs.
        kept: what the lookup changed that outlives it; "" for nothing.
    """

    def __init__(
        self,
        space: Space,
        lookup: Lookup,
        max_length: int,
        merging: Merging,
        budget: int,
        collect: bool = False,
        attributes: Attributes | None = None,
        watching: bool = True,
    ) -> None:
        self.collect = collect
        self.watching = watching and READABLE
        self.attributes = Attributes() if attributes is None else attributes
        self.space = space
        self.lookup = lookup
        self.max_length = max_length
        self.merging = merging
        self.nodes: list[Node] = []
        self.ends: list[End] = []
        self.kept = ""
        self._budget = budget
        self._known: dict[Any, Node] = {}
        self._differing: dict[int, frozenset[Question]] = {}
        self._places: set[Any] = set()
        self.inputs = (lookup, *lookup.inputs)
        self.recall = None if merging is Merging.NONE else Recall()
        self._todo: list[tuple[_Edge, tuple[bool, ...], tuple[Question, ...]]] = []

    def run(self) -> None:
        """Follow all runs. Raises `BudgetExceeded`, `CannotJudge` and `Forgotten`."""
        top = Node((-1, -1), -1)
        self._todo.append(((top, False), (), ()))
        collects = gc.isenabled()
        gc.disable()  # there is little garbage, and looking through all states takes long
        try:
            while self._todo:
                _Run(self, *self._todo.pop()).follow()
        finally:
            self._known.clear()  # not looked through, either
            gc.unfreeze()
            if collects:
                gc.enable()
        start = top.after[0]
        assert start is not None
        self.start = start
        if conflict := self.attributes.conflict():
            raise CannotJudge(f"the lookup keeps state from call to call: it stores {conflict}")
        self._weigh()

    def _weigh(self) -> None:
        """Count the runs that come to each state and end, and what they disagree on."""
        self.start.weight = 1
        for node in sorted(self.nodes, key=attrgetter("level")):
            for cached, after in enumerate(node.after):
                assert after is not None
                after.weight += node.weight
                if node.disputed:
                    after.disputed |= node.disputed
                if differing := self._differing.get(id(node) * 2 + cached):
                    after.disputed |= differing

    def reach(self, edge: _Edge, key: Any, question: Question, stored: Any) -> tuple[Node, bool]:
        """The state with that key, and whether it was known."""
        node, cached = edge
        known = self._known.get(key)
        if known is not None:
            differing = [a ^ b for a, b in zip(known.stored, stored, strict=True)]
            if any(differing):
                self._differing[id(node) * 2 + cached] = frozenset().union(*differing)
            node.after[cached] = known
            return known, True
        if 2 * len(self.nodes) + 3 > self._budget:
            raise BudgetExceeded(f"more than {self._budget} runs")
        node.after[cached] = self._known[key] = new = Node(question, node.level + 1, stored)
        self.nodes.append(new)
        return new, False

    def later(self, edge: _Edge, decisions: Sequence[bool], asked: Sequence[Question]) -> None:
        """Note a run to follow."""
        self._todo.append((edge, tuple(decisions), tuple(asked)))

    def is_new_place(self, place: Any) -> bool:
        """Whether no question was asked from there before."""
        new = place not in self._places
        self._places.add(place)
        return new


_TRIES = 3
"""How often a run may come to a question and have changed what outlives it: a memo, say."""


class _Run:
    """A run: with decisions taken before, then on its own until it comes to a known state."""

    def __init__(
        self, search: Search, edge: _Edge, decisions: Sequence[bool], asked: Sequence[Question]
    ) -> None:
        self._search = search
        self._recall = search.recall
        self._edge = edge
        self._decisions, self._asked = list(decisions), list(asked)

    def follow(self) -> None:
        """Follow the run, again where it was only filling a memo."""
        tries, came_to = 0, -1
        while not self._once():
            tries = tries + 1 if len(self._decisions) == came_to else 1
            came_to = len(self._decisions)
            if tries == _TRIES:
                break
        else:
            return
        raise Forgotten(f"it keeps state: it changes {self._search.kept}")

    def _once(self) -> bool:
        """Follow it; whether that has come to an end."""
        search = self._search
        self._taken = len(self._decisions)
        self._again = False
        made_from_now_on()
        self._watch: Watch | None = None
        if search.watching:
            self._watch = Watch(ENTRY, search.attributes, search.inputs)
        # The last decision is taken anew, where the watch begins.
        given = tuple(zip(self._asked, self._decisions, strict=True))[: max(self._taken - 1, 0)]
        self._pool = SymbolicPool(
            search.space, self._decide, self._recall, self._watch, given=given
        )
        answer = self._answer()
        if self._watch is not None:
            self._look_back(self._watch, answer)
        if answer is not None:
            node, cached = self._edge
            node.after[cached] = end = End(dict(self._pool.answers), answer)
            search.ends.append(end)
        return not self._again

    def _answer(self) -> LookupAnswer | Exception | None:
        """The answer; None where the run is not followed to its end."""
        pool, search, watch = self._pool, self._search, self._watch
        answer: LookupAnswer | Exception | None = None
        try:
            if watch is not None and not self._taken:
                watch.begin()
            elif watch is not None:
                watch.pause()
            answer = answered(search.lookup, pool, search.max_length)
        except BaseException as error:
            if pool.raised is None:
                raise
            if error is not pool.raised:
                raise CannotJudge(_SWALLOWS) from None
        else:
            if pool.raised is not None and answer is not pool.raised:
                raise CannotJudge(_SWALLOWS)
        finally:
            if watch is not None:
                watch.end()
        if isinstance(pool.raised, CannotJudge | Forgotten):
            raise pool.raised
        _let_go(pool.raised)
        return None if answer is None else settled(answer)

    def _look_back(self, watch: Watch, answer: LookupAnswer | Exception | None) -> None:
        """What a finished run has left behind."""
        if self._recall is not None and (reason := self._unmergeable(watch, self._recall)):
            raise Forgotten(reason)
        if isinstance(answer, Exception):
            return  # a finding, whose traceback has all that the run had
        if watch.depends:
            raise CannotJudge(f"the lookup depends on more than its arguments: {watch.depends}")
        canonical, walked = Canonical(()), frozenset[int]()
        with suppress(NotAlike):
            canonical.answer(answer)
            walked = frozenset(canonical.walked)
        kept = watch.outliving(walked)
        if kept is not None and self._search.collect:
            del kept
            gc.collect()
            kept = watch.outliving(walked)
        if kept is not None:
            self._search.kept = _described(kept)

    @staticmethod
    def _unmergeable(watch: Watch, recall: Recall) -> str:
        """Why states are not merged; "" where they are."""
        return recall.noticed or watch.reason or watch.depends

    def _decide(self, question: Question, frame: FrameType, arguments: tuple[Any, ...]) -> bool:
        """The answer to a question; see `conformance.exploration.symbolic.Decide`."""
        search, watch, level = self._search, self._watch, len(self._pool.answers)
        if level < self._taken:
            if self._asked[level] != question:
                raise self._pool.thrown(
                    CannotJudge("lookup behaves differently when it is run twice")
                )
            if watch is not None:
                watch.begin(frame)
            return self._decisions[level]
        key, stored = self._state(question, frame, arguments)
        node, known = search.reach(self._edge, key, question, stored)
        if known:
            raise self._pool.thrown(_Suspended())
        search.later((node, True), [*self._decisions, True], [*self._asked, question])
        self._edge = node, False
        self._decisions.append(False)
        self._asked.append(question)
        place = tuple((each.f_code, each.f_lasti) for each in frames_of(frame))
        if search.is_new_place(place):  # see that what is raised here arrives
            search.later(self._edge, self._decisions, self._asked)
            raise self._pool.thrown(_Suspended())
        return False

    def _state(
        self, question: Question, frame: FrameType, arguments: tuple[Any, ...]
    ) -> tuple[Any, tuple[frozenset[Question], ...]]:
        """What must be equal in states that are merged, and the stored blocks, which may differ."""
        search, watch, answers = self._search, self._watch, self._pool.answers
        if self._recall is None:
            return object(), ()
        assert watch is not None
        if reason := self._unmergeable(watch, self._recall):
            raise self._pool.thrown(Forgotten(reason))
        canonical = Canonical(search.inputs, self._pool)
        try:
            held = canonical.frames(frame, ENTRY)
        except NotAlike:
            return object(), ()
        kept = watch.outliving(canonical.walked)
        if kept is not None:
            search.kept, self._again = _described(kept), True
            del kept
            raise self._pool.thrown(_Suspended())
        undecided = _undecided(self._pool.undecided(), search.merging)
        key = (question, arguments, len(answers), held, undecided, self._pool.known())
        return key, tuple(canonical.stored)


_SWALLOWS = "lookup swallows exceptions that the block pool raises"


def _described(kept: object) -> str:
    name = getattr(kept, "__qualname__", "")
    return name if isinstance(kept, type) else f"a {type(kept).__qualname__} {name}".rstrip()


def _let_go(error: BaseException | None) -> None:
    """Drop the frames that an exception, and those that it came up in, hold."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def answered(lookup: Lookup, pool: SymbolicPool, max_length: int) -> LookupAnswer | Exception:
    """What a lookup returns or raises. It may be watched, so nothing is made of that yet."""
    try:
        return lookup(pool, max_length)
    except Exception as error:
        return error


ENTRY = answered.__code__
do_not_watch(ENTRY)


def settled(answer: LookupAnswer | Exception) -> LookupAnswer | Exception:
    """What a lookup returned, or the exception if it is its own. Raises `CannotJudge` if not."""
    return crash_of(answer) if isinstance(answer, Exception) else answer


def frames_of(innermost: FrameType) -> Iterator[FrameType]:
    """The frames of the lookup, from ``innermost`` to the one that was entered."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not ENTRY:
        yield frame
        frame = frame.f_back


def _undecided(
    candidates: Sequence[tuple[int, int]], merging: Merging
) -> tuple[tuple[int, int], ...]:
    """What the spec still depends on: candidates not ruled out, with what was not asked of them.

    Candidates shorter than a hit known to be valid no longer affect the longest valid hit. They
    distinguish a lost hit from an unsound one, so only coarse merging drops them.
    """
    if merging is Merging.COARSE:
        certain = max(length for length, unasked in candidates if not unasked)
        return tuple(hit for hit in candidates if hit[0] >= certain)
    return tuple(candidates)

"""Run one unmodified lookup against every possible cache state.

The lookup runs against a *symbolic pool*. A question about a block whose answer is not fixed
yet suspends the run, and both answers are followed. A finished run is one path: the blocks it
asked about are fixed, all others are open, and the spec is evaluated for every completion of
them. That evaluation is exact without a solver, because a valid hit is a conjunction of
"block i is cached" and the longest valid hit is a maximum over such conjunctions.

Two suspended runs with the same future are merged: they hold the same, by
`conformance.exploration.canonical`, and leave the same undecided candidates of the spec; what could
decide their future beside that is watched, by `conformance.exploration.watch`. What merging forgets
(answers about blocks that no undecided candidate reaches, and which blocks the lookup has stored so
far) is watched, too: a lookup that uses it is explored again without merging. The argument is in
the trust model (docs/pages/trust.md). The weights of all paths must add up to all 2^n states, or
the exploration raises `InternalError`.

A lookup may be that of one group or of several. What it can ask about is a `Question`: one for
each block of each set of groups that are looked up together.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from hitproof.conformance.exploration.attributes import Attributes
from hitproof.conformance.exploration.frames import READABLE
from hitproof.conformance.exploration.search import (
    BudgetExceeded,
    End,
    Merging,
    Node,
    Search,
    answered,
    settled,
)
from hitproof.conformance.exploration.symbolic import Forgotten, Question, Space, SymbolicPool
from hitproof.conformance.subject.failures import CannotJudge, InternalError
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer

__all__ = ["BudgetExceeded", "Exploration", "Path", "explore", "replay"]


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
class Exploration:
    """Every path of one lookup.

    Attributes:
        questions: n; the paths stand for 2^n cache states.
        paths: the finished runs.
        suspensions: states at which a question was asked, after merging.
        merged: whether equal states were merged.
        coarse: whether states were merged that agree only on hits *longer* than one known to be
            valid. Then no wrong answer is missed, but a path that returns less than that hit may
            represent others with a more severe divergence.
        start: the first state, or the end of all runs.
    """

    questions: int
    paths: list[Path] = field(default_factory=list)
    suspensions: int = 0
    merged: bool = True
    coarse: bool = False
    start: Node | End = field(default_factory=lambda: Node((-1, -1), -1))

    def answer_at(self, cached: frozenset[Question]) -> LookupAnswer | Exception:
        """What was found to be the answer when exactly ``cached`` is cached.

        Its block tables are those of a run that was merged with that one.
        """
        at: Node | End | None = self.start
        while isinstance(at, Node):
            at = at.after[at.question in cached]
        assert at is not None
        return at.answer


_ATTEMPTS = 3
"""Explorations after which a lookup has filled its memos, if that is all that it changes."""


def explore(
    space: Space,
    lookup: Lookup,
    max_length: int,
    *,
    merging: bool = True,
    budget: int = 20_000,
    attributes: Attributes | None = None,
    watching: bool = True,
) -> Exploration:
    """Follow every path of ``lookup`` for one request and one ``max_length`` (tokens).

    To explore a lookup for several requests, pass the same ``attributes`` each time: then what it
    stores for one of them is not read for another. A lookup that keeps times and counts, on which
    its answers do not depend, must not be merged, and is explored without ``watching``.

    Merges exactly for a quarter of ``budget`` runs, then coarsely or, where states cannot be
    merged, not at all. Raises `BudgetExceeded` when ``budget`` runs are not enough, and
    `CannotJudge` when the lookup uses a part of the pool that is not modelled, depends on more than
    its arguments, keeps state from call to call, or swallows what the pool raises.
    """
    attributes = Attributes() if attributes is None else attributes
    settled = functools.partial(_settled, space, lookup, max_length, attributes, watching)
    apart = "" if READABLE else "the stacks of this interpreter cannot be read"
    if merging and not apart:
        try:
            try:
                return settled(Merging.EXACT, budget // 4)
            except BudgetExceeded:
                return settled(Merging.COARSE, budget)
        except Forgotten as forgotten:
            apart = str(forgotten)
    try:
        return settled(Merging.NONE, budget)
    except BudgetExceeded as exceeded:
        if not apart:
            raise
        raise BudgetExceeded(f"{exceeded}, and no states are merged: {apart}") from exceeded


def _settled(
    space: Space,
    lookup: Lookup,
    max_length: int,
    attributes: Attributes,
    watching: bool,
    merging: Merging,
    budget: int,
) -> Exploration:
    """An exploration during which the lookup has changed nothing that outlives it."""
    kept = ""
    for attempt in range(_ATTEMPTS):
        collect = attempt > 0
        search = Search(space, lookup, max_length, merging, budget, collect, attributes, watching)
        search.run()
        kept = search.kept
        if not kept:
            return _exploration(search)
    if merging is Merging.NONE:
        raise CannotJudge(f"the lookup keeps state from call to call: it changes {kept}")
    raise Forgotten(f"it keeps state: it changes {kept}")


def _exploration(search: Search) -> Exploration:
    merging, space = search.merging, search.space
    for end in search.ends:
        _refuse_disputed(space, end)
    paths = [Path(end.answers, end.answer, end.weight) for end in search.ends]
    count = space.questions
    covered = sum(path.weight << (count - len(path.answers)) for path in paths)
    if covered != 1 << count:
        raise InternalError(f"the paths cover {covered} of {1 << count} cache states")
    merged, coarse = merging is not Merging.NONE, merging is Merging.COARSE
    return Exploration(count, paths, len(search.nodes), merged, coarse, search.start)


def _refuse_disputed(space: Space, end: End) -> None:
    """A served block that merged runs disagree on was forgotten too early."""
    if not end.disputed or isinstance(end.answer, Exception):
        return
    for hit in space.hits:
        if hit.length == end.answer.hit_length and end.disputed & hit.required:
            raise Forgotten("it serves blocks that merged runs disagree on")


def replay(
    space: Space,
    lookup: Lookup,
    max_length: int,
    cached: frozenset[Question],
    number: Callable[[Question], int] | None = None,
) -> LookupAnswer | Exception:
    """What ``lookup`` returns or raises when exactly ``cached`` is cached.

    ``number`` numbers the blocks.
    """

    def decide(question: Question, _frame: FrameType, _arguments: object) -> bool:
        return question in cached

    pool = SymbolicPool(space, decide, number=number)
    answer = settled(answered(lookup, pool, max_length))
    if pool.raised is not None:
        raise CannotJudge("lookup swallows exceptions that the block pool raises")
    return answer

"""Concrete runs beside an exploration: a lookup answers as explored, whatever was asked before.

The exploration is trusted for an argument (the trust model in the docs); this checks whether it
holds. On every state of small requests, and on random ones of others, the lookup is run with a
pool that has all answers from the start. Later the same questions are put to a fresh lookup, in
the opposite order, with other block numbers, and to the used one again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from hitproof.conformance.exploration.explorer import Exploration, replay
from hitproof.conformance.exploration.symbolic import Question, Space
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer

_FEW = 5
"""Questions of requests that are run in all states."""
_DENSITIES = (0.5, 0.8, 0.95)
"""Shares of the blocks that are cached in random states."""
_AGAIN = 8
"""Runs of one configuration that are done again, on a fresh lookup and on the used one."""


@dataclass(frozen=True)
class _Run:
    space: Space
    max_length: int
    cached: frozenset[Question]
    answer: tuple[object, ...]


@dataclass
class Concrete:
    """The concrete runs of one lookup.

    Attributes:
        runs: how many there were.
    """

    lookup: Lookup
    runs: int = 0
    _done: list[_Run] = field(default_factory=list)

    def answers(
        self, space: Space, max_length: int
    ) -> Iterator[tuple[frozenset[Question], LookupAnswer | Exception]]:
        """The cache states that are run, each with the answer there."""
        for cached in _states(space, max_length):
            answer = replay(space, self.lookup, max_length, cached)
            self.runs += 1
            self._done.append(_Run(space, max_length, cached, _told(answer)))
            yield cached, answer

    def disagreeing(
        self, space: Space, max_length: int, exploration: Exploration
    ) -> Iterator[tuple[frozenset[Question], LookupAnswer | Exception]]:
        """Cache states in which a run does not answer as was explored, and what it answers."""
        for cached, answer in self.answers(space, max_length):
            if _told(answer) != _told(exploration.answer_at(cached)):
                yield cached, answer

    def do_again(self, fresh: Lookup) -> None:
        """Run some again, in the opposite order; raises `CannotJudge` where an answer differs."""
        step = max(len(self._done) // _AGAIN, 1)
        chosen = self._done[::-step]
        for lookup, which in ((fresh, "another manager"), (self.lookup, "the same manager")):
            for run in chosen:
                answer = replay(run.space, lookup, run.max_length, run.cached, _other_number)
                self.runs += 1
                if _told(answer) != run.answer:
                    raise CannotJudge(
                        f"in another order and with other block numbers, {which} answers "
                        f"otherwise: the answer depends on more than the cache state"
                    )


def _told(answer: LookupAnswer | Exception) -> tuple[object, ...]:
    """What an answer says, but for its blocks."""
    if isinstance(answer, Exception):
        return (type(answer),)
    try:
        lengths = tuple(map(len, answer.tables))
    except TypeError:
        lengths = ()
    return answer.hit_length, answer.diverged, lengths


def _other_number(question: Question) -> int:
    """Numbers of blocks that fall where those of an exploration rise."""
    group, block = question
    return 1_000_003 * (group + 1) - 7 * block


def _states(space: Space, max_length: int) -> Iterator[frozenset[Question]]:
    """The states to run: all of few questions, else random ones, the same on every machine."""
    questions = sorted(set(space.keys.values()))
    if len(questions) <= _FEW:
        for bits in range(1 << len(questions)):
            yield frozenset(q for place, q in enumerate(questions) if bits >> place & 1)
        return
    dice = random.Random(f"{max_length} {questions[-1]} {len(space.hits)}")
    everything = frozenset(questions)
    yield everything - {dice.choice(questions)}
    for density in _DENSITIES:
        yield frozenset(question for question in questions if dice.random() < density)

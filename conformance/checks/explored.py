"""How a lookup is checked: explored, judged, confirmed and counted, and run concretely.

The exploration is trusted for an argument (the trust model in the docs); concrete runs check
whether it holds. On every state of small requests, and on random ones of others, the lookup is run
with a pool that has all answers from the start. Later the same questions are put to a fresh lookup,
in the opposite order, with other block numbers, and to the used one again.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from hitproof.conformance.checks.outcomes import Case
from hitproof.conformance.exploration.attributes import Attributes
from hitproof.conformance.exploration.explorer import Exploration, Path, explore, replay
from hitproof.conformance.exploration.symbolic import Question, Space
from hitproof.conformance.findings.evidence import LookupEvidence, smallest
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.subject.failures import CannotJudge, InternalError
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


_E = TypeVar("_E", bound=LookupEvidence)

Answer = LookupAnswer | Exception
"""What a lookup returned, or the exception that it raised."""


@dataclass(frozen=True)
class Request(ABC, Generic[_E]):
    """One lookup with all that judging it takes; ``cached`` states are sets of questions.

    Attributes:
        lookup: what is judged.
        max_length: how many tokens it may serve.
        space: what it can ask, and what it may serve.
    """

    lookup: Lookup
    max_length: int
    space: Space

    @property
    def merging(self) -> bool:
        """Whether runs with the same future may be merged."""
        return False

    @property
    def watching(self) -> bool:
        """Whether what the lookup uses beside the pool is watched: see `explore`."""
        return True

    @abstractmethod
    def diverging_completions(self, path: Path) -> Iterator[frozenset[Question]]:
        """Cache states of the path at which the answer is wrong, one for each way to be wrong."""

    @abstractmethod
    def evidence(self, cached: frozenset[Question], answer: Answer) -> _E:
        """What is wrong with ``answer`` when exactly ``cached`` is cached."""

    @abstractmethod
    def contradicted(self, cached: frozenset[Question], answer: Answer) -> Iterator[str]:
        """The claims whose sentences ``answer`` makes false when exactly ``cached`` is cached."""

    @abstractmethod
    def due(self, cached: frozenset[Question]) -> int:
        """The expected hit, in tokens, by the spec itself, which knows no candidates."""

    @abstractmethod
    def diverging_states(self, path: Path) -> Counter[tuple[Code, Row]]:
        """How many states of a diverging path diverge, by code and by what the lookup answers."""


def cases(
    requests: Iterable[Request[_E]], lookup: Lookup, fresh: Callable[[], Lookup]
) -> Iterator[Case]:
    """Judge every answer of ``lookup`` to the requests.

    What cannot be explored is run in some cache states: then nothing is proved, but a wrong answer
    is wrong all the same. ``fresh`` makes another lookup, which must answer as this one did. Raises
    `CannotJudge` where the lookup cannot be explored or does not always answer the same.
    """
    concrete, attributes = Concrete(lookup), Attributes()
    refusal: CannotJudge | None = None
    for request in requests:
        space, before = request.space, concrete.runs
        try:
            if refusal is None:
                exploration = explore(
                    space,
                    lookup,
                    request.max_length,
                    merging=request.merging,
                    attributes=attributes,
                    watching=request.watching,
                )
        except CannotJudge as error:
            refusal = error
        if refusal is not None:
            answers = list(concrete.answers(space, request.max_length))
            seen = [_whole(request, *each) for each in answers]
            evidence, runs = _evidence_in(request, seen), concrete.runs - before
            yield Case(0, 0, evidence, runs=runs, contradicts=_contradicts(request, seen))
            continue
        seen = list(exploration.paths)
        evidence = _evidence_in(request, seen)
        counted: Counter[tuple[Code, Row]] = Counter()
        for path in exploration.paths if evidence else ():
            if any(True for _ in request.diverging_completions(path)):
                counted.update(request.diverging_states(path))
        otherwise = list(concrete.disagreeing(space, request.max_length, exploration))
        seen += [_whole(request, *each) for each in otherwise]
        evidence += _evidence_in(request, seen[len(exploration.paths) :])
        contradicts = _contradicts(request, seen) if evidence else {}
        runs = concrete.runs - before
        states, coarse = 1 << space.questions, exploration.coarse
        yield Case(len(exploration.paths), states, evidence, coarse, counted, runs, contradicts)
        if otherwise:
            raise CannotJudge("the lookup does not answer as it does when it is explored")
    if refusal is not None:
        raise refusal
    before = concrete.runs
    concrete.do_again(fresh())
    yield Case(0, 0, (), runs=concrete.runs - before)


def _whole(request: Request[_E], cached: frozenset[Question], answer: Answer) -> Path:
    """An answer to a whole cache state."""
    return Path({q: q in cached for q in request.space.keys.values()}, answer, 1)


def _evidence_in(request: Request[_E], paths: Iterable[Path]) -> list[_E]:
    """The smallest evidence of each signature among the paths, confirmed."""
    diverging = smallest(
        request.evidence(cached, path.answer)
        for path in paths
        for cached in request.diverging_completions(path)
    )
    return [_confirmed(request, evidence) for evidence in diverging.values()]


def _contradicts(request: Request[_E], paths: Sequence[Path]) -> dict[str, frozenset[Signature]]:
    """The claims whose sentences the answers make false, with the signatures of these answers.

    A path is judged by its states that differ in how they are wrong, and by the one in which the
    most is cached, where a hit falls shortest of the expected one.
    """
    contradicts: dict[str, frozenset[Signature]] = {}
    for path in paths:
        states = list(request.diverging_completions(path))
        if states:
            missing = {question for question, cached in path.answers.items() if not cached}
            states.append(frozenset(request.space.keys.values()) - missing)
        for cached in dict.fromkeys(states):
            if claims := set(request.contradicted(cached, path.answer)):
                signature = request.evidence(cached, path.answer).signature
                for claim in claims:
                    contradicts[claim] = contradicts.get(claim, frozenset()) | {signature}
    return contradicts


def _confirmed(request: Request[_E], evidence: _E) -> _E:
    """The evidence, once the lookup gives it twice for its cache state, and the spec agrees.

    Raises `CannotJudge` when the two differ, and `InternalError` when they are not as it was.
    """
    cached = frozenset(
        (number, block) for number, blocks in enumerate(evidence.cached) for block in blocks
    )

    def again() -> _E:
        answer = replay(request.space, request.lookup, request.max_length, cached)
        diverging = request.diverging_completions(_whole(request, cached, answer))
        if not any(True for _ in diverging):
            raise CannotJudge("lookup does not return the same when it is run twice")
        # The text of an exception may hold addresses, which differ from run to run.
        return replace(request.evidence(cached, answer), actual=evidence.actual)

    first, second = again(), again()
    if first != second:
        raise CannotJudge("lookup does not return the same when it is run twice")
    if request.due(cached) != evidence.spec_hit or first != evidence:
        raise InternalError(f"a counterexample does not replay: {evidence}")
    return evidence

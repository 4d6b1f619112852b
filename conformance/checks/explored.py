"""How a lookup is checked: explored, judged, confirmed and counted, and run concretely."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hitproof.conformance.checks.concrete_runs import Concrete
from hitproof.conformance.checks.outcomes import Case
from hitproof.conformance.exploration.attributes import Attributes
from hitproof.conformance.exploration.explorer import Path, explore, replay
from hitproof.conformance.exploration.symbolic import Question, Space
from hitproof.conformance.findings.evidence import LookupEvidence, smallest
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.subject.failures import CannotJudge, InternalError
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer

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

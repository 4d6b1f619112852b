"""What a subject does, as facts by which two subjects can be compared.

A check says where a subject differs from the spec. Two subjects that differ from it in the same
way may still differ from each other, so the subject's behaviour during the check is recorded: what
it registered, what its prompts hit, and, for requests of few blocks, the hit of its lookup for
every cache state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias, cast

from hitproof.conformance.checks.lookup import check_common_hit, check_lookup, space_of
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.exploration.explorer import explore
from hitproof.conformance.exploration.symbolic import Question
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import crash_of, refusal_of
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.subject.subjects import Subject
from hitproof.spec.releases.horizons import LookaheadHorizon

FEW = 8
"""Lookups that can ask about at most this many blocks are recorded for all 2^n cache states."""

Answer: TypeAlias = int | str
"""A number of tokens, whether a block is registered (0 or 1), or the name of an exception."""

Outcome: TypeAlias = str | Sequence[Answer]
"""The name of an exception, or an answer for each of the blocks, prompts or cache states."""


@dataclass(frozen=True)
class Fact:
    """One recorded behaviour of a subject.

    Attributes:
        what: "registered", "retained" or "hits", for the method of that name of
            `conformance.subject.subjects.Subject`, or "lookup".
        given: what it was given: chunks; the prompt's tokens and the retention interval; the
            prompts' lengths, the tokens that they share, and the interval; the tokens that the
            lookup may serve.
        outcome: the result. For a lookup the hit for each cache state; block i of the
            `questions_of` is cached in state s if bit i of s is set.
    """

    what: str
    given: tuple[Any, ...]
    outcome: Outcome

    def as_json(self) -> list[Any]:
        """The fact as JSON; `from_json` reads it."""
        return [self.what, self.given, self.outcome]

    @staticmethod
    def from_json(data: list[Any]) -> "Fact":
        """Inverse of `as_json`."""
        what, given, outcome = data
        return Fact(what, _frozen(given), outcome)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def behaviour(
    subject: Subject, claim: str, judged: Configuration | Layout
) -> tuple[CheckResult, list[Fact]]:
    """Run the claim's check, and tell what the subject did."""
    recorder = _Recorder(subject)
    check = CHECKS[claim]
    result = check(cast(Subject, recorder), judged)
    facts = list(recorder.facts.values())
    if check in (check_lookup, check_common_hit) and result.statuses:
        facts += _lookups(subject, judged)
    return result, facts


def questions_of(judged: Configuration | Layout, max_length: int) -> list[Question]:
    """What a lookup of at most ``max_length`` tokens has reason to ask about.

    These are the blocks up to the one past the last that may be served; a cache state's bits have
    them in this order.
    """
    return [
        (number, block)
        for number, looked_up in enumerate(judged.looked_up)
        for block in range(
            min(max_length // looked_up.group.block_size + 1, judged.bound(looked_up))
        )
    ]


def _lookups(subject: Subject, judged: Configuration | Layout) -> Iterator[Fact]:
    try:
        lookup = subject.lookup(judged)
    except Exception as error:
        refusal_of(error)
        return  # which the check's result says, too
    for max_length in judged.max_lengths:
        questions = questions_of(judged, max_length)
        if len(questions) > FEW:
            continue
        # The horizon limits what may be served, not what may be asked.
        space = space_of(judged, lookup, max_length, LookaheadHorizon.HASHED)
        paths = explore(space, lookup, max_length, merging=False).paths
        if not all(path.answers.keys() <= set(questions) for path in paths):
            continue
        hits: list[Answer] = [0] * (1 << len(questions))
        for path in paths:
            answer = path.answer
            hit = answer.hit_length if isinstance(answer, LookupAnswer) else type(answer).__name__
            for state in _completions(questions, path.answers):
                hits[state] = hit
        yield Fact("lookup", (max_length,), hits)


def _completions(questions: Sequence[Question], answers: dict[Question, bool]) -> list[int]:
    """The cache states in which the questions have these answers."""
    states = [0]
    for bit, question in enumerate(questions):
        if question not in answers:
            states += [state | 1 << bit for state in states]
        elif answers[question]:
            states = [state | 1 << bit for state in states]
    return states


class _Recorder:
    """A subject that records its behaviour."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.facts: dict[Any, Fact] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        given = (tuple(chunks),)
        run = self._subject.registered
        found: list[bool] = self._kept("registered", given, lambda: run(configuration, chunks))
        return found

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        given = (num_tokens, interval)
        run = self._subject.retained
        found: list[bool] = self._kept("retained", given, lambda: run(configuration, *given))
        return found

    def hits(
        self,
        configuration: Configuration,
        prompts: Sequence[Sequence[int]],
        interval: int | None,
    ) -> list[int]:
        columns = zip(*prompts, strict=False)
        shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
        given = (tuple(map(len, prompts)), shared, interval)
        run = self._subject.hits
        found: list[int] = self._kept("hits", given, lambda: run(configuration, prompts, interval))
        return found

    def _kept(self, what: str, given: tuple[Any, ...], run: Callable[[], list[Any]]) -> Any:
        try:
            found = run()
        except Exception as error:
            self.facts[what, given] = Fact(what, given, type(crash_of(error)).__name__)
            raise
        self.facts[what, given] = Fact(what, given, [int(entry) for entry in found])
        return found

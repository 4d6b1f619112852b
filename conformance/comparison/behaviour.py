"""What a subject does, as facts by which two subjects can be compared.

A check says where a subject differs from the spec. Two subjects that differ from it in the same
way may still differ from each other, so the subject's behaviour during the check is recorded: what
it registered, what its prompts hit, and, for requests of few blocks, the hit of its lookup for
every cache state.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, cast

from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.comparison.answers import lookup_facts
from hitproof.conformance.comparison.facts import Answer, Fact, raised
from hitproof.conformance.comparison.tiers import TIER_RUNS, RecordedMasks, RecordedPlays
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import Predates, crash_of, refusal_of
from hitproof.conformance.subject.subjects import Subject
from hitproof.spec.claims import Status

REGISTRATIONS = ("registered", "stored", "registered_when_final", "retained", "hits", *TIER_RUNS)
"""The methods of subjects whose runs are recorded."""


def behaviour(
    subject: Subject, claim: str, judged: Configuration | Layout
) -> tuple[CheckResult, list[Fact]]:
    """Run the claim's check, and tell what the subject did.

    Where that cannot be told of a lookup that the check could judge, the result is inconclusive.
    """
    recorder = _Recorder(subject)
    check = CHECKS[claim]
    result = check(cast(Subject, recorder), judged)
    facts = list(recorder.facts.values())
    if Status.INCONCLUSIVE in result.statuses.values() or not result.statuses:
        return result, facts
    try:
        facts += lookup_facts(subject, check, judged)
    except Predates:  # which the check's result says, too
        pass
    except Exception as error:
        reason = f"the lookup's answers cannot be recorded: {refusal_of(error)}"
        unknown = dict.fromkeys(result.statuses, Status.INCONCLUSIVE)
        result = replace(result, statuses=unknown, detail=reason)
    return result, facts


def _numbers(found: Sequence[Any]) -> list[Answer]:
    return [int(entry) for entry in found]


class _Recorder:
    """A subject that records its behaviour."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.facts: dict[Any, Fact] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        given = (tuple(chunks), alone)
        run = self._subject.registered
        found: list[bool] = self._kept("registered", given, lambda: run(configuration, *given))
        return found

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        given = (num_tokens, interval)
        run = self._subject.retained
        found: list[bool] = self._kept("retained", given, lambda: run(configuration, *given))
        return found

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        run = self._subject.stored
        found: list[bool] = self._kept("stored", (end,), lambda: run(configuration, end))
        return found

    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        run, given = self._subject.stored_unaligned, (alignment,)
        found: list[bool] = self._kept(
            "stored_unaligned", given, lambda: run(configuration, alignment)
        )
        return found

    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        given, run = (num_tokens, not_final, alone, interval), self._subject.registered_when_final
        found: list[bool] = self._kept(
            "registered_when_final", given, lambda: run(configuration, *given)
        )
        return found

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        columns = zip(*prompts, strict=False)
        shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
        given = (tuple(map(len, prompts)), shared, interval)
        run = self._subject.hits
        found: list[int] = self._kept("hits", given, lambda: run(configuration, prompts, interval))
        return found

    def tier_masks(self, layout: Layout) -> RecordedMasks:
        return RecordedMasks(self._subject.tier_masks(layout), self._kept)

    def tier_plays(self, layout: Layout, num_tokens: int) -> RecordedPlays:
        return RecordedPlays(self._subject.tier_plays(layout, num_tokens), self._kept)

    def _kept(
        self,
        what: str,
        given: tuple[Any, ...],
        run: Callable[[], Any],
        told: Callable[[Any], Sequence[Answer]] = _numbers,
    ) -> Any:
        try:
            found = run()
        except Exception as error:
            # A tier may lack one of the masks that its check asks for.
            lacks = isinstance(error, Predates) and what in TIER_RUNS
            self.facts[what, given] = Fact(what, given, [] if lacks else raised(crash_of(error)))
            raise
        self.facts[what, given] = Fact(what, given, told(found))
        return found

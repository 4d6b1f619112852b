"""What a subject does, as facts by which two subjects can be compared.

A check says where a subject differs from the spec. Two subjects that differ from it in the same
way may still differ from each other, so the subject's behaviour during the check is recorded: what
it registered, what its prompts hit, and, for requests of few blocks, the hit of its lookup for
every cache state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, cast

from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.comparison.answers import lookup_facts
from hitproof.conformance.comparison.facts import Answer, Call, Fact, Kept, raised
from hitproof.conformance.comparison.tier_runs import MASK_CALLS, PLAY_CALLS, TIER_RUNS
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


def _prompts(_: Configuration, prompts: Sequence[Sequence[int]], interval: int | None) -> Any:
    """The lengths of prompts and how many tokens they share, which is all that hits depend on."""
    columns = zip(*prompts, strict=False)
    shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
    return tuple(map(len, prompts)), shared, interval


_CALLS: Mapping[str, Call] = {
    "registered": (
        *("registered", lambda _, chunks, alone=False: (tuple(chunks), alone)),
        _numbers,
    ),
    "retained": ("retained", lambda _, num_tokens, interval: (num_tokens, interval), _numbers),
    "stored": ("stored", lambda _, end: (end,), _numbers),
    "stored_unaligned": ("stored_unaligned", lambda _, alignment: (alignment,), _numbers),
    "registered_when_final": (
        "registered_when_final",
        lambda _, num_tokens, not_final, alone, interval=None: (
            *(num_tokens, not_final, alone, interval),
        ),
        _numbers,
    ),
    "hits": ("hits", _prompts, _numbers),
}


class _Recorder(Kept):
    """A subject that records its behaviour."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject, self._keep, _CALLS)
        self.facts: dict[Any, Fact] = {}

    def tier_masks(self, layout: Layout) -> Kept:
        return Kept(self.of.tier_masks(layout), self._keep, MASK_CALLS)

    def tier_plays(self, layout: Layout, num_tokens: int) -> Kept:
        return Kept(self.of.tier_plays(layout, num_tokens), self._keep, PLAY_CALLS)

    def _keep(
        self,
        what: str,
        given: tuple[Any, ...],
        run: Callable[[], Any],
        told: Callable[[Any], Sequence[Answer]],
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

"""Scheduler histories on two schedulers: what becomes of the requests, and what each step computes.

Where one decides otherwise all later steps have another past. So what users get is compared by
request, over the whole history, and steps only up to the first that differs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hitproof.conformance.comparison.effects import Effect, of_hits
from hitproof.conformance.comparison.histories import Parting
from hitproof.conformance.comparison.records import Decision
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.words import count, in_tokens
from hitproof.spec.claims import Divergence

Scheduled: TypeAlias = tuple[str, int, int]
"""A request in a step: its name, where the step starts, and how many tokens it computes."""


@dataclass(frozen=True)
class ScheduleRun:
    """One scheduler history on one scheduler.

    Attributes:
        history: the history as it was played, as JSON.
        refused: why start-up refuses the deployment; "" when it does not.
        raised: what the scheduler raised; "" when it did not.
        hits: how many tokens each request found in the cache when it was admitted.
        finished: the requests that ended with their last token.
        preemptions: how often each request had to start again.
        plans: what each step computed.
        wrong: the worst that is wrong with what is read, a divergence; "" for nothing.
    """

    history: str
    refused: str
    raised: str
    hits: Mapping[str, int]
    finished: frozenset[str]
    preemptions: Mapping[str, int]
    plans: tuple[tuple[Scheduled, ...], ...]
    wrong: str

    @staticmethod
    def from_answer(answer: Mapping[str, Any]) -> "ScheduleRun":
        """From what the worker answers to a replay that is recorded."""
        played = answer["scheduler"]
        lives = played["lives"]
        signatures = [found["signature"] for found in answer["findings"]]
        divergences = {each["divergence"] for each in signatures}
        raises = any(each["code"] == Code.RAISES_EXCEPTION for each in signatures)
        return ScheduleRun(
            answer["history"],
            played["refused"],
            played["ended"] if raises else "",
            {name: life["hit"] for name, life in lives.items() if life["hit"] is not None},
            frozenset(name for name, life in lives.items() if life["ended"] == "finished"),
            {name: life["preemptions"] for name, life in lives.items()},
            tuple(tuple((n, s, t) for n, s, t in plan) for plan in answer["plans"]),
            next((each for each in _READ_WRONG if each in divergences), ""),
        )

    @property
    def empty_steps(self) -> int:
        """How many steps computed nothing."""
        return sum(not any(tokens for _, _, tokens in plan) for plan in self.plans)


_READ_WRONG = (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)


def _parting(effect: Effect, what: Decision, words: Sequence[str], tokens: int = 0) -> Parting:
    """What is compared over the whole history has no step, and nothing is another's consequence."""
    return Parting(effect, what, 0, what, tokens, tuple(words))


def differences(base: ScheduleRun, head: ScheduleRun) -> list[Parting]:
    """What differs in one history; the steps only where nothing else does."""
    assert base.history == head.history
    if base.refused or head.refused:
        return list(_of_start(base, head))
    found = [*_of_ends(base, head), *_of_hits(base, head), *_of_numbers(base, head)]
    return found or list(_of_steps(base, head))


def _of_start(base: ScheduleRun, head: ScheduleRun) -> Iterator[Parting]:
    if bool(base.refused) == bool(head.refused):
        return
    effect = Effect.REFUSED if head.refused else Effect.ADMITTED
    words = [each.refused or "start-up accepts the deployment" for each in (base, head)]
    yield _parting(effect, Decision.STARTUP, words)


def _of_ends(base: ScheduleRun, head: ScheduleRun) -> Iterator[Parting]:
    if base.raised != head.raised:
        one = Effect.FIXED if base.raised else Effect.CRASH
        effect = Effect.CRASHES if base.raised and head.raised else one
        words = [each.raised or "no exception" for each in (base, head)]
        yield _parting(effect, Decision.CRASHES, words)
        return
    for effect, only in (
        (Effect.STUCK, base.finished - head.finished),
        (Effect.UNSTUCK, head.finished - base.finished),
    ):
        if only:
            words = [
                f"{_named(only)} {'finish' if only <= each.finished else 'do not finish'}"
                for each in (base, head)
            ]
            yield _parting(effect, Decision.ENDS, words)


def _of_hits(base: ScheduleRun, head: ScheduleRun) -> Iterator[Parting]:
    other = [n for n in base.hits.keys() & head.hits.keys() if base.hits[n] != head.hits[n]]
    before, after = (sum(run.hits[n] for n in other) for run in (base, head))
    if before == after:
        return
    was = base.wrong if base.wrong != head.wrong else ""
    now = head.wrong if base.wrong != head.wrong else ""
    words = [
        ", ".join(f"request {n} hits {in_tokens(run.hits[n])}" for n in sorted(other))
        for run in (base, head)
    ]
    effect = of_hits(before, after, was, now)
    yield _parting(effect, Decision.HITS, words, after - before)


def _of_numbers(base: ScheduleRun, head: ScheduleRun) -> Iterator[Parting]:
    one, other = (sum(run.preemptions.values()) for run in (base, head))
    if one != other:
        effect = Effect.PREEMPTED if other > one else Effect.PREEMPTED_LESS
        words = [count(number, "preemption") for number in (one, other)]
        yield _parting(effect, Decision.PREEMPTIONS, words)
    one, other = base.empty_steps, head.empty_steps
    if one != other:
        effect = Effect.EMPTY if other > one else Effect.EMPTY_LESS
        yield _parting(effect, Decision.EMPTY, [count(n, "empty step") for n in (one, other)])


def _of_steps(base: ScheduleRun, head: ScheduleRun) -> Iterator[Parting]:
    if base.plans == head.plans:
        return
    pairs = zip((*base.plans, ()), (*head.plans, ()), strict=False)
    step = next(n for n, (one, other) in enumerate(pairs) if one != other)
    words = [
        f"step {step} computes {_planned(run.plans[step])}" if step < len(run.plans) else "no step"
        for run in (base, head)
    ]
    yield _parting(Effect.STEPS, Decision.SCHEDULED, words)


def _planned(plan: tuple[Scheduled, ...]) -> str:
    chunks = (f"{in_tokens(tokens)} of {name} from {start}" for name, start, tokens in plan)
    return ", ".join(chunks) or "nothing"


def _named(requests: frozenset[str]) -> str:
    return f"request{'s' if len(requests) > 1 else ''} {', '.join(sorted(requests))}"

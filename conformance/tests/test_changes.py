"""What changes between two subjects: each effect has a pair that shows it; equal ones show none."""

from collections.abc import Sequence
from typing import Any

import pytest

from hitproof.conformance.comparison.behaviour import FEW, Fact, behaviour, questions_of
from hitproof.conformance.comparison.changes import Change, changes
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.reference.subject import ReferenceSubject
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.spec.groups import Group, GroupKind

SLIDING = GroupKind.SLIDING_WINDOW
WINDOW = single_group(SLIDING, 2, 2, 3, True, 6)
PAIR = Layout((Group(GroupKind.FULL_ATTENTION, 2), Group(SLIDING, 1, 3)), 5, False, 1)
LOOKUP, COMMON = "lookup_returns_longest_valid_hit", "common_hit_is_the_longest"
MASK, RETENTION = "mask_keeps_every_reachable_block", "retention_keeps_siblings"
JUNCTIONS = "retention_keeps_junctions"


class Answering:
    """A lookup whose answers are changed."""

    def __init__(self, lookup: Lookup, change: Any) -> None:
        self._lookup, self._change = lookup, change
        self.keys, self.inputs = lookup.keys, lookup.inputs

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        answer = self._lookup(pool, max_length)
        return LookupAnswer(self._change(answer.hit_length), answer.tables)


def crashes(hit: int) -> int:
    if hit:
        raise KeyError(hit)
    return hit


class Changed(ReferenceSubject):
    """The reference, whose lookups answer something else, or which registers something else."""

    def __init__(self, change: Any = None, leaves_out: int | None = None) -> None:
        super().__init__()
        self._change, self._leaves_out = change, leaves_out

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        lookup = super().lookup(judged)
        return lookup if self._change is None else Answering(lookup, self._change)

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        found = super().registered(configuration, chunks)
        return [held and block != self._leaves_out for block, held in enumerate(found)]

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        if self._leaves_out == -1:
            raise KeyError(num_tokens)
        return super().retained(configuration, num_tokens, interval)

    def hits(
        self,
        configuration: Configuration,
        prompts: Sequence[Sequence[int]],
        interval: int | None,
    ) -> list[int]:
        found = super().hits(configuration, prompts, interval)
        return found if self._leaves_out is None else [0] * len(found)


def between(
    base: ReferenceSubject, head: ReferenceSubject, claim: str, judged: Configuration | Layout
) -> list[Change]:
    facts = []
    for subject in (base, head):
        result, found = behaviour(subject, claim, judged)
        assert result.statuses
        assert found
        again = [Fact.from_json(fact.as_json()) for fact in found]
        assert [fact.given for fact in again] == [fact.given for fact in found]
        facts.append(found)
    return changes(judged, *facts)


@pytest.mark.parametrize(
    ("claim", "judged"),
    [(LOOKUP, WINDOW), (COMMON, PAIR), (MASK, WINDOW), (RETENTION, WINDOW), (JUNCTIONS, WINDOW)],
)
def test_equal_subjects_have_no_changes(claim: str, judged: Configuration | Layout) -> None:
    assert between(ReferenceSubject(), ReferenceSubject(), claim, judged) == []


@pytest.mark.parametrize(
    ("change", "there", "back"),
    [
        (lambda _: 0, Effect.LOST, Effect.GAINED),
        (lambda hit: hit + 4, Effect.UNSOUND, Effect.SOUND),
        (crashes, Effect.CRASH, Effect.FIXED),
    ],
)
@pytest.mark.parametrize(("claim", "judged"), [(LOOKUP, WINDOW), (COMMON, PAIR)])
def test_lookups_that_answer_otherwise(
    claim: str, judged: Configuration | Layout, change: Any, there: Effect, back: Effect
) -> None:
    right, changed = ReferenceSubject(), Changed(change)
    assert there in {found.effect for found in between(right, changed, claim, judged)}
    found = [found for found in between(changed, right, claim, judged) if found.effect is back]
    assert found
    assert any("cached blocks of group 0" in line for line in found[0].given)
    assert found[0].base != found[0].head


def test_a_block_that_a_hit_needs_is_not_registered_any_more() -> None:
    right, changed = ReferenceSubject(), Changed(leaves_out=2)
    lost = {change.effect: change for change in between(right, changed, MASK, WINDOW)}
    assert lost.keys() == {Effect.LOST, Effect.FEWER}
    assert lost[Effect.LOST].base == "a hit of 4 tokens is possible"
    assert lost[Effect.FEWER].base == "registers 1-5"
    assert lost[Effect.FEWER].head == "registers 1, 3-5"
    gained = between(changed, right, MASK, WINDOW)
    assert {change.effect for change in gained} == {Effect.GAINED, Effect.MORE}


def test_prompts_that_hit_less_and_runs_that_crash() -> None:
    right, changed = ReferenceSubject(), Changed(leaves_out=-1)
    assert {c.effect for c in between(right, changed, JUNCTIONS, WINDOW)} == {Effect.LOST}
    assert {c.effect for c in between(right, changed, RETENTION, WINDOW)} == {Effect.CRASH}
    assert {c.effect for c in between(changed, right, RETENTION, WINDOW)} == {Effect.FIXED}


def test_hits_are_told_for_every_cache_state_of_few_blocks() -> None:
    _, facts = behaviour(ReferenceSubject(), COMMON, PAIR)
    sizes = {len(fact.outcome): questions_of(PAIR, *fact.given) for fact in facts}
    assert all(size == 1 << len(questions) for size, questions in sizes.items())
    assert 1 << FEW - 1 <= max(sizes) <= 1 << FEW

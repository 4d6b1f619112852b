"""What changes between two subjects: each effect has a pair that shows it; equal ones show none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from hitproof.conformance.comparison import answers
from hitproof.conformance.comparison.behaviour import behaviour
from hitproof.conformance.comparison.changes import Change, changes, unmatched
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.comparison.facts import Fact
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.tiers import TierMasks, TierPlays
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import Group, GroupKind

SLIDING = GroupKind.SLIDING_WINDOW
WINDOW = single_group(SLIDING, 2, 2, 3, True, 6)
PAIR = Layout((Group(GroupKind.FULL_ATTENTION, 2), Group(SLIDING, 1, 3)), 5, False, 1)
LARGE = single_group(SLIDING, 2, 2, 3, False, 12)
UNITS = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 6)
WITH_MAMBA = Layout((Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 2)), 6, False, 2)
LOCAL, FINE = "local_prefix_is_the_longest", "fine_grained_hit_is_vouched_for"
LOOKUP, COMMON = "lookup_returns_longest_valid_hit", "common_hit_is_the_longest"
MASK, RETENTION = "mask_keeps_every_reachable_block", "retention_keeps_siblings"
JUNCTIONS = "retention_keeps_junctions"
TIER, STORED = "tier_hit_is_the_longest", "tier_keeps_every_reachable_block"
TIERS = {
    "store": PAIR,
    "chunks": replace(PAIR, blocks_per_chunk=1),
    "UMBP": replace(PAIR, beside_umbp=True),
}


class Answering:
    """A lookup whose answers are changed."""

    def __init__(self, lookup: Lookup, change: Any, whole: Any = None) -> None:
        self._lookup, self._change, self._whole = lookup, change, whole
        self.keys, self.inputs = lookup.keys, lookup.inputs

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        answer = self._lookup(pool, max_length)
        if self._whole is not None:
            return cast(LookupAnswer, self._whole(pool, answer))
        return replace(answer, hit_length=self._change(answer.hit_length))


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

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        found = super().registered(configuration, chunks, alone)
        return [held and block != self._leaves_out for block, held in enumerate(found)]

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        if self._leaves_out == -1:
            raise KeyError(num_tokens)
        return super().retained(configuration, num_tokens, interval)

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
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


class LessTier(ReferenceSubject):
    """The reference, whose tiers find nothing, or store nothing of the first group."""

    def __init__(self, finds: bool) -> None:
        super().__init__()
        self._finds = finds

    def tier_lookup(self, layout: Layout, local: int = 0) -> Lookup:
        lookup = super().tier_lookup(layout, local)
        return lookup if self._finds else Answering(lookup, lambda _: local)

    def tier_masks(self, layout: Layout) -> TierMasks:
        masks = super().tier_masks(layout)
        if self._finds:
            right = masks.stored
            masks.stored = lambda *step: ([], *right(*step)[1:])  # type: ignore[method-assign]  # the fault
        return masks

    def tier_plays(self, layout: Layout, num_tokens: int) -> TierPlays:
        plays = super().tier_plays(layout, num_tokens)
        if self._finds:
            right = plays.stored
            plays.stored = lambda ends: (set(), *right(ends)[1:])  # type: ignore[method-assign]  # the fault
        return plays


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("claim", [TIER, STORED])
def test_a_tier_that_serves_less_is_told(claim: str, tier: str) -> None:
    right, less = ReferenceSubject(), LessTier(finds=claim == STORED)
    layout = TIERS[tier]
    assert between(right, right, claim, layout) == []
    assert {each.effect for each in between(right, less, claim, layout)} >= {Effect.LOST}
    back = between(less, right, claim, layout)
    assert Effect.GAINED in {each.effect for each in back}
    assert Effect.LOST not in {each.effect for each in back}


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


def nulls(pool: Any, answer: LookupAnswer) -> LookupAnswer:
    """The first block of a table is the null block: a window further on does not read it."""
    return replace(answer, tables=[[pool.null_block, *table[1:]] for table in answer.tables])


def flags(pool: Any, answer: LookupAnswer) -> LookupAnswer:
    del pool
    return replace(answer, diverged=not answer.diverged)


def shorter(pool: Any, answer: LookupAnswer) -> LookupAnswer:
    del pool
    return replace(answer, hit_length=0, tables=[[] for _ in answer.tables])


class Changing(ReferenceSubject):
    """The reference, whose lookups of one kind answer something else in whole."""

    def __init__(self, method: str, whole: Any) -> None:
        super().__init__()
        inner = getattr(super(), method)
        setattr(self, method, lambda judged: Answering(inner(judged), None, whole))


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("claim", "judged", "method", "whole", "effect"),
    [
        (LOOKUP, LARGE, "lookup", nulls, Effect.TABLES),
        (LOOKUP, WINDOW, "lookup", nulls, Effect.TABLES),
        (COMMON, PAIR, "lookup", nulls, Effect.TABLES),
        (LOCAL, WITH_MAMBA, "connector_lookup", nulls, Effect.TABLES),
        (LOCAL, WITH_MAMBA, "connector_lookup", flags, Effect.CONNECTOR),
        (LOCAL, WITH_MAMBA, "connector_lookup", shorter, Effect.LOST),
        (FINE, UNITS, "fine_lookup", shorter, Effect.LOST),
        (FINE, UNITS, "fine_lookup", nulls, Effect.TABLES),
    ],
)
def test_tables_and_answers_for_connectors(
    claim: str, judged: Configuration | Layout, method: str, whole: Any, effect: Effect
) -> None:
    right, changed = ReferenceSubject(), Changing(method, whole)
    assert {change.effect for change in between(right, changed, claim, judged)} == {effect}
    back = {Effect.LOST: Effect.GAINED}.get(effect, effect)
    assert {change.effect for change in between(changed, right, claim, judged)} == {back}


class Serving(ReferenceSubject):
    """The reference without lookahead blocks: what it serves makes drafts wrong."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Configuration)
        plain = replace(judged, group=replace(judged.group, eagle=False))
        return super().lookup(plain)


def test_a_lookahead_block_that_is_not_asked_for_makes_drafts_wrong() -> None:
    right, changed = ReferenceSubject(), Serving()
    assert Effect.DRAFTS in {c.effect for c in between(right, changed, LOOKUP, WINDOW)}
    gone = {c.effect for c in between(changed, right, LOOKUP, WINDOW)}
    assert Effect.DRAFTS_GONE in gone
    assert Effect.UNSOUND not in gone


class Registering(ReferenceSubject):
    """The reference, which registers, stores or does not wait for something else."""

    def __init__(self, method: str, change: Any) -> None:
        super().__init__()
        inner = getattr(super(), method)
        setattr(self, method, lambda *given: change(inner(*given)))


@pytest.mark.parametrize(
    ("method", "change", "there", "back"),
    [
        ("registered", lambda held: [True] * len(held), Effect.WASTE, Effect.WASTE_GONE),
        ("stored", lambda held: [True] * len(held), Effect.WASTE, Effect.WASTE_GONE),
        ("stored", lambda held: [False] * len(held), Effect.LOST, Effect.GAINED),
        ("registered_when_final", lambda h: [True] * len(h), Effect.UNSOUND, Effect.SOUND),
    ],
)
def test_registrations(method: str, change: Any, there: Effect, back: Effect) -> None:
    right, changed = ReferenceSubject(), Registering(method, change)
    assert there in {c.effect for c in between(right, changed, MASK, WINDOW)}
    assert back in {c.effect for c in between(changed, right, MASK, WINDOW)}


def test_what_one_subject_was_not_asked_is_counted() -> None:
    _, facts = behaviour(ReferenceSubject(), MASK, WINDOW)
    assert unmatched(facts, facts) == 0
    assert unmatched(facts, facts[1:]) == unmatched(facts[1:], facts) == 1


def test_a_lookup_whose_answers_cannot_be_recorded_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, facts = behaviour(ReferenceSubject(), COMMON, PAIR)
    assert facts
    assert set(result.statuses.values()) == {Status.PROVED}

    def raising(error: Exception) -> Any:
        def explore(*_: object, **__: object) -> None:
            raise error

        return explore

    monkeypatch.setattr(answers, "explore", raising(Predates("the target is older")))
    result, facts = behaviour(ReferenceSubject(), COMMON, PAIR)
    assert not facts
    assert set(result.statuses.values()) == {Status.PROVED}
    monkeypatch.setattr(answers, "explore", raising(CannotJudge("it depends on the clock")))
    result, facts = behaviour(ReferenceSubject(), COMMON, PAIR)
    assert not facts
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert result.detail.endswith("cannot be recorded: it depends on the clock")


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
    # An interval that has to be refused is, by another exception.
    retained = {c.effect for c in between(right, changed, RETENTION, WINDOW)}
    assert retained == {Effect.CRASH, Effect.CRASHES}
    retained = {c.effect for c in between(changed, right, RETENTION, WINDOW)}
    assert retained == {Effect.FIXED, Effect.CRASHES}


def test_hits_are_recorded_for_every_cache_state_of_few_blocks() -> None:
    _, facts = behaviour(ReferenceSubject(), COMMON, PAIR)
    counts = {fact.given: len(fact.outcome) for fact in facts}
    assert all(
        len(set(answers.states_of(answers.LOOKUP, PAIR, given))) == n for given, n in counts.items()
    )
    assert 1 << (answers.FEW - 1) in counts.values()

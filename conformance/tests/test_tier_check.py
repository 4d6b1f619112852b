"""The checks of tiers, on the reference and on wrong tiers."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks
from hitproof.conformance.explain.story import ToldFinding, tell
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.findings.evidence import (
    Evidence,
    TierLookupEvidence,
    TierMaskEvidence,
    smallest,
)
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.reproduce.attempts import OutOfReach, Rules, attempts
from hitproof.conformance.scope.layouts import Layout, layouts, of_tiers
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import Predates
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.subject.tiers import TierMasks
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceSubject, ReferenceTierMasks
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.tiers import longest_tier_hit

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
KEPT, ONLY = "tier_keeps_every_reachable_block", "tier_keeps_only_reachable_blocks"
LONGEST, LOADS = "tier_hit_is_the_longest", "tier_loads_the_served_run"

DRAFTS = Layout((Group(FULL, 2), Group(SLIDING, 1, 3, eagle=True)), 6, True, 1)
FINE = Layout((Group(FULL, 1), Group(MAMBA, 2)), 4, False, 1)

OF_REFERENCE = faults(CASES / "reference.toml", reference_subject.__name__)
CHUNKS = OF_REFERENCE["chunks"]
TIERS_BROKEN = OF_REFERENCE["tier_lookups"] | OF_REFERENCE["tier_masks"] | CHUNKS

Masks = Sequence[Sequence[bool] | None]


class WithMasks(ReferenceSubject):
    """The reference with a tier that stores something else."""

    def __init__(self, change: Callable[[Masks], Masks]) -> None:
        super().__init__()
        self._change = change

    def tier_masks(self, layout: Layout) -> TierMasks:
        change = self._change

        class Changed(ReferenceTierMasks):
            def stored(self, start: int, end: int) -> Masks:
                return change(super().stored(start, end))

        return Changed(layout)


def judged(claim: str) -> list[Layout]:
    every = *layouts(Profile.QUICK), *of_tiers(Profile.QUICK)
    return [layout for layout in every if is_about(claim, layout)]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("claim", [KEPT, LONGEST])
def test_the_reference_conforms(claim: str) -> None:
    for layout in judged(claim):
        if layout.model and claim == LONGEST:
            continue  # takes long
        result = CHECKS[claim](ReferenceSubject(), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, (layout.describe(), result)
        assert result.paths


@pytest.mark.parametrize("name", TIERS_BROKEN)
def test_each_wrong_tier_is_found_shrunk_shown_and_told(name: str) -> None:
    fault, subject = TIERS_BROKEN[name], ReferenceSubject()
    claim, code = fault["claim"], fault["code"]
    for layout in judged(claim):
        if bool(layout.blocks_per_chunk) != (name in CHUNKS):
            continue
        with edited(fault):
            result = CHECKS[claim](subject, layout)
        found = smallest(result.evidence)
        if code not in {key.code for key in found if key.claim == claim}:
            continue
        assert result.statuses[claim] is Status.REFUTED
        evidence = next(e for key, e in found.items() if (key.claim, key.code) == (claim, code))
        assert isinstance(evidence, TierLookupEvidence | TierMaskEvidence)
        assert Evidence.from_json(evidence.as_json()) == evidence
        with edited(fault):
            small = shrink(subject, evidence)
        assert small.signature == evidence.signature
        assert small.size <= evidence.size
        shown = finding(small, "f:1")
        assert shown.sentence == CLAIMS[claim].sentence
        assert any("tier behind a KV connector" in line for line in shown.given)
        assert shown.strip
        assert tell(ToldFinding.model_validate(shown.as_json())).chapters
        return
    pytest.fail("not refuted")


def wrong_states(subject: Any, layout: Layout, max_length: int) -> set[tuple[frozenset[int], ...]]:
    """The sets of stored blocks at which the answer is not the spec's, by brute force."""
    lookup, policy = subject.tier_lookup(layout), subject.lookahead_horizon
    cap, horizon = layout.reach(max_length, policy)
    space = space_of(layout, lookup, max_length, policy)
    questions = sorted(set(space.keys.values()))
    wrong = set()
    for held in itertools.product((False, True), repeat=len(questions)):
        stored = frozenset(itertools.compress(questions, held))

        def holds(number: int, block: int, stored: frozenset[Any] = stored) -> bool:
            return (number, block) in stored

        due = longest_tier_hit(
            tuple(each.group for each in layout.looked_up),
            layout.alignment,
            cap,
            horizon,
            holds,
            lambda *_: False,
        )
        answer = replay(space, lookup, max_length, stored)
        assert isinstance(answer, LookupAnswer)
        if answer.hit_length != due:
            wrong.add(
                tuple(
                    frozenset(block for owner, block in stored if owner == number)
                    for number in range(len(layout.looked_up))
                )
            )
    return wrong


@pytest.mark.parametrize(
    "name", ["the lookahead dropped twice", "ends at a group without a hit", "one token more"]
)
def test_the_check_agrees_with_brute_force(name: str) -> None:
    layout, subject = replace(DRAFTS, num_tokens=4), ReferenceSubject()
    for how in (edited(TIERS_BROKEN[name]), nullcontext()):
        with how:
            wrong = {length: wrong_states(subject, layout, length) for length in layout.max_lengths}
            result = check_tier_lookup(subject, layout)
        assert bool(result.evidence) == any(wrong.values())
        for evidence in result.evidence:
            assert isinstance(evidence, TierLookupEvidence)
            assert evidence.cached in wrong[evidence.max_length]


def test_masks_are_judged_up_to_whole_runs_and_a_segment_more() -> None:
    result = check_tier_masks(ReferenceSubject(), DRAFTS)
    # Tail 2 and one lookahead block in segments of 2 blocks: 4 boundaries, of as many steps each.
    assert result.paths == 1 + 2 + 3 + 4 + 4 + 4


def test_layouts_with_hits_inside_blocks_settle_nothing() -> None:
    for check in (check_tier_lookup, check_tier_masks):
        assert check(ReferenceSubject(), FINE).statuses == {}
    assert not is_about(LONGEST, FINE)
    assert is_about(LONGEST, DRAFTS)


def test_a_group_that_is_taken_over_elsewhere_is_not_judged() -> None:
    layout = Layout((Group(FULL, 1), Group(MAMBA, 1)), 4, False, 1)

    for last, status in ((None, Status.PROVED), ([], Status.REFUTED)):
        subject = WithMasks(lambda right, last=last: [right[0], last])  # type: ignore[misc]
        assert check_tier_masks(subject, layout).statuses[KEPT] is status


def test_a_mask_for_another_number_of_groups_is_inconclusive() -> None:
    result = check_tier_masks(WithMasks(lambda right: right[:1]), DRAFTS)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "1 masks for 2 groups" in result.detail


def test_a_tier_that_keeps_state_is_inconclusive() -> None:
    calls = itertools.count()

    def forgets(right: Masks) -> Masks:
        return right if next(calls) < 11 else [[] for _ in right]

    result = check_tier_masks(WithMasks(forgets), DRAFTS)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "keeps state" in result.detail


def test_older_tiers_are_judged_by_what_they_have() -> None:
    class Old(ReferenceTierMasks):
        def asked_for(self, _: int) -> Masks:
            raise Predates("no masks of what is looked up")

    class OldTier(ReferenceSubject):
        def tier_masks(self, layout: Layout) -> TierMasks:
            return Old(layout)

    result = check_tier_masks(OldTier(), DRAFTS)
    assert set(result.statuses.values()) == {Status.PROVED}


def test_it_is_not_shown_on_a_whole_manager() -> None:
    rules = Rules(LookaheadHorizon.HASHED, ReferenceSubject.eagle_groups)
    for name in ("one token more", "stores every block"):
        claim, subject = TIERS_BROKEN[name]["claim"], ReferenceSubject()
        with edited(TIERS_BROKEN[name]):
            evidence = next(
                each for layout in judged(claim) for each in CHECKS[claim](subject, layout).evidence
            )
        with pytest.raises(OutOfReach, match="tier behind a KV connector"):
            list(attempts(evidence, rules))

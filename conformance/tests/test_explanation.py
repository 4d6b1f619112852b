"""Explanations: every fact is the spec's, and the sentences spell out its arithmetic."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.explanation import (
    Cache,
    Explanation,
    ExplanationError,
    Question,
    shortest_prompt,
    usual_hit,
)
from hitproof.conformance.explain.reasons import in_ranges, in_words
from hitproof.conformance.scope.layouts import Layout, hash_unit
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import longest_valid_hit, required_run, valid_hit
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import in_retained_mask

HASHED, CAPPED = LookaheadHorizon.HASHED, LookaheadHorizon.CAPPED
FULL = Group(GroupKind.FULL_ATTENTION, 64)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 16, 100)
LAYOUTS = {
    "window beside full attention": ((FULL, WINDOW), False),
    "every group drops": ((FULL, WINDOW), True),
    "one group drops": ((replace(FULL, eagle=True), WINDOW), True),
    "equal groups drop together": ((FULL, replace(WINDOW, eagle=True), WINDOW), True),
    "one window": ((Group(GroupKind.SLIDING_WINDOW, 4, 9),), True),
    "chunks": (
        (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.CHUNKED_LOCAL, 4, chunk=12)),
        False,
    ),
    "states": ((replace(FULL, eagle=True), Group(GroupKind.MAMBA, 32)), True),
    "opted out": ((FULL, replace(WINDOW, prefix_cacheable=False)), False),
}


def layout(name: str, num_tokens: int = 1) -> Layout:
    groups, use_eagle = LAYOUTS[name]
    return Layout(groups, num_tokens, use_eagle, hash_unit(groups))


def explained(
    name: str,
    num_tokens: int,
    *,
    hit: int | None = None,
    cache: Cache | None = None,
    retention: int | None = None,
    horizon: LookaheadHorizon = HASHED,
) -> Explanation:
    explanation = Explanation(Question(layout(name, num_tokens), horizon, retention, hit, cache))
    explanation.check()
    return explanation


def said(explanation: Explanation) -> str:
    reasons = [*explanation.reasons, *(r for each in explanation.groups for r in each.reasons)]
    assert all(reason.claim in CLAIMS for reason in reasons)
    return "\n".join(reason.text for reason in reasons)


@pytest.mark.parametrize("horizon", [HASHED, CAPPED])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_facts_are_the_specs(name: str, horizon: LookaheadHorizon) -> None:
    hit = usual_hit(layout(name))
    num_tokens = shortest_prompt(layout(name), horizon, hit) + 1
    explanation = explained(name, num_tokens, horizon=horizon)
    judged, reach = explanation.layout, explanation.reach
    everything = longest_valid_hit(judged.shared, judged.alignment, *reach, lambda *_: True)
    assert explanation.length == everything >= hit
    for each in explanation.groups:
        shape, size = each.looked_up.shape, each.looked_up.group.block_size
        assert each.required == required_run(shape, everything // size)
        assert each.num_blocks == num_tokens // size
        for block in range(each.num_blocks):
            assert (block in each.registered) == in_mask(shape, block)
    assert said(explanation)


@pytest.mark.parametrize("horizon", [HASHED, CAPPED])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_shortest_prompt_is_the_shortest(name: str, horizon: LookaheadHorizon) -> None:
    hit = usual_hit(layout(name))
    enough = shortest_prompt(layout(name), horizon, hit)
    assert explained(name, enough, horizon=horizon, hit=hit).length == hit
    with pytest.raises(ExplanationError, match=f"at least {enough} tokens"):
        explained(name, enough - 1, horizon=horizon, hit=hit)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_what_is_missing_is_missing(name: str, lost: int) -> None:
    judged = layout(name)
    num_tokens = shortest_prompt(judged, HASHED, 4 * usual_hit(judged))
    last = len(judged.groups) - 1
    blocks = range(num_tokens // judged.groups[last].block_size)
    cache = (*(None for _ in range(last)), frozenset(blocks) - {lost})
    explanation = explained(name, num_tokens, cache=cache)

    def cached(group: int, block: int) -> bool:
        return block in explanation.cached[group]

    reach = explanation.reach
    assert explanation.longest == longest_valid_hit(
        explanation.layout.shared, judged.alignment, *reach, cached
    )
    assert explanation.is_served
    assert [miss.length for miss in explanation.misses] == list(
        range(explanation.length + judged.alignment, explanation.resend + 1, judged.alignment)
    )
    for miss in explanation.misses:
        assert not all(cached(group, miss.block) for group in miss.group_ids)
        assert not valid_hit(
            explanation.layout.shared, judged.alignment, miss.length, *reach, cached
        )


def test_a_hit_that_is_asked_for_may_not_be_valid() -> None:
    explanation = explained("every group drops", 576, hit=512, cache=(None, frozenset({0})))
    assert explanation.is_served is False
    assert explanation.longest == 0
    assert [label for label, _ in explanation.groups[0].ends] == ["hit needs", "longest hit"]


@pytest.mark.parametrize("retention", [0, 128])
@pytest.mark.parametrize("name", ["every group drops", "states"])
def test_sparse_retention_registers_what_it_promises(name: str, retention: int) -> None:
    explanation = explained(name, 700, retention=retention)
    for each in explanation.groups:
        shape, size = each.looked_up.shape, each.looked_up.group.block_size
        replays = [explanation.resend // size, explanation.extension // size]
        every = retention // size or None
        assert each.registered == {
            b for b in range(each.num_blocks) if in_retained_mask(shape, b, replays, every)
        }
    assert explanation.groups[1].registered < explained(name, 700).groups[1].registered


def test_fine_hits_and_groups_that_opt_out_are_mentioned() -> None:
    assert "opts out" in said(explained("opted out", 200))
    groups = (Group(GroupKind.FULL_ATTENTION, 16), Group(GroupKind.MAMBA, 64))
    fine = Explanation(Question(Layout(groups, 200, False, 16), HASHED))
    assert "on any multiple of 16 tokens" in said(fine)


def test_a_prompt_may_be_too_short_for_a_hit() -> None:
    explanation = explained("every group drops", 10)
    assert explanation.length == 0
    assert [len(each.required) for each in explanation.groups] == [0, 0]
    assert "need" not in said(explanation)


@pytest.mark.parametrize("most", [1, 5, 8, 12, 36, 50])
def test_a_strip_is_cut_around_the_required_run(most: int) -> None:
    window = explained("every group drops", 576, hit=256).groups[1]
    shown = window.cut(most)
    assert len(shown) == min(most, window.num_blocks)
    assert set(shown) <= set(range(window.num_blocks))
    needed = set(window.required)
    assert needed <= set(shown) if most >= len(needed) else set(shown) <= needed


def test_blocks_in_words() -> None:
    assert in_ranges([3, 1, 2, 7]) == [(1, 3), (7, 7)]
    assert in_words([]) == "no block"
    assert in_words([4]) == "block 4"
    assert in_words([1, 2, 3, 7]) == "blocks 1 to 3, 7"
    assert in_words(range(0, 40, 2)) == "blocks 0, 2, 4, 6, 8, 14 more such runs, 38"

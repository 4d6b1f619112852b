"""Retention's promises against a brute-force oracle: run the lookup on what is kept."""

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitproof.spec.groups import ConfigurationError, Group, geometry
from hitproof.spec.hits import longest_valid_hit, required_run
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import (
    check_interval,
    hit_instead,
    in_retained_mask,
    junction_boundary,
    replay_boundary,
    resend_cap,
    serves_follow_ups,
    sibling_boundary,
)
from hitproof.spec.tests.token_level import CHUNKED, FULL, MAMBA, SLIDING, small_groups

KINDS = st.sampled_from([SLIDING, MAMBA])

Prompt: TypeAlias = tuple[Group, int, int, LookaheadHorizon]


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """A group, its alignment, a prompt's length and the policy of its release."""
    kind, size, segment = draw(KINDS), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    window = draw(st.integers(1, 12)) if kind is SLIDING else None
    eagle = draw(st.booleans())
    tokens = draw(st.integers(1, 40))
    policy = draw(st.sampled_from(list(LookaheadHorizon)))
    return Group(kind, size, window, eagle), size * segment, tokens, policy


def boundaries(group: Group, align: int, tokens: int, policy: LookaheadHorizon) -> list[int]:
    """The resend's and the extension's boundary, in blocks."""
    lookahead = geometry(group, align).lookahead * group.block_size
    resend = replay_boundary(tokens - 1, horizon(policy, tokens), lookahead, align)
    extension = replay_boundary(tokens, tokens, lookahead, align)
    return [resend // group.block_size, extension // group.block_size]


def hit(group: Group, align: int, cap: int, limit: int, kept: set[int]) -> int:
    return longest_valid_hit([group], align, cap, limit, lambda _, block: block in kept)


def replays_hit_what_dense_gives(prompt: Prompt, every: int | None) -> None:
    group, align, tokens, policy = prompt
    shape = geometry(group, align)
    replays = boundaries(*prompt)
    interval = None if every is None else every * shape.segment
    full = range(tokens // group.block_size)
    dense = {block for block in full if in_mask(shape, block)}
    sparse = {block for block in full if in_retained_mask(shape, block, replays, interval)}
    assert sparse <= dense
    peek = tokens if policy is LookaheadHorizon.HASHED else tokens - 1
    for cap, limit in ((tokens - 1, peek), (tokens, tokens)):
        given_dense = hit(group, align, cap, limit, dense)
        assert hit(group, align, cap, limit, sparse) == given_dense
        assert given_dense in {boundary * group.block_size for boundary in replays} | {0}


def no_kept_block_can_be_spared(prompt: Prompt) -> None:
    group, align, tokens, policy = prompt
    shape = geometry(group, align)
    replays = boundaries(*prompt)
    full = range(tokens // group.block_size)
    kept = {block for block in full if in_retained_mask(shape, block, replays)}
    peek = tokens if policy is LookaheadHorizon.HASHED else tokens - 1
    for block in kept:
        assert any(
            hit(group, align, cap, limit, kept - {block}) < hit(group, align, cap, limit, kept)
            for cap, limit in ((tokens - 1, peek), (tokens, tokens))
        )


def siblings_hit_at_least_the_rounded_hit(prompt: Prompt, every: int, shared: int) -> None:
    group, align, tokens, _ = prompt
    shape = geometry(group, align)
    common = range(min(shared, tokens) // group.block_size)
    dense = {block for block in common if in_mask(shape, block)}
    interval = every * shape.segment
    replays = boundaries(*prompt)
    sparse = {block for block in common if in_retained_mask(shape, block, replays, interval)}
    far = tokens + 2 * every * align  # past all that is held
    rounded = hit(group, align, far, far, dense) // (every * align) * (every * align)
    assert hit(group, align, far, far, sparse) >= rounded
    several = range(shape.tail + 1 + 3 * interval)  # runs
    alone = {block for block in several if in_retained_mask(shape, block, [0], interval)}
    sparser = geometry(group, every * align)
    assert alone == {block for block in several if in_mask(sparser, block)}
    for block in range(12):
        first = sibling_boundary(shape, block, interval)
        ends = [b + shape.lookahead for b in range(interval, 99, interval)]
        assert first + shape.lookahead == next(end for end in ends if block < end)


def small_prompts() -> Iterator[Prompt]:
    """Every small prompt of every small group that retention thins out."""
    for group in small_groups(2, 3):
        if group.kind in (SLIDING, MAMBA):
            for segment, tokens, policy in product((1, 2), range(1, 10), LookaheadHorizon):
                yield group, segment * group.block_size, tokens, policy


@given(prompts(), st.none() | st.integers(1, 4))
def test_replays_hit_what_dense_retention_gives(prompt: Prompt, every: int | None) -> None:
    replays_hit_what_dense_gives(prompt, every)


@given(prompts())
def test_no_kept_block_can_be_spared(prompt: Prompt) -> None:
    no_kept_block_can_be_spared(prompt)


@given(prompts(), st.integers(1, 4), st.integers(0, 40))
def test_siblings_hit_at_least_the_dense_hit_rounded_down(
    prompt: Prompt, every: int, shared: int
) -> None:
    siblings_hit_at_least_the_rounded_hit(prompt, every, shared)


def test_every_small_prompt_keeps_its_promises() -> None:
    for prompt in small_prompts():
        replays_hit_what_dense_gives(prompt, None)
        no_kept_block_can_be_spared(prompt)
        for every in (1, 2):
            replays_hit_what_dense_gives(prompt, every)
            siblings_hit_at_least_the_rounded_hit(prompt, every, prompt[2])


def test_kinds_that_are_not_thinned_out_stay_dense() -> None:
    for group in small_groups(2, 4):
        shape = geometry(group, 2 * group.block_size)
        kept = {block for block in range(10) if in_retained_mask(shape, block, [2])}
        if group.kind in (FULL, CHUNKED):
            assert kept == {block for block in range(10) if in_mask(shape, block)}
        else:
            assert kept == set(required_run(shape, 2))


def test_the_latest_boundary_keeps_one_run() -> None:
    shape = geometry(Group(SLIDING, 1, 3, eagle=True), 4)
    kept = [block for block in range(20) if in_retained_mask(shape, block, [8, 0])]
    assert kept == list(required_run(shape, 8)) == [6, 7, 8]


def test_how_far_a_resend_may_peek() -> None:
    for candidate in (None, 0, 4, 6):
        assert horizon(LookaheadHorizon.CAPPED, 7, candidate) == 6
        assert horizon(LookaheadHorizon.HASHED, 7, candidate) == 7
    assert horizon(LookaheadHorizon.CANDIDATE, 7) == 6
    assert horizon(LookaheadHorizon.CANDIDATE, 7, 4) == 4
    assert horizon(LookaheadHorizon.CANDIDATE, 7, 0) == 0


def a_third_request_hits_what_dense_retention_gives(prompt: Prompt, shared: int) -> None:
    """Two requests share ``shared`` tokens and nothing else, and so does a third with them."""
    group, align, tokens, policy = prompt
    shape = geometry(group, align)
    junction = junction_boundary(shared, shape.lookahead * group.block_size, align)
    kept_for_it = [*boundaries(*prompt), junction // group.block_size]
    common = range(shared // group.block_size)
    dense = {block for block in common if in_mask(shape, block)}
    sparse = {block for block in common if in_retained_mask(shape, block, kept_for_it)}
    for limit in (horizon(policy, tokens), tokens + 9):
        given_dense = hit(group, align, tokens - 1, limit, dense)
        if tokens > shared:
            assert hit(group, align, tokens - 1, limit, sparse) == given_dense
            if group.window != 1:  # which needs nothing from the cache, shared or not
                assert given_dense in (junction, 0)


def test_a_prefix_seen_shared_is_hit_again() -> None:
    for prompt in small_prompts():
        for shared in range(1, prompt[2]):
            # A hit of the junction asks for no token past what is shared.
            a_third_request_hits_what_dense_retention_gives(prompt, shared)


def test_what_follow_up_turns_can_hit_is_no_waste() -> None:
    """Block by block: what a hit past the extension's loses, given what is kept of the prompt."""
    for group, align, tokens, policy in small_prompts():
        shape = geometry(group, align)
        _, extension = boundaries(group, align, tokens, policy)
        computed = tokens // group.block_size
        for kept in ({0}, {1, 2}, {0, 1, 2, 3}):
            there = {block for block in range(20) if block in kept or block >= computed}
            for end in range(shape.segment, 9, shape.segment):
                run = set(required_run(shape, end))
                used = run if end > extension and run <= there else set()
                for block in range(9):
                    serves = serves_follow_ups(
                        shape, block, end, extension, computed, kept.__contains__
                    )
                    assert serves == (block in used)


def test_a_follow_up_turn_hits_no_less_than_an_extension() -> None:
    for group, align, tokens, policy in small_prompts():
        lookahead = geometry(group, align).lookahead * group.block_size
        _, extension = boundaries(group, align, tokens, policy)
        for computed in range(tokens, tokens + 9):
            follow_up = replay_boundary(computed, computed, lookahead, align)
            assert extension * group.block_size <= follow_up


def test_the_hit_that_is_left_is_the_longest_whose_run_is_kept() -> None:
    for group, align, tokens, policy in small_prompts():
        shape = geometry(group, align)
        for promised in boundaries(group, align, tokens, policy):
            for kept in ({1, 2}, {0, 1, 2, 3}, {3}, set(range(20)), set()):
                ends = [
                    end
                    for end in range(shape.segment, promised + 1, shape.segment)
                    if kept.issuperset(required_run(shape, end))
                ]
                assert hit_instead(shape, promised, kept.__contains__) == max(ends, default=0)


def test_no_replay_of_a_prompt_too_short_for_its_lookahead() -> None:
    assert replay_boundary(1, 2, 5, 1) == 0


def test_intervals_fall_on_boundaries_or_are_refused() -> None:
    for interval in (None, 0, 4, 8):
        check_interval(interval, 4)
    for interval, aligned in ((-4, 4), (2, 4), (6, 4), (1, 4), (-1, 1)):
        with pytest.raises(ConfigurationError, match="multiple of the alignment"):
            check_interval(interval, aligned)


def test_a_resend_computes_anew_what_its_hashes_do_not_reach() -> None:
    """Its last token in any case; with hashes that look ahead, as many tokens as these look."""
    assert [resend_cap(20, ahead) for ahead in range(4)] == [19, 19, 18, 17]

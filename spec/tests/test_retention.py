"""Retention's promises against a brute-force oracle: run the lookup on what is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.groups import ConfigurationError, Group, GroupKind, geometry
from spec.hits import longest_valid_hit, required_run
from spec.mask import in_mask
from spec.retention import (
    LookaheadHorizon,
    check_interval,
    horizon,
    in_retained_mask,
    replay_boundary,
)

KINDS = st.sampled_from([GroupKind.SLIDING_WINDOW, GroupKind.MAMBA])


@st.composite
def prompts(draw: st.DrawFn) -> tuple[Group, int, int, LookaheadHorizon]:
    """A group, its alignment, a prompt's length and the policy of its release."""
    kind, size, segment = draw(KINDS), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    window = draw(st.integers(1, 12)) if kind is GroupKind.SLIDING_WINDOW else None
    eagle = draw(st.booleans())
    tokens = draw(st.integers(1, 40))
    policy = draw(st.sampled_from(list(LookaheadHorizon)))
    return Group(kind, size, window, eagle), size * segment, tokens, policy


def boundaries(
    group: Group, align: int, tokens: int, policy: LookaheadHorizon
) -> tuple[list[int], int]:
    """The resend's and the extension's boundary in blocks, and the lookahead in tokens."""
    lookahead = geometry(group, align).lookahead * group.block_size
    resend = replay_boundary(tokens - 1, horizon(policy, tokens), lookahead, align)
    extension = replay_boundary(tokens, tokens, lookahead, align)
    return [resend // group.block_size, extension // group.block_size], lookahead


def hit(group: Group, align: int, cap: int, limit: int, kept: set[int]) -> int:
    return longest_valid_hit([group], align, cap, limit, lambda _, block: block in kept)


@given(prompts(), st.none() | st.integers(1, 4))
def test_replays_hit_what_dense_retention_gives(
    prompt: tuple[Group, int, int, LookaheadHorizon], every: int | None
) -> None:
    group, align, tokens, policy = prompt
    shape = geometry(group, align)
    replays, _ = boundaries(*prompt)
    interval = None if every is None else every * shape.segment
    full = range(tokens // group.block_size)
    dense = {block for block in full if in_mask(shape, block)}
    sparse = {block for block in full if in_retained_mask(shape, block, replays, interval)}
    assert sparse <= dense
    for cap, limit in ((tokens - 1, horizon(policy, tokens)), (tokens, tokens)):
        given_dense = hit(group, align, cap, limit, dense)
        assert hit(group, align, cap, limit, sparse) == given_dense
        assert given_dense in {boundary * group.block_size for boundary in replays} | {0}


@given(prompts())
def test_no_kept_block_can_be_spared(prompt: tuple[Group, int, int, LookaheadHorizon]) -> None:
    group, align, tokens, policy = prompt
    shape = geometry(group, align)
    replays, _ = boundaries(*prompt)
    full = range(tokens // group.block_size)
    kept = {block for block in full if in_retained_mask(shape, block, replays)}
    for block in kept:
        losses = [
            hit(group, align, cap, limit, kept - {block}) < hit(group, align, cap, limit, kept)
            for cap, limit in ((tokens - 1, horizon(policy, tokens)), (tokens, tokens))
        ]
        assert any(losses)


@given(prompts(), st.integers(1, 4), st.integers(0, 40))
def test_siblings_hit_at_least_the_dense_hit_rounded_down(
    prompt: tuple[Group, int, int, LookaheadHorizon], every: int, shared: int
) -> None:
    group, align, tokens, _ = prompt
    shape = geometry(group, align)
    replays, _ = boundaries(*prompt)
    common = range(min(shared, tokens) // group.block_size)
    dense = {block for block in common if in_mask(shape, block)}
    interval = every * shape.segment
    sparse = {block for block in common if in_retained_mask(shape, block, replays, interval)}
    rounded = hit(group, align, 100, 100, dense) // (every * align) * (every * align)
    assert hit(group, align, 100, 100, sparse) >= rounded


def test_kinds_that_are_not_thinned_out_stay_dense() -> None:
    shape = geometry(Group(GroupKind.FULL_ATTENTION, 2), 4)
    assert all(in_retained_mask(shape, block, [2]) for block in range(10))


def test_the_latest_boundary_keeps_one_run() -> None:
    shape = geometry(Group(GroupKind.SLIDING_WINDOW, 1, 3, eagle=True), 4)
    kept = [block for block in range(20) if in_retained_mask(shape, block, [8, 0])]
    assert kept == list(required_run(shape, 8)) == [6, 7, 8]


@pytest.mark.parametrize("interval", [None, 0, 4, 8])
def test_intervals_that_boundaries_fall_on(interval: int | None) -> None:
    check_interval(interval, 4)


@pytest.mark.parametrize("interval", [-4, 2, 6])
def test_other_intervals_are_refused(interval: int) -> None:
    with pytest.raises(ConfigurationError, match="multiple of the alignment"):
        check_interval(interval, 4)

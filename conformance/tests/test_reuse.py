"""What requests hit at best, and each part that can cost hits, on caches that lack something."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.reuse import (
    Before,
    CacheSetup,
    Kept,
    Part,
    Reuse,
    Shortfall,
    shortfall,
)
from hitproof.conformance.findings.meaning import Code
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 16)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 16, 32)
HYBRID = CacheSetup((FULL, WINDOW), 16, 16)
MAMBA = CacheSetup((Group(GroupKind.MAMBA, 64), Group(GroupKind.FULL_ATTENTION, 64)), 64, 64)
FINE = replace(MAMBA, hash_block_size=16)
DRAFTS = CacheSetup((replace(FULL, eagle=True),), 16, 16, use_eagle=True)
PROMPT = 100


def before(setup: CacheSetup, *missing: tuple[int, int], ends: tuple[int, ...] = ()) -> Before:
    """Everything of the prompt is cached, but for some blocks, or hash units, of groups."""
    kept = []
    for index, group in enumerate(setup.groups):
        size = setup.hash_block_size if setup.fine else group.block_size
        held = frozenset(i for i in range(PROMPT // size) if (index, i) not in missing)
        kept.append(Kept(held, held))
    return Before(tuple(kept), frozenset(ends), 10)


def lost(
    setup: CacheSetup, hit: int, state: Before, reuse: Reuse = Reuse.RESEND
) -> Shortfall | None:
    best = setup.best_hit(PROMPT - 1, PROMPT)
    return shortfall(setup, reuse, PROMPT - 1, hit, best, state)


@pytest.mark.parametrize(
    ("setup", "cap", "shared", "best"),
    [
        (HYBRID, 99, 100, 96),
        (HYBRID, 95, 96, 80),
        (MAMBA, 99, 100, 64),
        (FINE, 99, 100, 96),
        (DRAFTS, 99, 100, 80),
        (replace(DRAFTS, hash_lookahead=1), 99, 100, 96),
        (replace(DRAFTS, hash_lookahead=1), 99, 96, 80),
    ],
)
def test_the_best_hit(setup: CacheSetup, cap: int, shared: int, best: int) -> None:
    assert setup.best_hit(cap, shared) == best


@pytest.mark.parametrize("setup", [HYBRID, MAMBA, FINE, DRAFTS])
def test_the_shortest_prompt_is_the_first_with_a_hit(setup: CacheSetup) -> None:
    shortest = setup.shortest_prompt()
    assert setup.best_hit(shortest - 1, shortest) > 0
    assert setup.best_hit(shortest - 2, shortest - 1) == 0


@pytest.mark.parametrize("setup", [HYBRID, MAMBA, FINE, DRAFTS])
def test_the_best_hit_has_no_shortfall(setup: CacheSetup) -> None:
    assert lost(setup, setup.best_hit(PROMPT - 1, PROMPT), before(setup)) is None


@pytest.mark.parametrize(
    ("setup", "hit", "state", "part", "code", "group"),
    [
        (replace(HYBRID, caching=False), 0, before(HYBRID), Part.CONFIGURATION, None, None),
        (HYBRID, 64, before(HYBRID), Part.LOOKUP, Code.AGREED_HIT_TOO_SHORT, None),
        (
            replace(HYBRID, groups=(FULL,)),
            64,
            before(HYBRID),
            Part.LOOKUP,
            Code.HIT_TOO_SHORT,
            None,
        ),
        (FINE, 64, before(FINE, ends=(96, 80)), Part.LOOKUP, Code.FINE_HIT_TOO_SHORT, None),
        (HYBRID, 64, before(HYBRID, (1, 5)), Part.MASK, Code.TAIL_BLOCK_UNREGISTERED, 1),
        (HYBRID, 0, before(HYBRID, (0, 0)), Part.MASK, Code.PREFIX_BLOCK_UNREGISTERED, 0),
        (
            replace(HYBRID, retention=0),
            80,
            before(HYBRID, (1, 5)),
            Part.RETENTION,
            Code.PROMISED_HIT_LOST,
            1,
        ),
        (replace(HYBRID, num_blocks=9), 80, before(HYBRID, (1, 5)), Part.POOL, None, 1),
        (MAMBA, 0, before(MAMBA, (0, 0)), Part.CHUNKS, Code.PROMISED_HIT_MISSED, 0),
        (MAMBA, 0, before(MAMBA, (0, 0), ends=(64,)), Part.MASK, Code.STATE_BLOCK_UNREGISTERED, 0),
        (
            replace(MAMBA, states_at_steps=False),
            0,
            before(MAMBA, (0, 0)),
            Part.MASK,
            Code.STATE_BLOCK_UNREGISTERED,
            0,
        ),
        (DRAFTS, 64, before(DRAFTS, (0, 5)), Part.MASK, Code.LOOKAHEAD_BLOCK_UNREGISTERED, 0),
    ],
)
def test_each_part(
    setup: CacheSetup, hit: int, state: Before, part: Part, code: Code | None, group: int | None
) -> None:
    found = lost(setup, hit, state)
    assert found is not None
    assert (found.part, found.code, found.group) == (part, code, group)


def test_a_lookahead_block_past_the_cap_is_a_policy() -> None:
    prompt = 96
    best = DRAFTS.best_hit(prompt - 1, prompt)
    found = shortfall(DRAFTS, Reuse.RESEND, prompt - 1, best - 16, best, before(DRAFTS))
    assert found is not None
    assert (found.part, found.code) == (Part.LOOKUP, None)
    assert "lookahead_horizon" in found.sentence


def test_nobody_promises_the_first_sibling_anything_of_states() -> None:
    found = lost(MAMBA, 0, before(MAMBA, (0, 0)), Reuse.SIBLING)
    assert found is not None
    assert (found.part, found.code) == (Part.CHUNKS, None)


def test_several_parts_are_all_named() -> None:
    state = before(HYBRID, (1, 5), (1, 4), (1, 3), ends=(96,))
    found = lost(replace(HYBRID, retention=0), 0, state)
    assert found is not None
    assert found.part is Part.RETENTION
    assert "lookup does not find" in found.sentence

"""What a tier does not serve has a cause: of a broken tier, the part that is broken."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.reuse import CacheSetup, Part, Reuse
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.simulation.bounds import Bound
from hitproof.conformance.simulation.causes import Cause, fault_codes, losses
from hitproof.conformance.simulation.player import Served
from hitproof.conformance.simulation.tiers import Stored, TierSetup, tier_levels, tier_shortfall
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon

FULL = Group(GroupKind.FULL_ATTENTION, 16)
STATES = Group(GroupKind.MAMBA, 64)
PROMPT, CAP, BEST = 256, 319, 256
EVERY = Stored((frozenset(range(4)), frozenset(range(4))), frozenset((0, 256)), PROMPT, 300, True)


def tier_of(
    *groups: Group, chunk: int = 4, eagle: bool = False, room: int | None = None
) -> TierSetup:
    layout = Layout(groups, 4096, eagle, 16, blocks_per_chunk=chunk)
    return TierSetup("it", layout, LookaheadHorizon.HASHED, room, None)


def without(chunk: int) -> Stored:
    return replace(EVERY, chunks=(EVERY.chunks[0] - {chunk}, EVERY.chunks[1]))


ONE = tier_of(FULL)
DRAFTING = tier_of(replace(FULL, eagle=True), eagle=True)
STATEFUL = tier_of(FULL, STATES, chunk=1)
ALL_BLOCKS = replace(EVERY, chunks=(frozenset(range(16)), frozenset()))


@pytest.mark.parametrize(
    ("tier", "shared", "hit", "best", "before", "part", "code"),
    [
        (ONE, 256, 192, 256, EVERY, Part.TIER_LOOKUP, Code.TIER_HIT_TOO_SHORT),
        (ONE, 256, 192, 256, without(3), Part.TIER_STORE, Code.TIER_BLOCK_LEFT_OUT),
        (ONE, 272, 256, 272, EVERY, Part.TIER_UNIT, None),
        (DRAFTING, 256, 192, 240, EVERY, Part.TIER_UNIT, None),
        (replace(ONE, room=2), 256, 128, 256, without(2), Part.TIER_ROOM, None),
        (replace(ONE, settled=False), 256, 192, 256, without(3), Part.TIER_STORE, None),
        (ONE, 256, 192, 256, replace(without(3), prompt=250, sampled=False), Part.TIER_STORE, None),
        (STATEFUL, 192, 0, 192, ALL_BLOCKS, Part.CHUNKS, None),
        (
            replace(STATEFUL, retention=0), 256, 0, 256, ALL_BLOCKS, Part.RETENTION, None,
        ),
    ],
)  # fmt: skip
def test_the_part_is_named(
    tier: TierSetup, shared: int, hit: int, best: int, before: Stored, part: Part, code: Code | None
) -> None:
    found = tier_shortfall(tier, Reuse.RESEND, CAP, shared, hit, best, before)
    assert found is not None
    assert (found.part, found.code) == (part, code)


def test_nothing_is_lost_by_a_tier_that_serves_all() -> None:
    assert tier_shortfall(ONE, Reuse.RESEND, CAP, 256, 256, BEST, EVERY) is None
    assert ONE.serves(CAP, 255) == 192


def test_nobody_promises_what_only_a_first_sibling_hits() -> None:
    found = tier_shortfall(ONE, Reuse.SIBLING, CAP, 256, 192, BEST, without(3))
    assert found is not None
    assert found.code is None


def test_what_several_parts_lose_is_told_of_each() -> None:
    found = tier_shortfall(ONE, Reuse.RESEND, CAP, 272, 0, 272, without(3))
    assert found is not None
    assert found.part is Part.TIER_LOOKUP
    for said in ("multiples of 64 tokens", "lacks tokens 192 to 255", "a hit of 192 tokens"):
        assert said in found.sentence


# --- of simulations

SETUP = CacheSetup((FULL,), 16, 16)


@pytest.mark.parametrize(
    ("tier", "stored", "ever", "hit", "prompt", "cause", "code"),
    [
        (ONE, 4, 4, 256, 256, None, None),
        (ONE, 4, 4, 128, 256, Cause.FAULT, None),
        (ONE, 2, 4, 128, 256, Cause.TIER_ROOM, None),
        (ONE, 2, 2, 128, 256, Cause.FAULT, Code.TIER_BLOCK_LEFT_OUT),
        (ONE, 2, 2, 128, 150, Cause.TIER_STORE, None),
        (replace(ONE, settled=False), 2, 2, 128, 256, Cause.TIER_STORE, None),
        (replace(ONE, room=3), 2, 2, 128, 256, Cause.TIER_ROOM, None),
        (DRAFTING, 4, 4, 192, 256, Cause.TIER_UNIT, None),
    ],
)
def test_each_lost_token_has_one_cause(
    tier: TierSetup,
    stored: int,
    ever: int,
    hit: int,
    prompt: int,
    cause: Cause | None,
    code: Code | None,
) -> None:
    levels, found = tier_levels(
        tier, CAP, 256, 0, [set(range(stored))], [set(range(ever))], prompt, 300
    )
    assert found == code
    served = Served(1, hit, hit, horizon=1 << 40, tier={"levels": levels, "code": found or ""})
    bound = Bound(SETUP, CAP, 256, 256, 256, 0, 0, 0)
    lost = losses(bound, served, None)
    assert sum(lost.values()) == 256 - hit
    assert set(lost) == ({cause} if cause else set())
    assert set(fault_codes([served])) == ({code} if code else set())


def test_what_is_local_needs_no_tier() -> None:
    levels, _ = tier_levels(ONE, CAP, 256, 192, [{3}], [{3}], 256, 300)
    assert [to for _, to in levels] == [256, 256, 256]

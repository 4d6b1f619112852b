"""Lockstep finds every fault that a manager has, says which, and has none of its own."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hitproof.conformance.emulation.managers import EmulatedManager
from hitproof.conformance.emulation.releases import (
    SPEC,
    VLLM_0_23,
    VLLM_0_26,
    FreeOrder,
    Policies,
    ReplayPolicy,
)
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    Load,
    Loaded,
    RequestInput,
    Schedule,
)
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.lockstep.outcome import Outcome
from hitproof.conformance.lockstep.playing import run
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests.broken_managers import (
    Broken,
    Crashes,
    EvictsNothing,
    Forgets,
    KeepsOneBlock,
    MiscountsHits,
    ResetsInUse,
    ShorterHit,
    Wrapped,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import Junctions

REFERENCE = ReferenceManagers()
EMULATED = ReferenceManagers(manager_class=partial(EmulatedManager, SPEC))
HISTORIES = 40


def outcome(number: int, real: Any, reference: Any = REFERENCE) -> Outcome:
    return run(history(f"test:{number}"), real, reference, JudgedPolicies(horizon=SPEC.horizon))


def shown(found: Outcome) -> list[str]:
    """What an outcome shows, in words."""
    words = [f"{f.signature.divergence}: {f.signature.defect}" for f in found.findings]
    return words + ([f"fault: {found.fault.field}"] if found.fault else [])


@pytest.mark.parametrize("real", [REFERENCE, EMULATED], ids=["itself", "emulated"])
def test_the_reference_is_in_lockstep_with_itself(real: ReferenceManagers) -> None:
    for number in range(HISTORIES):
        found = outcome(number, real)
        assert shown(found) == []
        assert found.steps == len(history(f"test:{number}").steps)


FAULTS: list[tuple[type[Wrapped], str]] = [
    (ShorterHit, f"{Divergence.LOST_HIT}: "),
    (Forgets, f"{Divergence.LOST_HIT}: prefix-block-unregistered"),
    (Crashes, f"{Divergence.CRASH}: raises-exception(error=AssertionError, message="),
    (MiscountsHits, f"{Divergence.POLICY_CHANGE}: lockstep-difference(field=stats"),
    (ResetsInUse, f"{Divergence.POLICY_CHANGE}: lockstep-difference(field=answer"),
    (KeepsOneBlock, f"{Divergence.WASTE}: allocation-refused"),
    (EvictsNothing, f"{Divergence.POLICY_CHANGE}: lockstep-difference(field=cached"),
]


@pytest.mark.parametrize(("broken", "words"), FAULTS, ids=[b.__name__ for b, _ in FAULTS])
def test_a_broken_manager_is_caught(broken: type[Wrapped], words: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        seen.update(shown(outcome(number, Broken(broken))))
    kind, _, patterns = words.partition(": ")
    wanted = [f"{kind}: {pattern}" for pattern in patterns.split("|")]
    assert any(text.startswith(w) for text in seen for w in wanted), seen


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("broken", [b for b, _ in FAULTS], ids=[b.__name__ for b, _ in FAULTS])
def test_a_broken_reference_is_caught(broken: type[Wrapped]) -> None:
    """Nothing is wrong with the real manager, so it is never blamed for breaking a claim."""
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        found = outcome(number, REFERENCE, Broken(broken))
        for finding in found.findings:
            assert finding.signature.divergence == Divergence.POLICY_CHANGE
        seen.update(shown(found))
    assert seen


@pytest.mark.parametrize(
    ("policies", "field"),
    [
        (replace(SPEC, free_order=FreeOrder.APPENDED), "lockstep-difference(field=free_queue"),
        (replace(SPEC, thinned_kinds=frozenset()), "waste"),
        (VLLM_0_23, "waste"),
    ],
)
def test_another_policy_is_noticed(policies: Policies, field: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        seen.update(shown(outcome(number, ReferenceManagers(policies))))
    assert any(field in text for text in seen), seen


def test_lockstep_goes_on_after_a_lost_hit_and_after_waste() -> None:
    for number in range(HISTORIES):
        found = outcome(number, Broken(ShorterHit))
        assert found.fault is None
        # A shorter hit whose own run is not cached is more than lost.
        unsound = any(f.signature.divergence == Divergence.UNSOUND for f in found.findings)
        assert unsound or found.steps == len(history(f"test:{number}").steps)
        wasteful = outcome(number, ReferenceManagers(replace(SPEC, thinned_kinds=frozenset())))
        assert wasteful.fault is None
        assert wasteful.steps == len(history(f"test:{number}").steps)
        assert all(finding.resynchronised for finding in wasteful.findings)


def test_a_finding_shrinks_to_a_few_steps() -> None:
    broken = Broken(ShorterHit)

    def shows(candidate: Any) -> bool:
        found = run(candidate, broken, REFERENCE, JudgedPolicies(horizon=LookaheadHorizon.HASHED))
        return any(f.signature.divergence == Divergence.LOST_HIT for f in found.findings)

    large = next(h for h in map(history, range(200)) if len(h.engine.groups) > 1 and shows(h))
    small = shrink(large, shows)
    assert shows(small)
    assert len(small.engine.groups) == 1
    assert len(small.steps) <= 4
    assert sum(len(request.token_ids) for request in small.requests.values()) <= 12
    assert small.engine.groups[0].block_size == 1


def test_a_release_that_keeps_no_shared_prefix_may_keep_its_blocks() -> None:
    """Nothing was hit of ``a``, whose first block is not kept, so ``b`` shares 4 tokens unseen."""
    groups = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.SLIDING_WINDOW, 4, window=2))
    engine = EngineConfiguration(groups, 9, 4, 13, use_eagle=True, retention_interval=8)
    requests = {"a": RequestInput(tuple(range(8))), "b": RequestInput(tuple(range(13)))}
    steps = (Load("a", 8), Loaded("a"), Finish("a"), Schedule("b"))
    keeps, keeps_none = (
        ReferenceManagers(replace(VLLM_0_26, junctions=junctions, replays=ReplayPolicy.PROMISED))
        for junctions in (True, False)
    )
    for junctions, fault in ((Junctions.DROPPED, False), (Junctions.KEPT, True)):
        judged = JudgedPolicies(horizon=VLLM_0_26.horizon, junctions=junctions)
        found = run(History(engine, requests, steps), keeps, keeps_none, judged)
        assert not found.findings
        assert bool(found.fault) is fault

"""The check of agreement: nothing on the reference, and each fault found."""

import json
from collections.abc import Callable

import pytest

from hitproof.conformance.checks.agreement import CLAIMS, check_agreement, is_in_grid
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.emulation.releases import VLLM_0_32
from hitproof.conformance.findings.evidence import AgreementEvidence, Evidence, smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.reproduce.attempts import Rules
from hitproof.conformance.reproduce.reproduction import reproduce
from hitproof.conformance.scope.layouts import Layout, hash_unit, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.managers import Allocation, Hit, Manager, Tables
from hitproof.conformance.tests.broken_managers import EvictsNothing, ShorterHit, StaleHit, Wrapped
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import Group, GroupKind

FULL, SLIDING = Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.SLIDING_WINDOW, 1, 3)
PAIR = Layout((FULL, SLIDING), 8, False, 1)
DRAFTING = Layout((FULL, SLIDING), 8, True, 1)
REFUTED = frozenset(CLAIMS.values())
"""What each fault below refutes."""
RULES = Rules(ReferenceSubject.lookahead_horizon, ReferenceSubject.eagle_groups)


class Subject(ReferenceSubject):
    """The reference with its manager wrapped."""

    def __init__(self, wrap: Callable[[ReferenceManager], Manager]) -> None:
        super().__init__()
        self._wrap = wrap

    def manager(self, engine: EngineConfiguration) -> Manager:
        return self._wrap(ReferenceManagers().start(engine))

    def start(self, engine: EngineConfiguration) -> Manager:
        return self.manager(engine)


class ForgetsOneGroup(Wrapped):
    """Registers the last block of each chunk in all groups but the last."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        keys = self.inner.block_keys(name, len(self.inner._engine.groups) - 1)
        group = len(self.inner._engine.groups) - 1
        cached = [n for n, key in enumerate(keys) if self.inner.cached_blocks(group, key)]
        for last in cached[-1:]:
            self.inner.evict_blocks(self.inner.cached_blocks(group, keys[last]))
        return tables


class Raises(Wrapped):
    """Has no answer when there is a hit."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        if hit.length:
            raise KeyError(name)
        return hit


class Thrifty(ReferenceSubject):
    """The reference with what vLLM 0.32 promises to those that come back."""

    def manager(self, engine: EngineConfiguration) -> Manager:
        return ReferenceManagers(VLLM_0_32).start(engine)


@pytest.mark.parametrize(
    "profile", [Profile.QUICK, pytest.param(Profile.DEFAULT, marks=pytest.mark.slow)]
)
def test_the_reference_conforms(profile: Profile) -> None:
    judged = [layout for layout in layouts(profile) if is_in_grid(layout)]
    for layout in judged:
        result = check_agreement(ReferenceSubject(), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, layout.describe()
        thinned = any(g.kind in (GroupKind.SLIDING_WINDOW, GroupKind.MAMBA) for g in layout.groups)
        assert len(result.statuses) == (3 if thinned else 1)
    kinds = {frozenset(group.kind for group in layout.groups) for layout in judged}
    assert {kind for of in kinds for kind in of} == set(GroupKind)
    assert {len(layout.groups) for layout in judged} == {1, 2}


@pytest.mark.parametrize("layout", [PAIR, DRAFTING])
@pytest.mark.parametrize(
    ("wrap", "divergence", "code"),
    [
        (ShorterHit, Divergence.LOST_HIT, Code.AGREED_HIT_TOO_SHORT),
        (ForgetsOneGroup, Divergence.LOST_HIT, Code.AGREED_HIT_TOO_SHORT),
        (EvictsNothing, Divergence.UNSOUND, Code.AGREED_HIT_TOO_LONG),
        (StaleHit, Divergence.UNSOUND, Code.AGREED_HIT_TOO_LONG),
        (Raises, Divergence.CRASH, Code.RAISES_EXCEPTION),
    ],
)
def test_each_fault_is_found_and_shown(
    wrap: Callable[[ReferenceManager], Manager], divergence: Divergence, code: Code, layout: Layout
) -> None:
    subject = Subject(wrap)
    result = check_agreement(subject, layout)
    assert result.statuses == dict.fromkeys(REFUTED, Status.REFUTED)
    found = [
        e
        for e in result.evidence
        if (e.signature.divergence, e.signature.code) == (divergence, code)
    ]
    assert {evidence.signature.claim for evidence in found} == set(CLAIMS.values())
    assert result.footprints.keys() == {evidence.signature for evidence in result.evidence}
    for evidence in found:
        assert isinstance(evidence, AgreementEvidence)
        assert shrink(subject, evidence) is evidence
        assert Evidence.from_json(json.loads(json.dumps(evidence.as_json()))) == evidence
        shown = finding(evidence, "")
        assert "prompt, computed" in " ".join(shown.given)
        assert reproduce(evidence, subject, RULES).history == evidence.history
        assert reproduce(evidence, Subject(Wrapped), RULES).history is None


def test_what_is_not_promised_is_found_where_blocks_are_left_out() -> None:
    result = check_agreement(Thrifty(), PAIR)
    assert result.statuses == {
        CLAIMS["dense"]: Status.PROVED,
        CLAIMS["interval"]: Status.REFUTED,
        CLAIMS["latest"]: Status.REFUTED,
    }
    assert {e.signature.divergence for e in result.evidence} == {Divergence.LOST_HIT}
    assert smallest(result.evidence).keys() == {e.signature for e in result.evidence}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CannotJudge("there is no manager"), Status.INCONCLUSIVE),
        (Predates("the target is older"), Status.NOT_APPLICABLE),
    ],
)
def test_what_cannot_be_judged(error: Exception, status: Status) -> None:
    class Refuses(ReferenceSubject):
        def manager(self, engine: EngineConfiguration) -> Manager:
            if engine.retention_interval is None:
                return super().manager(engine)
            raise error

    statuses = check_agreement(Refuses(), PAIR).statuses
    assert statuses.pop(CLAIMS["dense"]) is Status.PROVED
    assert set(statuses.values()) == {status}


def test_hits_inside_blocks_are_not_judged() -> None:
    groups = Group(GroupKind.FULL_ATTENTION, 1), Group(GroupKind.MAMBA, 2)
    result = check_agreement(ReferenceSubject(), Layout(groups, 8, False, hash_unit(groups)))
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "inside blocks" in result.detail

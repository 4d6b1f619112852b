"""The families: the reference passes them, broken managers do not, and all is looked up."""

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.schema import Evict, Lookup
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests import broken_managers as broken
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind

FAMILIES = series("families")


def test_the_reference_passes() -> None:
    served = set()
    for history in FAMILIES[::3]:
        outcome = replay(history, ReferenceManagers())
        assert outcome.findings == []
        assert not any(told.startswith("no space") for told in outcome.steps)
        served |= {lookup.served // history.engine.alignment for lookup in outcome.lookups}
    assert served >= {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("manager", "divergence"),
    [
        (broken.ShorterHit, Divergence.LOST_HIT),
        (broken.StaleHit, Divergence.UNSOUND),
        (broken.Forgets, Divergence.LOST_HIT),
        (broken.EvictsNothing, Divergence.UNSOUND),
    ],
)
def test_a_broken_manager_is_caught(manager: type[broken.Wrapped], divergence: Divergence) -> None:
    outcomes = [replay(history, broken.Broken(manager)) for history in FAMILIES[::12]]
    caught = [
        divergence in {finding.signature.divergence for finding in outcome.findings}
        for outcome in outcomes
    ]
    # Under retention some histories evict what was never registered.
    assert sum(caught) > len(caught) / 2


def test_every_kind_and_every_policy_is_there() -> None:
    found = [history.engine for history in FAMILIES]
    assert {group.kind for engine in found for group in engine.groups} == set(GroupKind)
    assert {engine.use_eagle for engine in found} == {True, False}
    assert any(group.eagle for engine in found for group in engine.groups)
    assert {engine.retention_interval is None for engine in found} == {True, False}
    assert len(set(found)) == len(found)


def test_every_request_is_looked_up_and_blocks_are_missing_in_every_group() -> None:
    for history in FAMILIES:
        looked_up = {step.request for step in history.steps if isinstance(step, Lookup)}
        assert looked_up == history.requests.keys() - {"producer"}
    missing = {step.group for h in FAMILIES for step in h.steps if isinstance(step, Evict)}
    assert missing == {0, 1, 2}

"""The families: the reference passes them, broken managers do not, and all is looked up."""

from itertools import islice

import pytest

from hitproof.conformance.histories.families import engines, families
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import Evict, History, Lookup
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests import broken_managers as broken
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind


def sample(step: int) -> list[History]:
    """One history of every ``step``-th engine, each time another one."""
    chosen = [*engines()][::step]
    return [
        histories[number * 7 % len(histories)]
        for number, histories in enumerate(map(list, map(families, chosen)))
    ]


def test_the_reference_passes() -> None:
    served = set()
    for history in sample(3):
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
    outcomes = [replay(history, broken.Broken(manager)) for history in sample(12)]
    caught = [
        divergence in {finding.signature.divergence for finding in outcome.findings}
        for outcome in outcomes
    ]
    # Under retention some histories evict what was never registered.
    assert sum(caught) > len(caught) / 2


def test_every_kind_and_every_policy_is_there() -> None:
    found = [*engines()]
    assert {group.kind for engine in found for group in engine.groups} == set(GroupKind)
    assert {engine.use_eagle for engine in found} == {True, False}
    assert any(group.eagle for engine in found for group in engine.groups)
    assert {engine.retention_interval is None for engine in found} == {True, False}
    assert len(set(found)) == len(found)


def test_every_block_is_missing_once_and_every_request_is_looked_up() -> None:
    engine = next(engine for engine in engines() if len(engine.groups) == 3)
    histories = list(families(engine))
    alone = set()
    for history in histories:
        evictions = [step for step in history.steps if isinstance(step, Evict)]
        looked_up = {step.request for step in history.steps if isinstance(step, Lookup)}
        assert looked_up == history.requests.keys() - {"producer"}
        if len(evictions) == 1:
            alone |= {(evictions[0].group, block) for block in evictions[0].blocks}
    last = 5 * engine.alignment - 1
    assert alone == {
        (number, block)
        for number, group in enumerate(engine.groups)
        for block in range(last // group.block_size)
    }


def test_they_are_histories_like_any_other() -> None:
    for engine in islice(engines(), 0, None, 20):
        history = next(families(engine))
        assert read(write(history)) == history

"""Situations: what they are made for happens in them, and the reference passes."""

from collections import Counter

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests.test_replay import expected, shown
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import is_fine_grained


def test_they_happen_on_every_shape_of_engine() -> None:
    engines = [history.engine for history in series("situations")]
    assert {len(engine.groups) for engine in engines} == {1, 2, 3, 4}
    opted_out = [[g.kind for g in e.groups if not g.prefix_cacheable] for e in engines]
    assert {kind for kinds in opted_out for kind in kinds} == {
        GroupKind.SLIDING_WINDOW,
        GroupKind.FULL_ATTENTION,
    }
    drafted = (engine.use_eagle for engine, out in zip(engines, opted_out, strict=True) if out)
    assert set(drafted) == {True, False}
    assert {group.kind for engine in engines for group in engine.groups} == set(GroupKind)
    assert {engine.use_eagle for engine in engines} == {True, False}
    assert {engine.full_sequence_must_fit for engine in engines} == {True, False}
    assert len({engine.retention_interval is None for engine in engines}) == 2
    flagged = [engine for engine in engines if any(group.eagle for group in engine.groups)]
    assert {engine.num_hash_lookahead_tokens for engine in flagged} == {0, 1}
    fine = [history.engine for history in series("fine_situations")]
    assert fine
    assert all(is_fine_grained(engine.groups, engine.hash_block_size) for engine in fine)
    first = {engine.groups[0].kind for engine in fine}
    assert first == {GroupKind.FULL_ATTENTION, GroupKind.MAMBA}
    assert any(not group.prefix_cacheable for engine in fine for group in engine.groups)


@pytest.mark.slow
def test_much_happens_and_the_reference_passes() -> None:
    happened: Counter[str] = Counter()
    for history in series("situations"):
        if not all(group.prefix_cacheable for group in history.engine.groups):
            continue  # no group of the reference opts out
        outcome = replay(history, ReferenceManagers())
        assert shown(outcome) == expected(history, outcome)
        for step, deviation in zip(history.steps, outcome.steps, strict=True):
            happened[f"{type(step).__name__} {deviation.split()[0] if deviation else 'done'}"] += 1
        happened["hit"] += sum(0 < lookup.served for lookup in outcome.lookups)
    for what in ("Schedule preempted", "Schedule no", "Reset refused:", "Reset done", "Evict done"):
        assert happened[what]
    for what in ("Schedule done", "Preempt done", "Load done", "Loaded done", "hit"):
        assert happened[what] > len(series("situations"))

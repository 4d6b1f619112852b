"""The families with hits inside blocks: what is in them, and who cannot play them."""

from itertools import islice

import pytest

from hitproof.conformance.histories.fine_families import fine_engines, fine_families, fine_histories
from hitproof.conformance.histories.generator import fine_history
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import Evict, Load, Loaded, Preempt, Schedule
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity, is_fine_grained

FINE = JudgedPolicies(granularity=HitGranularity.FINE)


def test_every_engine_has_hits_inside_blocks() -> None:
    engines = list(fine_engines())
    assert len(set(engines)) == len(engines)
    for engine in engines:
        assert is_fine_grained(engine.groups, engine.hash_block_size)
    assert {engine.use_eagle for engine in engines} == {True, False}
    assert {engine.hash_block_size for engine in engines} == {1, 2}
    assert any(engine.retention_interval == 0 for engine in engines)
    assert any(engine.retention_interval for engine in engines)
    assert any(engine.mamba_checkpoint_alignment for engine in engines)
    assert any(engine.mamba_shared_prefix_checkpoint for engine in engines)
    assert any(group.window for engine in engines for group in engine.groups)


def test_each_engine_has_a_history_before_one_has_two() -> None:
    engines = list(fine_engines())
    histories = list(fine_histories())
    assert [history.engine for history in islice(histories, len(engines))] == engines
    assert len(histories) == sum(len(list(fine_families(engine))) for engine in engines)


def test_prompts_end_on_each_place_of_a_block_and_all_steps_are_there() -> None:
    for engine in fine_engines():
        size = engine.alignment
        ends, kinds = set(), set()
        for history in fine_families(engine):
            ends.add(len(history.requests["producer"].prompt) % size)
            kinds |= {type(step) for step in history.steps}
        assert ends == set(range(size))
        full = {group.block_size for group in engine.groups if group.kind is not GroupKind.MAMBA}
        assert {Schedule, Preempt} <= kinds
        assert Evict in kinds or len(full) > 1


def test_they_are_histories_like_any_other() -> None:
    for history in islice(fine_histories(), 40):
        assert read(write(history)) == history


def test_states_from_inside_chunks_are_judged_where_resends_are_promised() -> None:
    history = next(h for h in fine_histories() if h.engine.mamba_checkpoint_alignment)
    older = JudgedPolicies(granularity=HitGranularity.FINE, fine_tail=FineTail.EXTENSION)
    with pytest.raises(CannotJudge, match="leave mamba_checkpoint_alignment out"):
        replay(history, ReferenceManagers(), older)


def test_the_reference_does_not_show_entries_inside_blocks() -> None:
    with pytest.raises(CannotJudge, match="this subject does not show"):
        replay(next(fine_histories()), ReferenceManagers(), FINE)


def test_generated_histories_have_hits_inside_blocks_and_no_connector() -> None:
    made = [fine_history(seed) for seed in range(60)]
    for history in made:
        engine = history.engine
        assert is_fine_grained(engine.groups, engine.hash_block_size)
        assert read(write(history)) == history
        for step in history.steps:
            assert not isinstance(step, (Load, Loaded))
            assert not isinstance(step, Schedule) or not step.external
    assert made[3] == fine_history(3)
    engines = [history.engine for history in made]
    assert {engine.use_eagle for engine in engines} == {True, False}
    assert any(engine.mamba_checkpoint_alignment for engine in engines)
    assert any(engine.mamba_shared_prefix_checkpoint for engine in engines)
    assert any(engine.num_speculative_tokens for engine in engines)

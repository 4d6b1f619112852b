"""The families with hits inside blocks: what is in them, and who cannot play them."""

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.generator import fine_history
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import Evict, Load, Loaded, Preempt, Schedule
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.releases.fine import FineTail, HitGranularity, is_fine_grained

HISTORIES = series("fine_families")
FINE = JudgedPolicies(granularity=HitGranularity.FINE)


def test_every_engine_has_hits_inside_blocks() -> None:
    engines = [history.engine for history in HISTORIES]
    for engine in engines:
        assert is_fine_grained(engine.groups, engine.hash_block_size)
    assert {engine.use_eagle for engine in engines} == {True, False}
    assert {engine.hash_block_size for engine in engines} == {1, 2}
    assert any(engine.retention_interval == 0 for engine in engines)
    assert any(engine.retention_interval for engine in engines)
    assert any(engine.mamba_checkpoint_alignment for engine in engines)
    assert any(engine.mamba_shared_prefix_checkpoint for engine in engines)
    assert any(group.window for engine in engines for group in engine.groups)


def test_prompts_end_on_each_place_of_a_block_and_all_steps_are_there() -> None:
    ends, kinds = set(), set()
    for history in HISTORIES:
        ends.add(len(history.requests["producer"].prompt) % 4)
        kinds |= {type(step) for step in history.steps}
    assert ends == {0, 1, 2, 3}
    assert {Schedule, Preempt, Evict} <= kinds


def test_they_are_histories_like_any_other() -> None:
    for history in HISTORIES[:40]:
        assert read(write(history)) == history


def test_states_from_inside_chunks_are_judged_where_resends_are_promised() -> None:
    history = next(h for h in HISTORIES if h.engine.mamba_checkpoint_alignment)
    older = JudgedPolicies(granularity=HitGranularity.FINE, fine_tail=FineTail.EXTENSION)
    with pytest.raises(CannotJudge, match="leave mamba_checkpoint_alignment out"):
        replay(history, ReferenceManagers(), older)


def test_the_reference_does_not_show_entries_inside_blocks() -> None:
    with pytest.raises(CannotJudge, match="this subject does not show"):
        replay(HISTORIES[0], ReferenceManagers(), FINE)


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

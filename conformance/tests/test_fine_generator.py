"""Generated histories on engines whose hits may end inside blocks."""

from conformance.histories import Load, Loaded, Schedule
from conformance.history_generator import fine_history
from conformance.history_json import read, write
from spec.fine import is_fine_grained


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

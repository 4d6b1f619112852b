"""Steps in flight: scheduled before the results of earlier ones are known."""

from collections import Counter
from dataclasses import replace

import pytest

from hitproof.conformance.emulation.releases import VLLM_0_24
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    HistoryError,
    Preempt,
    RequestInput,
    Results,
    Schedule,
    Step,
)
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.playing.player import Player
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_player import Recorder
from hitproof.conformance.tests.test_replay import REFERENCE, expected, shown
from hitproof.spec.groups import Group, GroupKind

ENGINE = EngineConfiguration(
    groups=(Group(GroupKind.FULL_ATTENTION, 4),),
    num_gpu_blocks=100,
    hash_block_size=4,
    max_model_len=64,
    max_concurrent_batches=2,
    num_speculative_tokens=3,
)
REQUEST = RequestInput(prompt=tuple(range(18)), output=tuple(range(100, 108)))
AHEAD = Schedule("a", in_flight=True)


def play(*steps: Step, engine: EngineConfiguration = ENGINE) -> tuple[Recorder, list[str]]:
    manager = Recorder()
    played = History(engine, {"a": REQUEST, "b": REQUEST}, steps)
    player = Player(played, manager)
    return manager, [player.play(step) for step in steps]


def test_drafts_in_flight_count_as_computed_until_they_are_rejected() -> None:
    drafted = replace(AHEAD, drafts=3, accepted=1)
    manager, said = play(Schedule("a"), drafted, drafted)
    assert said == [""] * 3
    progress = manager.progress["a"]
    # Tokens 18, then 19 to 22, then 23 to 26, of which two drafts each are wrong.
    assert (progress.num_computed_tokens, progress.num_in_flight_tokens) == (26, 8)
    assert (progress.num_output_placeholders, progress.num_rejected) == (8, 4)
    assert (progress.num_written_tokens, progress.num_sampled) == (22, 4)


def test_results_arrive_in_order_and_register_what_is_settled() -> None:
    drafted = replace(AHEAD, drafts=3, accepted=1)
    manager, said = play(Schedule("a"), drafted, drafted, Results(), Results(), Results())
    assert said == [""] * 5 + ["skipped: no step is in flight"]
    assert manager.calls[-6:] == [
        ("allocate", "a", 4),
        ("sampled", "a", (101, 102)),
        ("cache", "a", 20),
        ("sampled", "a", (103, 104)),
        ("cache", "a", 22),
        ("new step",),
    ]
    assert manager.progress["a"].num_computed_tokens == 22


def test_no_more_steps_are_in_flight_than_the_engine_has() -> None:
    manager, _ = play(Schedule("a", 8), AHEAD, AHEAD, AHEAD)
    # The first decode needs the last results of the prompt before the third step is scheduled.
    assert [call for call in manager.calls if call[0] in ("allocate", "sampled")] == [
        ("allocate", "a", 8),
        ("allocate", "a", 10),
        ("allocate", "a", 1),
        ("sampled", "a", (100,)),
        ("allocate", "a", 1),
    ]


def test_all_results_arrive_with_those_of_a_step_that_does_not_stay_in_flight() -> None:
    manager, _ = play(AHEAD, Schedule("b"))
    assert manager.calls[-5:] == [
        ("allocate", "b", 18),
        ("sampled", "a", (100,)),
        ("cache", "a", 18),
        ("sampled", "b", (100,)),
        ("cache", "b", 18),
    ]


def test_a_preempted_request_keeps_the_tokens_of_its_steps_in_flight() -> None:
    manager, _ = play(AHEAD, AHEAD, Preempt("a"), Schedule("a"))
    assert manager.calls[3:] == [
        ("new step",),
        ("allocate", "a", 1),
        ("free", "a"),
        ("sampled", "a", (100,)),
        ("sampled", "a", (101,)),
        ("new step",),
        ("lookup", "a"),
        ("allocate", "a", 20),
        ("sampled", "a", (102,)),
    ]
    assert manager.progress["a"].num_computed_tokens == 20


def test_nobody_waits_for_the_results_of_a_finished_request() -> None:
    manager, said = play(AHEAD, Finish("a"), Results())
    assert said[2] == "skipped: no step is in flight"
    assert manager.calls[-1] == ("free", "a")


def test_an_engine_without_steps_in_flight_has_none() -> None:
    with pytest.raises(HistoryError, match=r"steps\[0\] stays in flight; set max_concurrent"):
        play(AHEAD, engine=replace(ENGINE, max_concurrent_batches=1))


FREED = read(
    """{"engine": {"groups": [{"kind": "sliding_window", "block_size": 2, "window": 3}],
                   "num_gpu_blocks": 20, "hash_block_size": 2, "max_model_len": 16,
                   "num_speculative_tokens": 3, "max_concurrent_batches": 2},
        "requests": {"a": {"prompt": [1, 2, 3, 4], "output": [[5, 9]]}},
        "steps": [{"do": "schedule", "request": "a"},
                  {"do": "schedule", "request": "a", "drafts": 3, "in_flight": true},
                  {"do": "schedule", "request": "a"}]}"""
)
"""Three drafts are wrong; if they were right, the next token would not read block 1."""


def test_what_rejected_drafts_make_the_next_step_read_again_is_kept() -> None:
    assert shown(replay(FREED, REFERENCE)) == []
    older = ReferenceManagers(VLLM_0_24)
    assert shown(replay(FREED, older)) == ["unsound: null-block-read(after=rejection)"]


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        (broken.IgnoresStepsInFlight, "unsound: null-block-read(after=rejection)"),
        (broken.AllocatesFromWhatIsSettled, "unsound: null-block-read"),
        (broken.TakesNothingBack, "unsound: null-block-read"),
        (broken.RegistersNoResults, "lost hit: prefix-block-unregistered"),
    ],
)
def test_a_broken_manager_is_caught(manager: type[broken.Wrapped], words: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(300):
        played = history(f"in flight:{number}")
        if played.engine.max_concurrent_batches > 1:
            outcome = replay(played, broken.Broken(manager))
            seen.update(set(shown(outcome)) - set(expected(played, outcome)))
            if words in seen:
                return
    raise AssertionError(seen)


@pytest.mark.parametrize(("needed", "left"), [(True, 2), (False, 1)])
def test_a_smaller_history_has_as_few_steps_in_flight_as_it_needs(needed: bool, left: int) -> None:
    def shows(candidate: History) -> bool:
        ahead = any(isinstance(s, Schedule) and s.in_flight for s in candidate.steps)
        return ahead or not needed

    engine = replace(ENGINE, max_concurrent_batches=3)
    smaller = shrink(History(engine, {"a": REQUEST}, (AHEAD, AHEAD)), shows)
    assert smaller.engine.max_concurrent_batches == left

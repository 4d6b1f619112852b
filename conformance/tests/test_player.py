"""The player asks of a manager what vLLM's scheduler would, in the same order."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    RequestInput,
    Reset,
    Schedule,
    Step,
)
from hitproof.conformance.playing.player import Player
from hitproof.conformance.subject.managers import Allocation, Hit, Observation, Progress, Tables
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail

FULL = (Group(GroupKind.FULL_ATTENTION, 4),)
HYBRID = (*FULL, Group(GroupKind.MAMBA, 4))


class Recorder:
    """A manager that hits what it is told to, and refuses while ``full``."""

    def __init__(self, hit: int = 0, full: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.progress: dict[str, Progress] = {}
        self._hit, self._full = hit, full

    def add_request(self, name: str, request: RequestInput) -> None:
        assert request.prompt
        self.calls.append(("add", name))

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        self.calls.append(("sampled", name, tuple(token_ids)))

    def set_progress(self, name: str, progress: Progress) -> None:
        self.progress[name] = progress

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return [f"key {name} {group}", f"key {name} {group + 1}"]

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        return (7,) if key == f"key a {group + 1}" else ()

    def get_computed_blocks(self, name: str) -> Hit:
        self.calls.append(("lookup", name))
        return Hit(self._hit, ((),))

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        self.calls.append(("allocate", name, allocation.num_new_tokens))
        self.allocation = allocation
        self._full -= 1
        return None if self._full >= 0 else ((),)

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.calls.append(("cache", name, num_computed_tokens))

    def free(self, name: str) -> None:
        self.calls.append(("free", name))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.calls.append(("evict", *block_ids))

    def reset_prefix_cache(self) -> bool:
        self.calls.append(("reset",))
        return False

    def new_step_starts(self) -> None:
        self.calls.append(("new step",))

    def observe(self) -> Observation:
        raise NotImplementedError


def play(
    steps: Sequence[Step],
    manager: Recorder,
    groups: tuple[Group, ...] = FULL,
    output: int = 8,
    drafts: int = 0,
    max_chunk: int | None = None,
) -> list[str]:
    engine = EngineConfiguration(
        groups=groups,
        num_gpu_blocks=100,
        hash_block_size=4,
        max_model_len=64,
        max_num_batched_tokens=max_chunk,
        use_eagle=drafts > 0,
        num_speculative_tokens=drafts,
    )
    request = RequestInput(prompt=tuple(range(18)), output=tuple(range(100, 100 + output)))
    history = History(engine, {"a": request, "b": request}, tuple(steps))
    player = Player(history, manager)
    return [player.play(step) for step in history.steps]


def allocations(manager: Recorder) -> list[int]:
    return [call[2] for call in manager.calls if call[0] == "allocate"]


def test_prefill_in_chunks_then_decode() -> None:
    manager = Recorder(hit=4)
    assert play([Schedule("a", 8), Schedule("a"), Schedule("a")], manager, max_chunk=12) == [""] * 3
    assert manager.calls == [
        ("add", "a"),
        ("lookup", "a"),
        ("allocate", "a", 8),
        ("new step",),
        ("allocate", "a", 6),
        ("sampled", "a", (100,)),
        ("new step",),
        ("allocate", "a", 1),
        ("sampled", "a", (101,)),
    ]
    assert manager.progress["a"] == Progress(19, 0, True)


def test_drafts_are_computed_and_those_that_are_right_are_kept() -> None:
    manager = Recorder()
    play([Schedule("a"), Schedule("a", drafts=3, accepted=1)], manager, drafts=3)
    assert allocations(manager) == [18, 4]
    assert manager.allocation.num_lookahead_tokens == 3
    assert manager.calls[-1] == ("sampled", "a", (101, 102))
    # 18 of the prompt, one sampled before, one draft; the last sampled token is yet to compute.
    assert manager.progress["a"].num_computed_tokens == 20


def test_a_request_without_output_left_does_not_go_on() -> None:
    manager = Recorder()
    assert play([Schedule("a"), Schedule("a")], manager, output=0)[1].startswith("skipped")


def test_mamba_chunks_end_on_block_edges() -> None:
    manager = Recorder()
    play([Schedule("a", 7), Schedule("a", 3), Schedule("a"), Schedule("a")], manager, HYBRID)
    assert allocations(manager) == [4, 12, 2]
    eagle = Recorder()
    play([Schedule("a"), Schedule("a")], eagle, HYBRID, drafts=1)
    assert allocations(eagle) == [12, 6]


def test_a_chunk_that_starts_inside_a_mamba_block_stops_at_its_end() -> None:
    eagle = Recorder()
    steps = [Schedule("a"), Schedule("a", 1), Schedule("a"), Schedule("a")]
    play(steps, eagle, HYBRID, drafts=1)
    assert allocations(eagle) == [12, 1, 3, 2]


def test_a_connector_loads_whole_mamba_blocks() -> None:
    for tokens, loaded in ((3, 0), (6, 4), (99, 14)):
        manager = Recorder(hit=4)
        told = play([Load("a", tokens)], manager, HYBRID)
        assert told[0].startswith("skipped") == (loaded == 0)
        if loaded:
            assert manager.allocation.num_external_computed_tokens == loaded


def test_a_running_request_without_space_preempts_those_admitted_last() -> None:
    manager = Recorder()
    told = play([Schedule("a", 4), Schedule("b", 4), Schedule("a")], manager)
    assert told == [""] * 3
    manager = Recorder()
    player_steps = [Schedule("a", 4), Schedule("b", 4)]
    engine_full = Recorder()
    assert play(player_steps, engine_full) == ["", ""]
    refusing = _RefusesFrom(2)
    assert play([*player_steps, Schedule("a"), Schedule("b")], refusing) == [
        "",
        "",
        "preempted b",
        "",
    ]
    assert ("free", "b") in refusing.calls
    assert refusing.progress["b"].num_preemptions == 1


class _RefusesFrom(Recorder):
    """Refuses the allocation of that number, once."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        super().allocate_slots(name, allocation)
        self._number -= 1
        return None if self._number == -1 else ((),)


def test_a_request_that_does_not_fit_preempts_itself_last() -> None:
    manager = Recorder()
    assert play([Schedule("a", 4)], manager) == [""]
    refusing = _RefusesFrom(1)
    assert play([Schedule("a", 4), Schedule("a")], refusing) == ["", "preempted a"]
    assert refusing.progress["a"] == Progress(0, 1, False)


def test_a_waiting_request_that_does_not_fit_waits() -> None:
    manager = Recorder(full=1)
    assert play([Schedule("a"), Schedule("a")], manager) == ["no space", ""]
    assert [call[0] for call in manager.calls].count("lookup") == 2


def test_external_tokens() -> None:
    manager = Recorder(hit=4)
    play([Schedule("a", external=9)], manager)
    assert manager.allocation == Allocation(
        6, Hit(4, ((),)), num_external_computed_tokens=8, has_scheduled_reqs=False
    )  # whole blocks, and a token is left to compute


@pytest.mark.parametrize(
    ("right", "calls"),
    [
        (None, [("cache", "a", 18), ("new step",), ("allocate", "a", 1)]),
        (7, [("cache", "a", 7), ("new step",), ("allocate", "a", 11)]),
        (0, [("free", "a"), ("new step",), ("lookup", "a"), ("allocate", "a", 14)]),
    ],
)
def test_a_load_is_cached_when_it_is_there(right: int | None, calls: list[Any]) -> None:
    manager = Recorder(hit=4)
    steps: list[Step] = [
        Load("a", 99),
        Schedule("a"),
        Finish("a"),
        Loaded("a", right),
        Schedule("a"),
    ]
    told = play(steps, manager)
    assert told[1].startswith("skipped")
    assert told[2].startswith("skipped")
    assert manager.calls[1:3] == [("lookup", "a"), ("allocate", "a", 0)]
    assert manager.calls[3 : 3 + len(calls)] == calls


def test_what_the_state_does_not_allow_is_skipped() -> None:
    manager = Recorder()
    steps: list[Step] = [
        Preempt("a"),
        Loaded("a"),
        Finish("a"),
        Finish("a"),
        Schedule("a"),
        Lookup("a"),
        Load("a", 4),
    ]
    told = play(steps, manager)
    assert [text.split(":")[0] for text in told] == ["skipped", "skipped", "", *["skipped"] * 4]


def test_the_rest() -> None:
    manager = Recorder()
    told = play([Evict("a", 0, (0, 1, 5)), Evict("a", 0, (0,)), Reset(), NewStep()], manager)
    assert told[0] == ""
    assert told[1].startswith("skipped")
    assert told[2].startswith("refused")
    assert ("evict", 7) in manager.calls


@pytest.mark.parametrize(
    ("tail", "eagle", "changes", "chunks"),
    [
        (FineTail.NONE, False, {}, [16, 3]),
        (FineTail.EXTENSION, False, {}, [16, 2, 1]),
        (FineTail.RESEND, False, {}, [16, 2, 1]),
        (FineTail.RESEND, False, {"prompt": 20}, [16, 2, 2]),
        (FineTail.EXTENSION, False, {"prompt": 20}, [20]),
        (FineTail.RESEND, True, {"prompt": 20}, [16, 2, 2]),
        (FineTail.RESEND, True, {"prompt": 19}, [12, 4, 3]),
        # The end of a shared prefix, inside a block where a state is kept there.
        (FineTail.RESEND, True, {"prompt": 19, "junction": 6}, [4, 8, 4, 3]),
        (FineTail.RESEND, True, {"prompt": 19, "junction": 6, "shared": True}, [6, 2, 4, 4, 3]),
        # A state that is exported from inside the chunk needs no stop.
        (FineTail.RESEND, False, {"alignment": 2}, [19]),
        (FineTail.RESEND, False, {"alignment": 4}, [16, 2, 1]),
        (FineTail.RESEND, False, {"alignment": 2, "prompt": 3}, [2, 1]),
    ],
)
def test_chunks_end_where_states_are_kept(
    tail: FineTail, eagle: bool, changes: dict[str, Any], chunks: list[int]
) -> None:
    engine = EngineConfiguration(
        HYBRID,
        100,
        2,
        64,
        use_eagle=eagle,
        mamba_checkpoint_alignment=changes.get("alignment"),
        mamba_shared_prefix_checkpoint=changes.get("shared", False),
    )
    request = RequestInput(prompt=tuple(range(changes.get("prompt", 19))))
    steps = (Schedule("a"),) * len(chunks)
    manager = _Shared(changes.get("junction", 0))
    player = Player(History(engine, {"a": request}, steps), manager, tail)
    assert [player.play(step) for step in steps] == [""] * len(chunks)
    assert allocations(manager) == chunks


class _Shared(Recorder):
    """Says how far a prefix is shared."""

    def __init__(self, boundary: int) -> None:
        super().__init__()
        self._boundary = boundary

    def get_computed_blocks(self, name: str) -> Hit:
        return replace(super().get_computed_blocks(name), shared_prefix_boundary=self._boundary)


def test_what_is_done_otherwise_than_asked_is_said() -> None:
    steps = [Schedule("a", 7, external=9), Schedule("a", 99)]
    told = play(steps, Recorder(), HYBRID)
    assert told == [
        "8 external tokens are taken, not 9; 4 tokens are computed, not 7",
        "4 tokens are computed, not 6",
    ]
    (text,) = play([Load("a", 6)], Recorder(hit=4), HYBRID)
    assert text == "4 tokens are loaded, not 6"
    told = play([Schedule("a"), Schedule("a", drafts=3, accepted=3)], Recorder(), drafts=2)
    assert told[1] == "2 drafts are verified, not 3; 2 drafts are accepted, not 3"
    told = play([Schedule("a", 9)], Recorder(), max_chunk=8)
    assert told == ["8 tokens are computed, not 9"]


def test_exactly_what_is_asked_is_done_and_said() -> None:
    manager = Recorder()
    told = play([Schedule("a", 7, external=9, exactly=True)], manager, HYBRID)
    assert told == ["as asked; vLLM's scheduler would compute 3 tokens"]
    assert (manager.allocation.num_external_computed_tokens, allocations(manager)) == (9, [7])
    manager = Recorder(hit=4)
    assert play([Load("a", 6, exactly=True)], manager, HYBRID) == [""]
    assert manager.allocation.num_external_computed_tokens == 6


@pytest.mark.parametrize(("ahead", "slots"), [(None, 2), (0, 0)])
def test_drafts_without_eagle(ahead: int | None, slots: int) -> None:
    engine = EngineConfiguration(
        FULL, 100, 4, 64, num_speculative_tokens=2, num_lookahead_tokens=ahead
    )
    request = RequestInput(tuple(range(18)), tuple(range(100, 104)))
    steps = (Schedule("a"), Schedule("a", drafts=2, accepted=1))
    manager = Recorder()
    player = Player(History(engine, {"a": request}, steps), manager)
    assert [player.play(step) for step in steps] == ["", ""]
    assert manager.allocation == Allocation(3, num_lookahead_tokens=slots)
    assert player.num_computed_tokens("a") == 20

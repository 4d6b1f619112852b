"""The player asks of a manager what vLLM's scheduler would, in the same order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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


class _RefusesFrom(Recorder):
    """Refuses the allocation of that number, once."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        super().allocate_slots(name, allocation)
        self._number -= 1
        return None if self._number == -1 else ((),)


def play(
    steps: Sequence[Step],
    manager: Recorder,
    groups: tuple[Group, ...] = FULL,
    output: int = 8,
    drafts: int = 0,
    **engine: Any,
) -> list[str]:
    made = EngineConfiguration(
        groups, 100, 4, 64, use_eagle=drafts > 0, num_speculative_tokens=drafts, **engine
    )
    request = RequestInput(prompt=tuple(range(18)), output=tuple(range(100, 100 + output)))
    history = History(made, {"a": request, "b": request}, tuple(steps))
    player = Player(history, manager)
    return [player.play(step) for step in history.steps]


def allocations(manager: Recorder) -> list[int]:
    return [call[2] for call in manager.calls if call[0] == "allocate"]


@dataclass(frozen=True)
class Case:
    """What the player says of steps, what it allocates and asks last, and where requests are."""

    steps: Sequence[Step]
    options: dict[str, Any] = field(default_factory=dict)
    hit: int = 0
    told: Sequence[str] | None = None
    allocated: list[int] | None = None
    calls: Sequence[tuple[Any, ...]] = ()
    progress: dict[str, Progress] = field(default_factory=dict)
    full: int = 0
    refused: int | None = None


A, B = Schedule("a"), Schedule("b")
EAGLE = {"groups": HYBRID, "drafts": 1}
SKIPPED = "skipped"
LOADS: list[Step] = [Load("a", 99), A, Finish("a")]
CASES = {
    "prefill in chunks, then decode": Case(
        [Schedule("a", 8), A, A],
        {"max_num_batched_tokens": 12},
        hit=4,
        told=["", "", ""],
        allocated=[8, 6, 1],
        calls=[("sampled", "a", (100,)), ("new step",), ("allocate", "a", 1)],
        progress={"a": Progress(19, 0, True)},
    ),
    # 18 of the prompt, one sampled before, one draft; the last sampled token is yet to compute.
    "drafts that are right are kept": Case(
        [A, Schedule("a", drafts=3, accepted=1)],
        {"drafts": 3},
        allocated=[18, 4],
        calls=[("sampled", "a", (101, 102))],
        progress={"a": Progress(20, 0, True)},
    ),
    "no output left": Case([A, A], {"output": 0}, told=["", SKIPPED]),
    "Mamba chunks end on block edges": Case(
        [Schedule("a", 7), Schedule("a", 3), A, A], {"groups": HYBRID}, allocated=[4, 12, 2]
    ),
    "EAGLE, Mamba": Case([A, A], EAGLE, allocated=[12, 6]),
    "a chunk that starts inside a Mamba block stops at its end": Case(
        [A, Schedule("a", 1), A, A], EAGLE, allocated=[12, 1, 3, 2]
    ),
    "who has no space preempts those admitted last": Case(
        [Schedule("a", 4), Schedule("b", 4), A, B],
        refused=2,
        told=["", "", "preempted b", ""],
        calls=[("free", "b")],
    ),
    "and itself last": Case(
        [Schedule("a", 4), A],
        refused=1,
        told=["", "preempted a"],
        progress={"a": Progress(0, 1, False)},
    ),
    "who waits and does not fit waits": Case(
        [A, A], full=1, told=["no space", ""], calls=[("lookup", "a"), ("allocate", "a", 18)]
    ),
    "whole Mamba blocks are loaded": Case([Load("a", 3)], {"groups": HYBRID}, 4, [SKIPPED]),
    "a load that is there": Case(
        [*LOADS, Loaded("a"), A],
        hit=4,
        told=["14 tokens are loaded, not 99", SKIPPED, SKIPPED, "", ""],
        calls=[("cache", "a", 18), ("new step",), ("allocate", "a", 1)],
    ),
    "a load that is there in part": Case(
        [*LOADS, Loaded("a", 7), A],
        hit=4,
        calls=[("cache", "a", 7), ("new step",), ("allocate", "a", 11)],
    ),
    "a load that is not there": Case(
        [*LOADS, Loaded("a", 0), A],
        hit=4,
        calls=[("free", "a"), ("new step",), ("lookup", "a"), ("allocate", "a", 14)],
    ),
    "what the state does not allow": Case(
        [Preempt("a"), Loaded("a"), Finish("a"), Finish("a"), A, Lookup("a"), Load("a", 4)],
        told=[SKIPPED, SKIPPED, "", *[SKIPPED] * 4],
    ),
    "the rest": Case(
        [Evict("a", 0, (0, 1, 5)), Evict("a", 0, (0,)), Reset(), NewStep()],
        told=["", SKIPPED, "refused", ""],
        calls=[("evict", 7)],
    ),
    "otherwise than asked": Case(
        [Schedule("a", 7, external=9), Schedule("a", 99)],
        {"groups": HYBRID},
        told=[
            "8 external tokens are taken, not 9; 4 tokens are computed, not 7",
            "4 tokens are computed, not 6",
        ],
    ),
    "a load otherwise than asked": Case(
        [Load("a", 6)], {"groups": HYBRID}, 4, ["4 tokens are loaded, not 6"]
    ),
    "drafts otherwise than asked": Case(
        [A, Schedule("a", drafts=3, accepted=3)],
        {"drafts": 2},
        told=["", "2 drafts are verified, not 3; 2 drafts are accepted, not 3"],
    ),
    "more than a step computes": Case(
        [Schedule("a", 9)], {"max_num_batched_tokens": 8}, told=["8 tokens are computed, not 9"]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_done_as_a_scheduler_would(name: str) -> None:
    case = CASES[name]
    manager = Recorder(case.hit, case.full) if case.refused is None else _RefusesFrom(case.refused)
    told = play(case.steps, manager, **case.options)
    for text, wanted in zip(told, case.told or told, strict=True):
        assert text == wanted or (text.startswith(wanted) and wanted)
    assert case.allocated in (None, allocations(manager))
    calls, places = list(case.calls), range(len(manager.calls))
    assert not calls or any(manager.calls[at : at + len(calls)] == calls for at in places)
    assert case.progress.items() <= manager.progress.items()


@pytest.mark.parametrize(
    ("steps", "groups", "external"),
    [
        ([Load("a", 6)], HYBRID, 4),
        ([Load("a", 99)], HYBRID, 14),
        ([Schedule("a", external=9)], FULL, 8),  # whole blocks, and a token is left to compute
    ],
)
def test_external_tokens(steps: list[Step], groups: tuple[Group, ...], external: int) -> None:
    manager = Recorder(hit=4)
    play(steps, manager, groups)
    assert manager.allocation.num_external_computed_tokens == external


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

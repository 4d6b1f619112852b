"""`hitproof diff` on scheduler histories: copies of a release with an edit in its scheduler."""

from collections.abc import Iterator

import pytest

from hitproof.conformance.comparison.effects import HARMFUL, Effect
from hitproof.conformance.comparison.records import Decision
from hitproof.conformance.comparison.schedules import ScheduleRun, differences
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.scenarios import FEATURES
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.gate.side_by_side import Both, HistoriesCompared, compared
from hitproof.vllm_integration.tests.conftest import Copy
from hitproof.vllm_integration.tests.test_side_by_side import RELEASE, opened

_TURN = len(FEATURES)
_STATES, _PRIORITIES = range(3, 8 * _TURN, _TURN), range(_TURN - 1, 8 * _TURN, _TURN)
_PREEMPTIONS = 1146, 1886, 2219, 3699
_NUMBERS = *range(8), *_STATES[1:], *_PRIORITIES, *_PREEMPTIONS
PLAYS = [Play(Origin.SCENARIOS, f"1:{number}") for number in _NUMBERS]
"""Scenarios with hybrid models, with priorities and preemptions by these, and some others."""

SPLIT = {" last_cache_position,\n            # Stop at": " 0,\n            # Stop at"}
BUDGET = {
    "token_budget = self.max_num_scheduled_tokens\n        spec =": (
        "token_budget = max(self.max_num_scheduled_tokens // 2, 16)\n        spec ="
    )
}
PREEMPTED = {"preempted_req = max(\n": "preempted_req = min(\n"}
HARMLESS = {
    "next_block_boundary = (start // block_size + 1) * block_size": (
        "next_block_boundary = start // block_size * block_size + block_size"
    )
}


@pytest.fixture(scope="module")
def base() -> Iterator[Sessions]:
    yield from opened(RELEASE)


def side_by_side(base: Sessions, head: Sessions) -> HistoriesCompared:
    one, other = (side.settle([], PLAYS, lambda *_: None, True)[1] for side in (base, head))
    result = compared(one, other, Both(base, head))
    assert result.schedulers + sum(result.uncompared.values()) == len(PLAYS)
    return result


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize(
    ("edits", "effect"), [(SPLIT, Effect.LOST), (BUDGET, Effect.STEPS), (PREEMPTED, Effect.STEPS)]
)
def test_a_scheduler_that_decides_otherwise(
    base: Sessions, broken_copy: Copy, edits: dict[str, str], effect: Effect
) -> None:
    for head in opened(str(broken_copy(RELEASE, edits))):
        result = side_by_side(base, head)
    change = next(each for each in result.changes if each.effect is effect)
    assert change.counts
    assert change.harmful is (effect in HARMFUL)
    assert change.example is not None
    assert change.example.base != change.example.head


@pytest.mark.long
@pytest.mark.release
def test_a_scheduler_that_decides_the_same(base: Sessions, broken_copy: Copy) -> None:
    for head in opened(str(broken_copy(RELEASE, HARMLESS))):
        result = side_by_side(base, head)
    assert not result.changes
    assert result.scheduler_steps


def run(**changes: object) -> ScheduleRun:
    """A run of one history, of which something is otherwise."""
    plain = {
        "history": "{}",
        "refused": "",
        "raised": "",
        "hits": {"a": 0, "b": 16},
        "finished": frozenset("ab"),
        "preemptions": {"a": 0, "b": 0},
        "plans": ((("a", 0, 16),), (("b", 16, 4),)),
        "wrong": "",
    }
    return ScheduleRun(**plain | changes)  # type: ignore[arg-type]  # a dict of anything


@pytest.mark.parametrize(
    ("changes", "there", "back"),
    [
        ({"refused": "too small"}, Effect.REFUSED, Effect.ADMITTED),
        ({"raised": "IndexError"}, Effect.CRASH, Effect.FIXED),
        ({"finished": frozenset("a")}, Effect.STUCK, Effect.UNSTUCK),
        ({"hits": {"a": 0, "b": 0}}, Effect.LOST, Effect.GAINED),
        ({"preemptions": {"a": 1, "b": 0}}, Effect.PREEMPTED, Effect.PREEMPTED_LESS),
        ({"plans": ((("a", 0, 16),), (), (("b", 16, 4),))}, Effect.EMPTY, Effect.EMPTY_LESS),
        ({"plans": ((("a", 0, 8),), (("a", 8, 8),))}, Effect.STEPS, Effect.STEPS),
    ],
)
def test_what_a_difference_means(changes: dict[str, object], there: Effect, back: Effect) -> None:
    assert [each.effect for each in differences(run(), run(**changes))] == [there]
    assert [each.effect for each in differences(run(**changes), run())] == [back]
    assert not differences(run(**changes), run(**changes))


def test_a_longer_hit_that_is_wrong_is_no_gain() -> None:
    longer = run(hits={"a": 0, "b": 32}, wrong=str(Divergence.UNSOUND))
    (difference,) = differences(run(), longer)
    assert (difference.effect, difference.observable) == (Effect.UNSOUND, Decision.HITS)
    assert difference.tokens == 16

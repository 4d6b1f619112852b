"""`hitproof diff` on histories: copies of a release with one observable changed, both ways."""

from collections.abc import Iterator, Sequence

import pytest

from hitproof.conformance.comparison.effects import HARMFUL, Effect
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.gate.side_by_side import (
    Both,
    HistoriesCompared,
    HistoryChange,
    compared,
)
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, limits

pytestmark = pytest.mark.release

RELEASE = "0.33.0"
PLAYS = [Play(Origin.GENERATED, f"1:{number}") for number in range(16)]

ORDER = {
    "free_blocks(reversed(self.pop_blocks_for_free(request_id)))": (
        "free_blocks(list(self.pop_blocks_for_free(request_id)))"
    )
}
ADMISSION = {"- reserved_blocks\n": "- reserved_blocks - 1\n"}
WINDOW = {"num_computed_tokens - self.sliding_window + 1 -": "num_computed_tokens - 99 + 1 -"}
EVENTS = {
    "        for block_hash in block_hashes:\n            self.kv_event_queue": (
        "        for block_hash in ():\n            self.kv_event_queue"
    )
}
STATISTICS = {"            num_hits=num_hits,": "            num_hits=num_hits + 1,"}
RESETS = {"if num_used_blocks != 1:": "if num_used_blocks != 0:"}
USAGE = {"return 1.0 - (self.get_num_free_blocks() /": "return 0.5 - (self.get_num_free_blocks() /"}


def opened(target: str) -> Iterator[Sessions]:
    with gate.opened(Run(resolve(target), Profile.QUICK, limits=limits(300.0))) as sessions:
        yield sessions


@pytest.fixture(scope="module")
def base() -> Iterator[Sessions]:
    yield from opened(RELEASE)


def side_by_side(
    base: Sessions, head: Sessions, plays: Sequence[Play] = PLAYS
) -> HistoriesCompared:
    one, other = (side.settle([], plays, lambda *_: None, True)[1] for side in (base, head))
    return compared(one, other, Both(base, head))


def changes(base: Sessions, head: Sessions) -> dict[Effect, HistoryChange]:
    result = side_by_side(base, head)
    assert result.histories == len(PLAYS)
    assert not result.uncompared
    return {change.effect: change for change in result.changes if change.counts}


@pytest.mark.long
@pytest.mark.parametrize(
    ("edits", "there", "back"),
    [
        (ORDER, Effect.ORDER, Effect.ORDER),
        (ADMISSION, Effect.REFUSED, Effect.ADMITTED),
        (WINDOW, Effect.HELD_MORE, Effect.TABLES),
        (EVENTS, Effect.EVENTS, Effect.EVENTS),
        (STATISTICS, Effect.STATISTICS, Effect.STATISTICS),
        (RESETS, Effect.REFUSED, Effect.ADMITTED),
        (USAGE, Effect.COUNTS, Effect.COUNTS),
    ],
)
def test_one_observable_of_a_copy_changes(
    base: Sessions, broken_copy: Copy, edits: dict[str, str], there: Effect, back: Effect
) -> None:
    for head in opened(str(broken_copy(RELEASE, edits))):
        for effect, (one, other) in ((there, (base, head)), (back, (head, base))):
            change = changes(one, other)[effect]
            assert change.harmful is (effect in HARMFUL)
            assert change.example is not None
            assert change.example.given
            assert change.example.base != change.example.head


@pytest.mark.long
def test_a_release_does_what_it_does(base: Sessions) -> None:
    for head in opened(RELEASE):
        assert changes(base, head) == {}


@pytest.mark.long
def test_releases_with_other_features_are_compared_on_what_both_have(base: Sessions) -> None:
    plays = [Play(Origin.FINE, str(number)) for number in range(16)]
    for head in opened("0.29.0"):
        result = side_by_side(base, head, plays)
    assert result.histories == len(plays)
    assert result.adapted


@pytest.mark.long
def test_a_target_that_ends_leaves_histories_that_are_not_compared(
    base: Sessions, broken_copy: Copy
) -> None:
    edits = {"total_gpu_blocks = self.num_gpu_blocks - 1": "import os; os._exit(1)"}
    for head in opened(str(broken_copy(RELEASE, edits))):
        result = side_by_side(base, head, PLAYS[:2])
    assert result.histories == 0
    assert sum(result.uncompared.values()) == 2

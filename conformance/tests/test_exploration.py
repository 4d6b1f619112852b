"""The explorer against brute force, and the ways a lookup could slip past merging."""

import contextlib
import functools
import gc
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hitproof.conformance.checks import explored as checked
from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import BudgetExceeded, Exploration, explore
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.reference_subject import ReferenceLookup
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject, longer_tail
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CAPPED = LookaheadHorizon.CAPPED


def explored(
    configuration: Configuration, lookup: Lookup, max_length: int, **options: Any
) -> Exploration:
    space = space_of(configuration, lookup, max_length, CAPPED)
    return explore(space, lookup, max_length, **options)


def small_configurations(num_blocks: int = 6) -> Iterator[Configuration]:
    for segment, eagle in itertools.product((1, 2, 3), (False, True)):
        yield single_group(FULL, 2, segment, None, eagle, num_blocks)
        for window in (2, 4, 7):
            yield single_group(SLIDING, 2, segment, window, eagle, num_blocks)


@pytest.mark.parametrize("configuration", [*small_configurations(9)], ids=Configuration.describe)
def test_merged_and_unmerged_paths_end_alike(configuration: Configuration) -> None:
    lookup = ReferenceLookup(configuration)
    max_length = configuration.num_blocks * configuration.group.block_size
    merged = explored(configuration, lookup, max_length)
    apart = explored(configuration, lookup, max_length, merging=False)
    assert merged.merged
    assert not apart.merged
    assert hit_weights(merged.paths, 9) == hit_weights(apart.paths, 9)
    assert merged.suspensions <= apart.suspensions


def hit_weights(paths: Any, num_blocks: int) -> dict[int, int]:
    """How many cache states end with each hit length."""
    weights: dict[int, int] = {}
    for path in paths:
        length = path.answer.hit_length
        weights[length] = weights.get(length, 0) + (path.weight << num_blocks - len(path.answers))
    return weights


@pytest.mark.long
def test_merging_makes_long_requests_cheap() -> None:
    configuration = single_group(SLIDING, 1, 1, 5, True, 40)
    exploration = explored(configuration, ReferenceLookup(configuration), 40)
    assert exploration.merged
    assert exploration.suspensions < 40 * 40


class OddLookup(ReferenceLookup):
    """A lookup written so that forgetting something would hide its fault."""

    def __init__(self, configuration: Configuration, how: Any) -> None:
        super().__init__(configuration)
        self._how = how

    @property
    def inputs(self) -> Sequence[object]:
        return (*super().inputs, self._how)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        del max_length
        return self._how(pool, *self.keys)  # type: ignore[no-any-return]


def scan_right(pool: Any, keys: list[bytes]) -> list[Any]:
    table = [pool.null_block] * len(keys)
    for i in range(len(keys) - 1, -1, -1):
        if found := pool.get_cached_block(keys[i], [0]):
            table[i] = found[0]
    return table


def serves_what_differs(pool: Any, keys: list[bytes]) -> LookupAnswer:
    return LookupAnswer(len(keys), [scan_right(pool, keys)])


def test_served_blocks_that_merged_runs_disagree_on_are_told_apart() -> None:
    configuration = single_group(SLIDING, 1, 1, 9, False, 5)
    exploration = explored(configuration, OddLookup(configuration, serves_what_differs), 5)
    assert len(exploration.paths) == 2**5


def test_what_collecting_garbage_runs_is_not_the_lookups() -> None:
    configuration = single_group(SLIDING, 1, 1, 5, False, 6)
    noted: list[float] = []

    def collecting(*_: object) -> None:
        noted.append(time.perf_counter())

    thresholds = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        exploration = explored(configuration, ReferenceLookup(configuration), 6)
    finally:
        gc.callbacks.remove(collecting)
        gc.set_threshold(*thresholds)
    assert noted
    assert gc.isenabled()
    assert exploration.merged


def swallows(pool: Any, keys: list[bytes]) -> LookupAnswer:
    with contextlib.suppress(BaseException):
        pool.get_cached_block(keys[0], [0])
    return LookupAnswer(0, [[]])


def unmodelled(pool: Any, keys: list[bytes]) -> LookupAnswer:
    return LookupAnswer(pool.num_gpu_blocks, [keys])


@pytest.mark.parametrize(
    ("how", "sentence"),
    [(swallows, "swallows exceptions"), (unmodelled, "BlockPool.num_gpu_blocks")],
)
def test_what_cannot_be_judged_is_said(how: Any, sentence: str) -> None:
    configuration = single_group(SLIDING, 1, 1, 2, False, 3)
    with pytest.raises(CannotJudge, match=sentence):
        explored(configuration, OddLookup(configuration, how), 3)


def test_a_spent_budget_is_no_result() -> None:
    configuration = single_group(FULL, 1, 1, None, False, 8)
    with pytest.raises(BudgetExceeded):
        explored(configuration, ReferenceLookup(configuration), 8, budget=3)


def test_coarse_merging_still_finds_a_fault_and_claims_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration = single_group(SLIDING, 1, 1, 5, False, 18)
    subject = BrokenSubject(shape=longer_tail)
    monkeypatch.setattr(checked, "explore", functools.partial(explore, budget=1_000))
    result = check_lookup(subject, configuration)
    assert result.statuses["lookup_returns_longest_valid_hit"] is Status.REFUTED
    assert result.statuses["hit_has_every_block_attention_reads"] is Status.INCONCLUSIVE
    assert "too much diverges" in result.detail

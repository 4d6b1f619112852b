"""The check of the block pool: nothing on the reference, and each fault found by few steps."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hitproof.conformance.checks import pool as pool_check
from hitproof.conformance.checks.pool import check_pool, is_judged_once
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence, PoolEvidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.pools import Key, PoolSnapshot
from hitproof.conformance.tests.plain_pool import PlainPool
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.spec.groups import GroupKind

PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)

IN_USE = "block_in_use_is_never_evicted"
ORDER = "least_recently_used_block_goes_first"
COUNT = "free_count_is_free_queue_length"
NULL = "null_block_is_never_served"
NAMES = "cached_key_names_its_content"


class TouchLeavesInQueue(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        for block in filter(None, blocks):
            self.ref_counts[block] += 1


class TouchDoesNotCount(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        for block in filter(None, blocks):
            if self.ref_counts[block] == 0:
                super().touch([block])


class TouchCountsTwice(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        super().touch([*blocks, *blocks])


class TouchTakesOffAlways(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        for block in filter(None, blocks):
            self.free_count -= self.ref_counts[block] > 0
            super().touch([block])


class TouchOfNull(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        if 0 in blocks:
            self.free_queue.remove(0)
        super().touch(blocks)


class TouchEvicts(PlainPool):
    def touch(self, blocks: Sequence[int]) -> None:
        super().touch(blocks)
        self.evict_blocks([block for block in blocks if self.ref_counts[block] > 1])


class FreeTwice(PlainPool):
    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks)
        for block in filter(None, blocks):
            if self.ref_counts[block] == 0:
                self._join_queue(block)


class FreeNull(PlainPool):
    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks)
        if 0 in blocks:
            self._join_queue(0)


class FreeLeaks(PlainPool):
    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks[:2])
        for block in blocks[2:]:
            self.ref_counts[block] -= 1


class FreeCountDrifts(PlainPool):
    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks)
        self.free_count += len(blocks) > 1


class GetHandsOutTwice(PlainPool):
    def get_new_blocks(self, count: int) -> list[int]:
        blocks = super().get_new_blocks(count)
        return [*blocks[:-1], 1] if count > 2 else blocks


class GetKeepsStaleKeys(PlainPool):
    def get_new_blocks(self, count: int) -> list[int]:
        carried, self.carried = self.carried, [set() for _ in self.carried]
        blocks = super().get_new_blocks(count)
        self.carried = carried
        return blocks


class GetForgetsTheHashOnly(PlainPool):
    def _forget(self, block: int) -> None:
        self.carried[block] = set()


class CacheMixesGroups(PlainPool):
    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        return super().get_cached_block(block_hash, [0] * len(groups))


class LookupServesNull(PlainPool):
    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        found = super().get_cached_block(block_hash, groups)
        return found and [0 if len(groups) > 1 else block for block in found]


class EvictDoesNothing(PlainPool):
    def evict_blocks(self, blocks: Sequence[int]) -> None:
        pass


class ResetWhileInUse(PlainPool):
    def reset_prefix_cache(self) -> bool:
        self.evict_blocks(range(len(self.ref_counts)))
        return True


class ResetRefuses(PlainPool):
    def reset_prefix_cache(self) -> bool:
        return False


class GetHandsOutNullAtOnce(PlainPool):
    def get_new_blocks(self, count: int) -> list[int]:
        return [*super().get_new_blocks(count)[:-1], 0]


class GetHandsOutLess(PlainPool):
    def get_new_blocks(self, count: int) -> list[int]:
        return super().get_new_blocks(max(count - 1, 1))


class CacheOfNull(PlainPool):
    def cache_full_block(self, block: int, key: Key) -> None:
        super().cache_full_block(block, key)
        self.named[key].append(0)


class LookupOfAllGroupsOnly(PlainPool):
    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        found = super().get_cached_block(block_hash, groups)
        return found if len(groups) > 1 or block_hash == b"y" else None


class ResetNeverClears(PlainPool):
    def reset_prefix_cache(self) -> bool:
        super().reset_prefix_cache()
        return False


class LateDrift(PlainPool):
    """What merging cannot see: a counter that does not show until many blocks went by."""

    gone = 0

    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks)
        self.gone += len(blocks)
        if self.gone > 20:
            self.free_count -= 1


class ScratchGoesLast(PlainPool):
    """As vLLM up to 0.22."""

    def free_blocks(self, blocks: Sequence[int]) -> None:
        scratch = [block for block in blocks if self.ref_counts[block] == 1]
        super().free_blocks(blocks)
        for block in scratch:
            if not self.carried[block]:
                self.free_queue.remove(block)
                self.free_queue.append(block)


class FreeHeadFirst(PlainPool):
    def free_blocks(self, blocks: Sequence[int]) -> None:
        super().free_blocks(blocks[::-1])


class GetTakesTheLast(PlainPool):
    def get_new_blocks(self, count: int) -> list[int]:
        self.free_queue = self.free_queue[-count:] + self.free_queue[:-count]
        return super().get_new_blocks(count)


BROKEN: dict[type[PlainPool], tuple[str, Divergence, Code]] = {
    TouchLeavesInQueue: (IN_USE, Divergence.UNSOUND, Code.BLOCK_IN_USE_QUEUED),
    TouchDoesNotCount: (IN_USE, Divergence.UNSOUND, Code.REFERENCE_COUNT_TOO_LOW),
    TouchCountsTwice: (IN_USE, Divergence.WASTE, Code.REFERENCE_COUNT_TOO_HIGH),
    TouchTakesOffAlways: (COUNT, Divergence.WASTE, Code.FREE_COUNT_TOO_LOW),
    TouchOfNull: (COUNT, Divergence.CRASH, Code.RAISES_EXCEPTION),
    TouchEvicts: (NAMES, Divergence.LOST_HIT, Code.KEY_LOST),
    FreeTwice: (COUNT, Divergence.UNSOUND, Code.BLOCK_QUEUED_TWICE),
    FreeNull: (NULL, Divergence.UNSOUND, Code.NULL_BLOCK_QUEUED),
    FreeLeaks: (COUNT, Divergence.WASTE, Code.UNUSED_BLOCK_NOT_QUEUED),
    FreeCountDrifts: (COUNT, Divergence.CRASH, Code.FREE_COUNT_TOO_HIGH),
    GetHandsOutTwice: (IN_USE, Divergence.UNSOUND, Code.BLOCK_IN_USE_HANDED_OUT),
    GetKeepsStaleKeys: (NAMES, Divergence.UNSOUND, Code.KEY_NAMES_OTHER_CONTENT),
    GetForgetsTheHashOnly: (NAMES, Divergence.UNSOUND, Code.KEYS_DISAGREE),
    CacheMixesGroups: (NAMES, Divergence.UNSOUND, Code.UNCACHED_BLOCK_FOUND),
    LookupServesNull: (NULL, Divergence.UNSOUND, Code.NULL_BLOCK_FOUND),
    EvictDoesNothing: (NAMES, Divergence.UNSOUND, Code.KEY_NOT_REMOVED),
    ResetWhileInUse: (NAMES, Divergence.UNSOUND, Code.RESET_WHILE_IN_USE),
    ResetRefuses: (NAMES, Divergence.UNSOUND, Code.KEY_NOT_REMOVED),
    GetHandsOutNullAtOnce: (NULL, Divergence.UNSOUND, Code.NULL_BLOCK_HANDED_OUT),
    GetHandsOutLess: (COUNT, Divergence.CRASH, Code.HANDED_OUT_COUNT_WRONG),
    CacheOfNull: (NULL, Divergence.UNSOUND, Code.NULL_BLOCK_CACHED),
    LookupOfAllGroupsOnly: (NAMES, Divergence.LOST_HIT, Code.CACHED_BLOCK_NOT_FOUND),
    ResetNeverClears: (NAMES, Divergence.WASTE, Code.RESET_REFUSED),
    LateDrift: (COUNT, Divergence.WASTE, Code.FREE_COUNT_TOO_LOW),
    ScratchGoesLast: (ORDER, Divergence.LOST_HIT, Code.SCRATCH_BLOCK_NOT_FIRST),
    FreeHeadFirst: (ORDER, Divergence.LOST_HIT, Code.EVICTION_ORDER_WRONG),
    GetTakesTheLast: (ORDER, Divergence.LOST_HIT, Code.EVICTION_ORDER_WRONG),
}


ALSO_FALSE = {
    Code.BLOCK_IN_USE_QUEUED: COUNT,
    Code.NULL_BLOCK_QUEUED: COUNT,
    Code.NULL_BLOCK_FOUND: NAMES,
    Code.NULL_BLOCK_CACHED: NAMES,
}
"""The claim whose sentence a code makes false beside that which it is booked under."""


class WithPool(ReferenceSubject):
    """The reference with another pool."""

    def __init__(self, pool: Callable[[int], Any]) -> None:
        super().__init__()
        self._pool = pool

    def pool(self, num_blocks: int) -> Any:
        return self._pool(num_blocks)


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four operations in a row show the faults."""
    monkeypatch.setattr(pool_check, "_DEPTH", 4)


@pytest.mark.slow
def test_the_reference_conforms() -> None:
    assert set(check_pool(WithPool(PlainPool), PLAIN).statuses.values()) == {Status.PROVED}
    result = check_pool(ReferenceSubject(), PLAIN)
    assert result.statuses == dict.fromkeys((IN_USE, COUNT, NULL, NAMES, ORDER), Status.PROVED)
    assert result.paths > result.states > 1_000


@pytest.mark.parametrize("profile", Profile)
def test_one_configuration_of_each_profile_is_judged(profile: Profile) -> None:
    assert len([c for c in configurations(profile) if is_judged_once(c)]) == 1


def test_other_configurations_settle_nothing() -> None:
    result = check_pool(ReferenceSubject(), single_group(GroupKind.MAMBA, 4, 1, None, False, 24))
    assert (result.statuses, result.paths) == ({}, 0)


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("broken", BROKEN)
def test_each_fault_is_refuted(broken: type[PlainPool]) -> None:
    claim, divergence, code = BROKEN[broken]
    result = check_pool(WithPool(broken), PLAIN)
    assert result.statuses[claim] is Status.REFUTED
    found = [e.signature for e in result.evidence]
    assert (claim, divergence, code) in [(s.claim, s.divergence, s.code) for s in found]
    # What comes after a divergence is not explored, unless only the order is wrong.
    booked = {signature.claim for signature in found}
    refuted = booked | {ALSO_FALSE[s.code] for s in found if s.code in ALSO_FALSE}
    rest = Status.PROVED if booked == {ORDER} else Status.INCONCLUSIVE
    assert result.statuses == {
        each: Status.REFUTED if each in refuted else rest for each in result.statuses
    }
    assert result.refuting.keys() == refuted
    assert bool(result.detail) is (rest is Status.INCONCLUSIVE)
    for evidence in result.evidence:
        assert CLAIMS[evidence.signature.claim]
        assert evidence.signature.kind == "block_pool"
        assert Evidence.from_json(evidence.as_json()) == evidence


def test_every_claim_of_the_pool_is_refuted_by_some_fault() -> None:
    assert {claim for claim, _, _ in BROKEN.values()} == {IN_USE, COUNT, NULL, NAMES, ORDER}


@pytest.mark.usefixtures("shallow")
def test_a_finding_is_the_shortest_sequence_and_shows_the_pool() -> None:
    subject = WithPool(TouchLeavesInQueue)
    (evidence,) = (e for e in check_pool(subject, PLAIN).evidence if "queued" in e.signature.code)
    small = shrink(subject, evidence)
    assert small.signature == evidence.signature
    shown = finding(small, "somewhere")
    assert [step.split("(")[0] for step in shown.given[1:]] == [
        "A: get_new_blocks",
        "A: cache_full_blocks",
        "A: free_blocks",
        "A: touch",
    ]
    block, *rows, count = shown.strip.splitlines()
    assert block.split() == ["block", "references", "held", "by", "free", "queue", "keys", "cache"]
    assert len(rows) == 4
    assert count == "count of free blocks: 3"


@pytest.mark.usefixtures("shallow")
def test_a_long_sequence_is_cut_down_to_what_it_takes() -> None:
    (evidence,) = check_pool(WithPool(LateDrift), PLAIN).evidence
    assert isinstance(evidence, PoolEvidence)
    freed = [step for step in evidence.steps if "free_blocks" in step]
    blocks = [step.split("(")[1].count(",") + 1 for step in freed]
    assert sum(blocks) > 20
    assert sum(blocks[:-1]) <= 20
    assert len(evidence.steps) < 30


@pytest.mark.usefixtures("shallow")
def test_a_pool_that_does_not_do_the_same_twice_is_not_judged() -> None:
    made: list[Any] = []

    class Fickle(PlainPool):
        def snapshot(self) -> PoolSnapshot:
            made.append(self)
            if len(made) % 50 == 0:
                self.free_count += 1
            return super().snapshot()

    result = check_pool(WithPool(Fickle), PLAIN)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "the same" in result.detail


def test_a_subject_without_a_pool_is_not_judged() -> None:
    def missing(_: int) -> Any:
        raise CannotJudge("BlockPool has no free_block_queue")

    result = check_pool(WithPool(missing), PLAIN)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert result.detail == "BlockPool has no free_block_queue"

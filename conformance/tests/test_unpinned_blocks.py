"""Unpinned blocks in the check of the block pool: nothing on a right pool, each fault found."""

from collections.abc import Sequence

import pytest

from hitproof.conformance.checks.pool import check_pool
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.tests.plain_pool import PlainPool
from hitproof.spec.groups import GroupKind

PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)


class Unpinning(PlainPool):
    can_unpin = True

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.watched: set[int] = set()
        self.reused: list[int] = []

    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        self.free_blocks(blocks)
        for block in blocks:
            if self.ref_counts[block] == 0:
                self.free_queue.remove(block)
                self.free_queue.append(block)
        self.watched.update(blocks)

    def take_reused(self) -> Sequence[int]:
        reused, self.reused = self.reused, []
        return reused

    def get_new_blocks(self, count: int) -> list[int]:
        blocks = super().get_new_blocks(count)
        self.report(blocks)
        return blocks

    def reset_prefix_cache(self) -> bool:
        done = super().reset_prefix_cache()
        if done:
            self.report([*self.watched])
        return done

    def report(self, blocks: Sequence[int]) -> None:
        self.reused += [block for block in blocks if block in self.watched]
        self.watched.difference_update(blocks)


class QueuesFirst(Unpinning):
    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        super().unpin_blocks(blocks)
        for block in blocks:
            if self.ref_counts[block] == 0:
                self.free_queue.remove(block)
                self.free_queue.insert(0, block)


class ReportsNothing(Unpinning):
    def report(self, blocks: Sequence[int]) -> None:
        pass


class ReportsAgain(Unpinning):
    def report(self, blocks: Sequence[int]) -> None:
        self.reused += [block for block in blocks if block in self.watched]


class ForgetsTheReset(Unpinning):
    def reset_prefix_cache(self) -> bool:
        return PlainPool.reset_prefix_cache(self)


class ReportsTouched(Unpinning):
    def touch(self, blocks: Sequence[int]) -> None:
        super().touch(blocks)
        self.report(blocks)


class KeepsTheReference(Unpinning):
    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        self.watched.update(blocks)


class CannotUnpin(ReportsNothing):
    can_unpin = False


class Pools:
    def __init__(self, pool: type[PlainPool]) -> None:
        self.pool = pool


def found(pool: type[PlainPool]) -> set[str]:
    return {str(each.signature.defect) for each in check_pool(Pools(pool), PLAIN).evidence}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("pool", [Unpinning, PlainPool, CannotUnpin])
def test_a_right_pool_passes(pool: type[PlainPool]) -> None:
    assert found(pool) == set()


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("pool", "code"),
    [
        (QueuesFirst, "unpinned-block-not-last"),
        (ReportsNothing, "reuse-reported-wrong(method=get_new_blocks)"),
        (ReportsAgain, "reuse-reported-wrong(method=get_new_blocks)"),
        (ForgetsTheReset, "reuse-reported-wrong(method=reset_prefix_cache)"),
        (ReportsTouched, "reuse-reported-wrong(method=touch)"),
        (KeepsTheReference, "reference-count-too-high(method=unpin_blocks)"),
    ],
)
def test_a_broken_pool_is_caught(pool: type[PlainPool], code: str) -> None:
    assert code in found(pool)

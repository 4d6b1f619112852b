"""The clauses on the block pool, on ints: one block at a time, and a small pool by hand."""

from dataclasses import replace
from itertools import product

from hitproof.spec import pool
from hitproof.spec.pool import CACHE, EVICT, FREE, GET, OPERATIONS, RESET, TOUCH, BlockState

FREE_BLOCK = BlockState(False, ref_count=0, holders=0, queued=1, keys=0, named=0, stale=0)
CACHED = replace(FREE_BLOCK, keys=1, named=1)
HELD = replace(FREE_BLOCK, ref_count=1, holders=1, queued=0)
SHARED = replace(HELD, ref_count=2, holders=2, keys=1, named=1)
NULL = BlockState(True, ref_count=-3, holders=5, queued=0, keys=0, named=0, stale=0)
SOUND = (FREE_BLOCK, CACHED, HELD, SHARED, NULL, replace(NULL, ref_count=0))

UNSOUND = {
    "counts too few": replace(HELD, holders=2),
    "counts too many": replace(SHARED, holders=1),
    "held less than not at all": replace(HELD, ref_count=-1, holders=-1),
    "in use and in the queue": replace(HELD, queued=1),
    "unused and not in the queue": replace(FREE_BLOCK, queued=0),
    "twice in the queue": replace(FREE_BLOCK, queued=2),
    "less than not at all in the queue": replace(HELD, queued=-1),
    "not in the cache": replace(CACHED, named=0),
    "in the cache without a key": replace(FREE_BLOCK, named=1),
    "holds other content": replace(CACHED, stale=1),
    "null in the queue": replace(NULL, queued=1),
    "null in the queue, unreferenced": replace(NULL, queued=1, ref_count=0),
    "null with a key": replace(NULL, keys=1, named=1),
    "null in the cache": replace(NULL, named=1),
}


def test_sound_and_unsound_blocks() -> None:
    assert all(pool.is_sound(block) for block in SOUND)
    assert [name for name, block in UNSOUND.items() if pool.is_sound(block)] == []


def test_each_clause_alone() -> None:
    assert not pool.counts_holders(UNSOUND["counts too few"])
    assert pool.counts_holders(replace(HELD, queued=1, stale=1))
    assert not pool.is_queued_when_unused(UNSOUND["in use and in the queue"])
    assert pool.is_queued_when_unused(replace(HELD, holders=7, stale=1))
    assert not pool.is_named_for_its_content(UNSOUND["holds other content"])
    assert not pool.is_named_for_its_content(UNSOUND["not in the cache"])
    assert pool.is_named_for_its_content(replace(SHARED, holders=7, queued=1))
    assert pool.is_kept_apart(replace(SHARED, queued=1))
    for field in ("queued", "keys", "named"):
        assert not pool.is_kept_apart(replace(NULL, **{field: 1}))


def test_unused_is_not_null_and_not_referred_to() -> None:
    assert pool.is_unused(FREE_BLOCK)
    assert not pool.is_unused(HELD)
    assert not pool.is_unused(replace(NULL, ref_count=0))
    assert [pool.vacancy(replace(HELD, ref_count=n)) for n in range(3)] == [1, 0, 0]


def test_keys_are_kept_when_none_is_lost_and_content_stays() -> None:
    for before, after in product(range(3), repeat=2):
        named = pool.keeps_its_keys(replace(HELD, named=before), replace(HELD, named=after))
        assert named is (after >= before)
        stale = pool.keeps_its_keys(replace(HELD, stale=before), replace(HELD, stale=after))
        assert stale is (after <= before)


def test_what_is_written_anew_is_not_what_its_names_describe() -> None:
    assert pool.rewritten(replace(HELD, named=2)) == replace(HELD, named=2, stale=2)


WHEN_POSSIBLE = {
    GET.name: {"free", "cached"},
    TOUCH.name: {"free", "cached", "held", "shared"},
    FREE.name: {"held", "shared"},
    CACHE.name: {"held"},
    EVICT.name: {"free", "cached", "held", "shared"},
    RESET.name: {"free", "cached", "null"},
}
NAMED = {"free": FREE_BLOCK, "cached": CACHED, "held": HELD, "shared": SHARED, "null": NULL}


def test_what_callers_may_ask_for() -> None:
    for operation in OPERATIONS:
        possible = {n for n, block in NAMED.items() if operation.possible(block)}
        assert possible == WHEN_POSSIBLE[operation.name], operation.name
    assert not FREE.possible(replace(HELD, holders=0))
    assert CACHE.possible(replace(SHARED, keys=0, ref_count=3))


def test_what_operations_do() -> None:
    def after(operation: pool.Operation, block: BlockState) -> BlockState:
        return operation.after(block)

    assert after(GET, FREE_BLOCK) == after(GET, CACHED) == HELD
    assert after(GET, replace(CACHED, stale=1)) == HELD
    # Faults that were there before are not covered up.
    leaked = after(GET, replace(FREE_BLOCK, ref_count=2, holders=4, queued=2))
    assert (leaked.ref_count, leaked.holders) == (3, 5)
    assert after(FREE, replace(HELD, queued=1)).queued == 2
    assert after(CACHE, SHARED) == replace(SHARED, keys=2, named=2)
    assert after(TOUCH, CACHED) == replace(HELD, keys=1, named=1)
    assert after(TOUCH, after(TOUCH, CACHED)) == SHARED
    assert after(FREE, after(FREE, SHARED)) == CACHED
    assert after(FREE, SHARED) == replace(HELD, keys=1, named=1)
    assert after(CACHE, HELD) == replace(HELD, keys=1, named=1)
    for operation in (EVICT, RESET):
        assert after(operation, replace(SHARED, stale=1)) == replace(SHARED, keys=0, named=0)


def test_the_count_follows_the_first_and_the_last_holder() -> None:
    decrease = {
        (before, after): pool.free_count_decrease(
            replace(HELD, ref_count=before), replace(HELD, ref_count=after)
        )
        for before, after in product(range(3), repeat=2)
    }
    assert {change for change, by in decrease.items() if by == 1} == {(0, 1), (0, 2)}
    assert {change for change, by in decrease.items() if by == -1} == {(1, 0), (2, 0)}
    assert set(decrease.values()) == {-1, 0, 1}
    assert pool.is_free_queue_length(2, 2)
    assert not pool.is_free_queue_length(2, 3)

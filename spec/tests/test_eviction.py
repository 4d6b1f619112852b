"""The clauses on the order of eviction, on ints: what they say of any two blocks, and of queues."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

from hitproof.spec import eviction
from hitproof.spec.eviction import Queued


def blocks() -> Iterator[Queued]:
    for free, place, keyed, used in product((True, False), range(2), (True, False), range(2)):
        yield Queued(free, place, keyed, used)


PAIRS = list(product(list(blocks()), repeat=2))


def test_what_each_clause_says_of_two_blocks() -> None:
    for first, second in PAIRS:
        front = first.place < second.place
        assert eviction.goes_before(first, second) is front
        right = eviction.is_least_recently_used_first(first, second)
        cached = first.free and second.free and first.keyed and second.keyed
        wrong = cached and first.used < second.used and not front
        assert right is (not wrong)
        assert eviction.is_taken_from_the_front(first, second) is (front or not second.free)
        behind = second.place < first.place
        joins = eviction.joins_at_the_end(first, second)
        assert joins is (behind or not first.keyed or not second.free)
        scratch = eviction.joins_before_cached(first, second)
        assert scratch is (front or first.keyed or not (second.free and second.keyed))


def test_only_blocks_that_stay_keep_their_place() -> None:
    front, back = Queued(True, 0, True, 0), Queued(True, 1, True, 0)
    assert eviction.keeps_its_place(front, back, front, back)
    assert not eviction.keeps_its_place(front, back, back, front)
    assert not eviction.keeps_its_place(front, back, back, back)
    assert eviction.keeps_its_place(back, front, front, back)
    assert eviction.keeps_its_place(back, back, back, front)
    gone = [replace(block, free=False) for block in (front, back)]
    assert eviction.keeps_its_place(gone[0], back, back, front)
    assert eviction.keeps_its_place(front, gone[1], back, front)
    assert eviction.keeps_its_place(front, back, gone[1], front)
    assert eviction.keeps_its_place(front, back, back, gone[0])


def test_what_is_left_of_a_prompt_is_a_prefix() -> None:
    # A plain queue that obeys the clauses: tails are given up first, and the front is taken.
    for seed in range(50):
        random, queue, time = Random(seed), list[tuple[int, int, int]](), 0
        for request in range(6):
            for block in reversed(range(random.randint(1, 5))):
                time += 1
                queue.append((request, block, time))
            del queue[: random.randint(0, 4)]
            queued = [Queued(True, place, True, used) for place, (*_, used) in enumerate(queue)]
            for first, second in product(queued, repeat=2):
                assert eviction.is_least_recently_used_first(first, second)
            for each in range(request + 1):
                left = sorted(block for owner, block, _ in queue if owner == each)
                assert left == list(range(len(left)))

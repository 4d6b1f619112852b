"""Admission: whether a whole sequence would fit, given that windows recycle blocks."""

import pytest

from hitproof.reference.tests.building import CHUNKED, SLIDING, manager, request, step
from hitproof.spec.admission import blocks_at_once
from hitproof.spec.groups import Group

WINDOW = Group(SLIDING, 4, window=9)


def test_a_window_admits_a_prompt_longer_than_the_pool() -> None:
    kv = manager(WINDOW, num_blocks=7, max_num_batched_tokens=8)
    new = request("a", range(400))
    assert kv.allocate_slots(new, 8, full_sequence_must_fit=True) is not None
    new.num_computed_tokens = 8
    while new.num_computed_tokens < 400:
        assert step(kv, new, 8)


@pytest.mark.parametrize("batch", [1, 3, 8, 20])
@pytest.mark.parametrize(
    "group", [Group(SLIDING, 4, window=w) for w in (1, 2, 5, 9)] + [Group(CHUNKED, 4, chunk=8)]
)
def test_no_request_holds_more_than_it_is_admitted_with(group: Group, batch: int) -> None:
    kv = manager(group, num_blocks=200, max_num_batched_tokens=batch)
    cap = blocks_at_once(group, batch, 1000)
    running = request("a", range(100))
    while running.num_computed_tokens < 100:
        assert step(kv, running, min(batch, 100 - running.num_computed_tokens))
        (table,) = kv.get_block_ids("a")
        assert sum(block != 0 for block in table) <= cap

"""The contract of a pool of chunks: a pool that keeps it, and one that breaks each part of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hitproof.conformance.scheduling.chunk_pool import ChunkPool
from hitproof.conformance.subject.schedulers import PoolCall

A, B, C, D = ((0, name) for name in "abcd")


def stored(*keys: tuple[int, str], at: Sequence[int], by: str = "r") -> list[PoolCall]:
    """The calls by which these are stored."""
    offer = PoolCall("prepare_store", keys, by, taken=keys, places=tuple(at))
    return [offer, PoolCall("complete_store", keys, by, found=True)]


END, OTHER_END = (PoolCall("on_request_finished", (), by) for by in "rs")
FULL = [*stored(A, B, at=(0, 1)), END, *stored(C, at=(2,), by="s"), OTHER_END]
READ = PoolCall("prepare_load", (A,), "t", places=(0,))
EVICTING = replace(stored(D, at=(1,), by="t")[0], evicted=(B,))
EVICTING_A = replace(EVICTING, evicted=(A,), places=(0,))
COUNTED = PoolCall("get_stats", shares=(1 / 3, 0.0, 1 / 3))
TOLD = PoolCall("take_events", (A, B, C), stored=(True, True, True))
STORE, WRITTEN = stored(A, B, C, at=(0, 1, 2))
OFFERED_AGAIN = PoolCall("prepare_store", (C,), "s", taken=())
EVICTING_C = replace(EVICTING, evicted=(C,), places=(2,))
UNUSED = PoolCall("get_stats", shares=(0.0, 0.0, 0.0))
REFUSED = replace(EVICTING, taken=None, places=(), evicted=())
FOUND, RESET = PoolCall("lookup", (A,), found=True), PoolCall("reset_cache")


def shown(calls: Sequence[PoolCall], threshold: int = 0) -> list[str]:
    """What is wrong with the answers to these calls."""
    judged = ChunkPool(3, threshold).judge(calls)
    return [dict(each.signature.defect.parameters).get("how", "again") for each in judged]


@pytest.mark.parametrize(
    "calls",
    [
        [*FULL, FOUND, READ, COUNTED, TOLD],
        [*FULL, READ, EVICTING],
        [*FULL, READ, PoolCall("complete_load", (A,), "t"), UNUSED],
        [*FULL, replace(READ, keys=(B,), places=(1,)), replace(END, request="t"), EVICTING_A],
        [*FULL, TOLD, RESET, PoolCall("lookup", (A,), found=False), *stored(A, at=(0,))],
        [*FULL, replace(READ, keys=(A, B, C), places=(0, 1, 2)), REFUSED],
        [STORE, OFFERED_AGAIN, WRITTEN, END, OTHER_END, EVICTING_C],
    ],
)
def test_a_pool_that_keeps_its_contract_shows_nothing(calls: list[PoolCall]) -> None:
    assert shown(calls) == []


@pytest.mark.parametrize(
    ("calls", "wrong"),
    [
        (stored(A, B, at=(0, 0)), "place"),
        (stored(A, at=(3,)), "place"),
        ([*FULL, replace(EVICTING, places=(2,))], "place"),
        ([*FULL, READ, EVICTING_A], "evicted"),
        ([*FULL[:1], replace(FOUND, found=True)], "found"),
        ([FOUND], "found"),
        ([*FULL[:1], READ], "unwritten"),
        ([*FULL, replace(READ, places=(1,))], "elsewhere"),
        ([*FULL, READ, replace(READ, request="u")], "again"),
        ([*FULL, REFUSED], "refused"),
        ([*FULL[:2], *stored(C, at=(2,)), replace(EVICTING, evicted=(B, C))], "early"),
        ([*FULL, replace(EVICTING, evicted=(C,), places=(2,))], "order"),
        ([*FULL, EVICTING_A], "depth"),
        ([*FULL, replace(FOUND, found=False)], "forgotten"),
        ([*FULL, replace(FOUND, found=None)], "forgotten"),
        ([replace(FULL[0], taken=(A,), places=(0,))], "declined"),
        ([*FULL, replace(TOLD, stored=(True, True, False))], "events"),
        ([*FULL, RESET, TOLD], "events"),
        ([*FULL, COUNTED], "shares"),
        ([*FULL, READ, replace(COUNTED, shares=(1 / 3, 1 / 3, 0.0))], "shares"),
    ],
)
def test_each_part_of_the_contract_is_judged(calls: list[PoolCall], wrong: str) -> None:
    assert shown(calls) == [wrong]


def test_what_a_request_uses_after_it_begins_again_may_lie_before_what_it_used() -> None:
    pool = ChunkPool(3)
    assert not [*pool.judge(stored(B, at=(0,)))]
    pool.restart("r")
    assert not [*pool.judge([*stored(A, C, at=(1, 2)), END])]
    assert not [*pool.judge([replace(EVICTING, evicted=(B,), places=(0,))])]


def test_what_is_offered_too_rarely_is_not_stored() -> None:
    once = PoolCall("prepare_store", (A,), "r")
    again = replace(once, taken=(A,), places=(0,))
    assert shown([once, again], threshold=2) == []
    assert shown([again], threshold=2) == ["declined"]
    assert shown([once, once], threshold=2) == ["declined"]

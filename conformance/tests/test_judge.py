"""The judge of managers says, by its code, what is wrong with an answer and with the pool."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.books import Books
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.subject.managers import Hit, Observation, Stored
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import HitGranularity

FULL = Group(GroupKind.FULL_ATTENTION, 2)
SLIDING = Group(GroupKind.SLIDING_WINDOW, 2, window=3)
MAMBA = Group(GroupKind.MAMBA, 4)
REQUESTS = {
    "a": RequestInput(prompt=tuple(range(9))),
    "b": RequestInput(prompt=tuple(range(9)), skip_reading_prefix_cache=True),
}


def judge(*groups: Group, fine: bool = False, **engine: Any) -> tuple[Judge, Prefixes]:
    configuration = EngineConfiguration(groups, 5, 2, 32, **engine)
    prefixes = Prefixes(REQUESTS, 2)
    granularity = HitGranularity.FINE if fine else HitGranularity.ALIGNED
    policies = JudgedPolicies(granularity=granularity)
    return Judge(configuration, REQUESTS, prefixes, policies), prefixes


SOUND = Observation(
    tables={"a": ((1, 2),)},
    ref_counts={1: 1, 2: 1},
    cached={},
    free_queue=(3, 4),
    num_free_blocks=2,
    usage=0.5,
    common_prefix=None,
    events=(),
    stats={},
)
TWICE = {"tables": {"a": ((1, 1),)}, "ref_counts": {1: 2}, "usage": 0.25}
BESIDE: dict[str, Any] = {
    "tables": {"a": ((1, 2),), "b": ((1, 3),)},
    "ref_counts": {1: 2, 2: 1, 3: 1},
    "free_queue": (4,),
    "num_free_blocks": 1,
    "usage": 0.75,
}


def test_a_sound_pool() -> None:
    assert not [*judge(FULL)[0].pool(SOUND)]
    beside = replace(SOUND, **BESIDE)
    shared = replace(beside, common_prefix={"a": (1,), "b": (1,)})
    assert not [*judge(FULL)[0].pool(shared)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"free_queue": (3, 4, 4), "num_free_blocks": 3}, Code.FREE_QUEUE_WRONG),
        ({"num_free_blocks": 3}, Code.FREE_COUNT_WRONG),
        ({"ref_counts": {1: 1, 2: 2}}, Code.REFERENCE_COUNT_WRONG),
        ({"free_queue": (2, 3, 4), "num_free_blocks": 3}, Code.BLOCK_FREE_AND_IN_USE),
        (TWICE | {"free_queue": (2, 3, 4), "num_free_blocks": 3}, Code.TWO_CONTENTS_IN_BLOCK),
        ({"free_queue": (3,), "num_free_blocks": 1, "usage": 0.75}, Code.BLOCK_LEAKED),
        ({"cached": {(0, "x"): (1,), (0, "y"): (1,)}}, Code.BLOCK_UNDER_TWO_KEYS),
        ({"usage": 0.6}, Code.USAGE_WRONG),
        (BESIDE | {"common_prefix": {"a": (2,), "b": (1,)}}, Code.COMMON_PREFIX_NOT_SHARED),
        (BESIDE | {"common_prefix": {"a": (0,), "b": (3,)}}, Code.COMMON_PREFIX_NOT_SHARED),
    ],
)
def test_what_is_wrong_with_a_pool(changes: dict[str, Any], code: Code) -> None:
    found = next(judge(FULL)[0].pool(replace(SOUND, **changes)))
    assert found.signature.code is code
    assert found.spec != found.actual


@pytest.mark.parametrize(("start", "right"), [(0, True), (2, True), (4, False)])
def test_the_first_block_of_an_event_starts_between_its_parent_and_its_end(
    start: int, right: bool
) -> None:
    prefixes = Prefixes(REQUESTS, 2)
    books = Books(EngineConfiguration((FULL, MAMBA), 5, 2, 32), REQUESTS, prefixes, fine=True)
    parent = prefixes.name("a", start) if start else None
    event = Stored(
        1, (prefixes.name("a", 4),), parent, tuple(range(start, 4)), 4 - start, None, None
    )
    found = {
        code for _, (code, _, _), _ in books.wrong_report("a", Hit(0, ((), ())), [event], SOUND)
    }
    assert right == (Code.EVENT_DESCRIPTION_WRONG not in found)


@pytest.mark.parametrize(
    ("request_name", "hit", "code"),
    [
        ("a", Hit(3, ((1, 2),)), Code.HIT_UNALIGNED),
        ("a", Hit(8, ((1, 2, 3, 4),)), Code.HIT_TOO_LONG),
        ("a", Hit(2, ((1,),)), Code.HIT_TOO_SHORT),
        ("b", Hit(4, ((1, 2),)), Code.HIT_FOR_SKIPPING_REQUEST),
        ("a", Hit(4, ((1, 2, 3),)), Code.TABLE_LENGTH_WRONG),
        ("a", Hit(4, ((1, 3),)), Code.TABLE_BLOCK_WRONG),
    ],
)
def test_what_is_wrong_with_a_hit(request_name: str, hit: Hit, code: Code) -> None:
    judging, prefixes = judge(FULL)
    cached = {(0, prefixes.name("a", end)): (end // 2,) for end in (2, 4)}
    assert judging.hit("a", 9, Hit(4, ((1, 2),)), cached) is None
    found = judging.hit(request_name, 9, hit, cached)
    assert found is not None
    assert found.signature.code is code


@pytest.mark.parametrize(
    ("table", "spec", "actual"),
    [
        ((1, 2, 3), "block table of group 0 of length 2", "block table of length 3: (1, 2, 3)"),
        ((1, 3), "block 2 at position 1 of the block table of group 0", "block 3"),
        ((1, 0), "block 2 at position 1 of the block table of group 0", "the null block"),
    ],
)
def test_a_wrong_table_shows_what_is_expected_and_what_is_there(
    table: tuple[int, ...], spec: str, actual: str
) -> None:
    judging, prefixes = judge(FULL)
    cached = {(0, prefixes.name("a", end)): (end // 2,) for end in (2, 4)}
    found = judging.hit("a", 9, Hit(4, (table,)), cached)
    assert found is not None
    assert (found.spec, found.actual) == (f"hit of 4 tokens: {spec}", actual)


def test_what_retention_keeps_and_leaves_out() -> None:
    # Nine tokens: of the hit of eight, a window of three reads block 3.
    judging, _ = judge(SLIDING, retention_interval=0)
    kept, left_out = judging.registered("a", 0, 1, True), judging.registered("a", 0, 3, False)
    assert kept is not None
    assert left_out is not None
    assert kept.signature.code is Code.UNPROMISED_BLOCK_REGISTERED
    assert str(left_out.signature.defect) == "promised-block-unregistered(hit=resend)"
    assert judging.registered("a", 0, 3, True) is None
    assert judging.registered("a", 0, 1, False) is None


def test_entries_inside_blocks() -> None:
    judging, _ = judge(MAMBA, FULL, fine=True, retention_interval=0)
    kept = judging.not_promised(0, 2)
    assert kept.signature.code is Code.UNPROMISED_ENTRY_REGISTERED
    for given_up, code in (
        (False, Code.PROMISED_ENTRY_UNREGISTERED),
        (True, Code.PROMISED_ENTRY_EVICTED),
    ):
        missing = judging.left_out_inside("a", 0, "resend", [6], given_up)
        assert (missing.signature.code, dict(missing.signature.defect.parameters)) == (
            code,
            {"hit": "resend"},
        )


@pytest.mark.parametrize(("copied", "wrong"), [((), True), ((4,), False)])
def test_the_target_of_a_copy_is_taken_and_may_be_free_again(
    copied: tuple[int, ...], wrong: bool
) -> None:
    """Blocks 4 and 5 are taken from the front; 4 is copied into, and given back."""
    books = Books(EngineConfiguration((FULL,), 7, 2, 32), REQUESTS, Prefixes(REQUESTS, 2), True)
    before = Observation({}, {}, {}, (4, 5, 6), 3, 0.0, {}, None, {})
    seen = replace(before, free_queue=(4, 6), num_free_blocks=2)
    found = [code for code, *_ in books.wrong(before, seen, "allocate_slots", (), "a", copied)]
    assert (found == [Code.EVICTION_ORDER_WRONG]) is wrong
    assert wrong or not found

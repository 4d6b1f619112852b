"""The manager over random lives of requests, and broken managers that it must tell apart."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hitproof.reference import groups, request
from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.pool import BlockPool
from hitproof.reference.registration import Registration
from hitproof.reference.spec_groups import SpecGroup
from hitproof.reference.tests.life import Life

QUICK = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
def test_every_claim_holds_after_every_step() -> None:
    run_state_machine_as_test(Life, settings=QUICK)


def skip_less(function: Any) -> Any:
    return lambda group, computed: function(group, computed) + 2


def ignore_adapters(function: Any) -> Any:
    return lambda start, end, _, *others: function(start, end, None, *others)


def leak(function: Any) -> Any:
    return lambda pool, blocks, scratch_first: function(pool, [*blocks][:-1], scratch_first)


def touch_less(function: Any) -> Any:
    def touch(pool: BlockPool, blocks: list[KVCacheBlock]) -> None:
        function(pool, blocks[:-1])

    return touch


def forget_to_evict(_: Any) -> Any:
    return lambda *_: None


def short_hit(function: Any) -> Any:
    def tables(group: SpecGroup, hashes: Any, candidate: int, *rest: Any) -> Any:
        return function(group, hashes, max(candidate - group.block_size, 0), *rest)

    return tables


def register_early(_: Any) -> Any:
    return lambda _, group, computed: computed + group.block_size


def register_less(function: Any) -> Any:
    def mask(registration: Registration, *about: Any) -> Any:
        kept = function(registration, *about)
        return lambda first, end: [False, *kept(first + 1, end)]

    return mask


MUTANTS = [
    (groups, "num_skipped_tokens", skip_less),
    (request, "extra_keys", ignore_adapters),
    (BlockPool, "free_blocks", leak),
    (BlockPool, "touch", touch_less),
    (BlockPool, "_evict", forget_to_evict),
    (SpecGroup, "tables", short_hit),
    (Registration, "num_tokens", register_early),
    (Registration, "mask", register_less),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "mutate"), MUTANTS, ids=[mutate.__name__ for _, _, mutate in MUTANTS]
)
def test_a_broken_manager_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mutate: Any
) -> None:
    monkeypatch.setattr(owner, name, mutate(getattr(owner, name)))
    search = settings(
        QUICK, max_examples=1000, phases=[Phase.generate], derandomize=True, database=None
    )
    with pytest.raises((AssertionError, KeyError, IndexError, ValueError)):
        run_state_machine_as_test(Life, settings=search)

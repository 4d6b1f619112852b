"""Lockstep finds every fault that a manager has, says which, and has none of its own."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from conformance.histories import EngineConfiguration
from conformance.history_generator import history
from conformance.history_shrinking import shrink
from conformance.lockstep import run
from conformance.lockstep_outcome import Outcome
from conformance.managers import Allocation, Hit, Manager, Observation, Tables
from conformance.reference_managers import ReferenceManager, ReferenceManagers
from reference.policies import VLLM_0_23, FreeOrder, Policies
from spec.claims import Divergence
from spec.retention import LookaheadHorizon

POLICIES = Policies()
REFERENCE = ReferenceManagers(POLICIES)
HISTORIES = 40


def outcome(number: int, real: Any, reference: Any = REFERENCE) -> Outcome:
    return run(history(f"test:{number}"), real, reference, POLICIES.horizon)


def shown(found: Outcome) -> list[str]:
    """What an outcome shows, in words."""
    words = [f"{f.signature.divergence}: {f.signature.pattern}" for f in found.findings]
    return words + ([f"fault: {found.fault.field}"] if found.fault else [])


def test_the_reference_is_in_lockstep_with_itself() -> None:
    for number in range(HISTORIES):
        found = outcome(number, REFERENCE)
        assert shown(found) == []
        assert found.steps == len(history(f"test:{number}").steps)


class Broken:
    """The reference with its manager wrapped."""

    def __init__(
        self, wrap: Callable[[ReferenceManager], Manager], policies: Policies = POLICIES
    ) -> None:
        self._wrap = wrap
        self._reference = ReferenceManagers(policies)

    def start(self, engine: EngineConfiguration) -> Manager:
        return self._wrap(self._reference.start(engine))


class Wrapped:
    """Passes everything on."""

    def __init__(self, manager: ReferenceManager) -> None:
        self.inner = manager
        self.pool = manager._manager.block_pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class ShorterHit(Wrapped):
    """Serves one boundary less than it could."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        engine = self.inner._engine
        length = max(0, hit.length - engine.alignment)
        tables = [
            table[: length // group.block_size]
            for table, group in zip(hit.tables, engine.groups, strict=True)
        ]
        return Hit(length, tuple(tables))


class StaleHit(Wrapped):
    """Serves one boundary more, with blocks that hold something else."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        engine = self.inner._engine
        length = hit.length + engine.alignment
        if length >= self.inner._requests[name].num_tokens:
            return hit
        tables = [
            (*table, *[1] * (engine.alignment // group.block_size))
            for table, group in zip(hit.tables, engine.groups, strict=True)
        ]
        return Hit(length, tuple(tables))


class OtherBlock(Wrapped):
    """Serves a block that holds something else in a hit of the right length."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        last = hit.tables[-1]
        if not last or not last[-1]:
            return hit
        other = last[-1] % (len(self.pool.blocks) - 1) + 1
        return Hit(hit.length, (*hit.tables[:-1], (*last[:-1], other)))


class FreesWindow(Wrapped):
    """Gives up the oldest block of each table that the next token still reads."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        for manager in self.inner._manager.coordinator.single_type_managers:
            blocks = manager.req_to_blocks.get(name, [])
            held = [i for i, block in enumerate(blocks) if not block.is_null]
            if tables is not None and len(held) > 1:
                self.pool.free_blocks([blocks[held[0]]], scratch_first=False)
                blocks[held[0]] = self.pool.null_block
        return tables


class Forgets(Wrapped):
    """Registers nothing of the last group."""

    def _forget(self) -> None:
        last = len(self.inner._engine.groups) - 1
        cached = self.inner._cached().items()
        self.inner.evict_blocks([i for (group, _), ids in cached if group == last for i in ids])

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        self._forget()
        return tables

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.inner.cache_blocks(name, num_computed_tokens)
        self._forget()


class Leaks(Wrapped):
    """Takes a block and never gives it back."""

    def free(self, name: str) -> None:
        self.inner.free(name)
        if self.pool.num_free_blocks:
            self.pool.get_new_blocks(1)


class FreesTwice(Wrapped):
    """Drops a reference too many."""

    def free(self, name: str) -> None:
        held = [b for table in self.inner._manager.get_blocks(name).blocks for b in table]
        self.inner.free(name)
        for block in held:
            if block.ref_cnt > 0 and not block.is_null:
                self.pool.free_blocks([block], scratch_first=False)
                return


class Crashes(Wrapped):
    """Raises when a request is preempted or finished."""

    def free(self, name: str) -> None:
        raise AssertionError(f"cannot free {name}")


class SharesKeys(Wrapped):
    """Hashes every block of a request to the same key."""

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return [b"same" for _ in self.inner.block_keys(name, group)]


class ChangesKeys(Wrapped):
    """Hashes the name of the request, too."""

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return [(name, key) for key in self.inner.block_keys(name, group)]


class WrongUsage(Wrapped):
    """Counts the null block as one that could be used."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        return replace(seen, usage=1 - seen.num_free_blocks / len(self.pool.blocks))


class SilentEviction(Wrapped):
    """Sends no event for blocks that are evicted."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        kept = tuple(event for event in seen.events if type(event).__name__ != "Removed")
        return replace(seen, events=kept)


class MiscountsHits(Wrapped):
    """Counts every lookup as a miss."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        return replace(seen, stats={**seen.stats, "hits": 0})


class ResetsInUse(Wrapped):
    """Says that it has reset the cache while blocks are in use."""

    def reset_prefix_cache(self) -> bool:
        self.inner.reset_prefix_cache()
        return True


class EvictsNothing(Wrapped):
    """Keeps blocks that a connector found invalid."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        pass


FAULTS: list[tuple[type[Wrapped], str]] = [
    (ShorterHit, f"{Divergence.LOST_HIT}: "),
    (StaleHit, f"{Divergence.UNSOUND}: longer than"),
    (OtherBlock, f"{Divergence.UNSOUND}: block table holds another block"),
    (FreesWindow, f"{Divergence.UNSOUND}: full attention: a block that is read was freed"),
    (Forgets, f"{Divergence.LOST_HIT}: the "),
    (Leaks, f"{Divergence.UNSOUND}: a reference count|no block leaks"),
    (FreesTwice, f"{Divergence.UNSOUND}: a reference count is the number of tables' entries"),
    (Crashes, f"{Divergence.CRASH}: raises AssertionError"),
    (SharesKeys, f"{Divergence.UNSOUND}: two contents share a key"),
    (ChangesKeys, f"{Divergence.LOST_HIT}: one content has two keys"),
    (WrongUsage, f"{Divergence.UNSOUND}: usage is the share of blocks in use"),
    (SilentEviction, f"{Divergence.POLICY_CHANGE}: events after"),
    (MiscountsHits, f"{Divergence.POLICY_CHANGE}: stats after"),
    (ResetsInUse, f"{Divergence.POLICY_CHANGE}: answer after"),
    (EvictsNothing, f"{Divergence.POLICY_CHANGE}: cached after"),
]


@pytest.mark.parametrize(("broken", "words"), FAULTS, ids=[b.__name__ for b, _ in FAULTS])
def test_a_broken_manager_is_caught(broken: type[Wrapped], words: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        seen.update(shown(outcome(number, Broken(broken))))
    kind, _, patterns = words.partition(": ")
    wanted = [f"{kind}: {pattern}" for pattern in patterns.split("|")]
    assert any(text.startswith(w) for text in seen for w in wanted), seen


@pytest.mark.parametrize("broken", [b for b, _ in FAULTS], ids=[b.__name__ for b, _ in FAULTS])
def test_a_broken_reference_is_caught(broken: type[Wrapped]) -> None:
    """Nothing is wrong with the real manager, so it is never blamed for breaking a claim."""
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        found = outcome(number, REFERENCE, Broken(broken))
        for finding in found.findings:
            assert finding.signature.divergence == Divergence.POLICY_CHANGE
        seen.update(shown(found))
    assert seen


@pytest.mark.parametrize(
    ("policies", "field"),
    [
        (replace(POLICIES, free_order=FreeOrder.APPENDED), "policy change: free_queue"),
        (replace(POLICIES, thinned_kinds=frozenset()), "waste"),
        (VLLM_0_23, "waste"),
    ],
)
def test_another_policy_is_noticed(policies: Policies, field: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(HISTORIES):
        seen.update(shown(outcome(number, ReferenceManagers(policies))))
    assert any(field in text for text in seen), seen


def test_lockstep_goes_on_after_a_lost_hit_and_after_waste() -> None:
    for number in range(HISTORIES):
        found = outcome(number, Broken(ShorterHit))
        assert found.fault is None
        # A shorter hit whose own run is not cached is more than lost.
        unsound = any(f.signature.divergence == Divergence.UNSOUND for f in found.findings)
        assert unsound or found.steps == len(history(f"test:{number}").steps)
        wasteful = outcome(number, ReferenceManagers(replace(POLICIES, thinned_kinds=frozenset())))
        assert wasteful.fault is None
        assert wasteful.steps == len(history(f"test:{number}").steps)
        assert all(finding.resynchronised for finding in wasteful.findings)


def test_a_finding_shrinks_to_a_few_steps() -> None:
    broken = Broken(ShorterHit)

    def shows(candidate: Any) -> bool:
        found = run(candidate, broken, REFERENCE, LookaheadHorizon.HASHED)
        return any(f.signature.divergence == Divergence.LOST_HIT for f in found.findings)

    large = next(h for h in map(history, range(200)) if len(h.engine.groups) > 1 and shows(h))
    small = shrink(large, shows)
    assert shows(small)
    assert len(small.engine.groups) == 1
    assert len(small.steps) <= 4
    assert sum(len(request.token_ids) for request in small.requests.values()) <= 12
    assert small.engine.groups[0].block_size == 1

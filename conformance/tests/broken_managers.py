"""The reference with one fault each."""

# ruff: noqa: ARG005  # a patch has the arguments of what it replaces

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from hitproof.conformance.emulation.releases import SPEC, Policies
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.subject.managers import (
    Allocation,
    Cleared,
    Event,
    Hit,
    Manager,
    Observation,
    OfferedState,
    Progress,
    Removed,
    Stored,
    Tables,
)
from hitproof.reference.coordinator import KVCacheCoordinator
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind

Patch: TypeAlias = Callable[..., Any]
"""A method, or what one does to a right answer."""


class Broken:
    """The reference with its manager wrapped."""

    def __init__(
        self, wrap: Callable[[ReferenceManager], Manager], policies: Policies = SPEC
    ) -> None:
        self._wrap = wrap
        self._reference = ReferenceManagers(policies)

    def start(self, engine: EngineConfiguration) -> Manager:
        return self._wrap(self._reference.start(engine))


def named(name: str) -> Broken:
    """The reference with its manager wrapped in the class of that name."""
    return Broken(globals().get(name) or __getattr__(name))


class Wrapped:
    """Passes everything on."""

    def __init__(self, manager: ReferenceManager) -> None:
        self.inner = manager
        self.pool = manager._manager.block_pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class LooksNotAhead:
    """The reference with hashes that cover their blocks only, whatever the engine has."""

    def start(self, engine: EngineConfiguration) -> Manager:
        started = ReferenceManagers().start(engine)
        started._engine = replace(
            engine, use_eagle=False, num_hash_lookahead_tokens=0, num_speculative_tokens=0
        )
        return started


class LooksOneTokenAhead:
    """The reference as if there were one MTP module, however many there are.

    Lookups drop one block, blocks are registered as soon as they are computed, and freed when their
    window is left.
    """

    def start(self, engine: EngineConfiguration) -> Manager:
        groups = tuple(replace(group, prefill_lookahead=1) for group in engine.groups)
        return ReferenceManagers().start(replace(engine, groups=groups))


class _Shifts:
    """The reference, but a method of it is asked for other numbers of computed tokens."""

    def start(self, engine: EngineConfiguration) -> Manager:
        started = ReferenceManagers().start(engine)
        self.shift(started._manager.coordinator, max(0, engine.num_prefill_lookahead - 1))
        return started

    def shift(self, coordinator: KVCacheCoordinator, again: int) -> None:
        """Shift it, where the last ``again`` tokens are computed again."""
        raise NotImplementedError


class RegistersDrafts(_Shifts):
    """The reference, but it registers blocks before their entries are final."""

    def shift(self, coordinator: KVCacheCoordinator, again: int) -> None:
        registered = coordinator._registration.num_tokens

        def num_tokens(group: Group, num_computed_tokens: int) -> int:
            return min(registered(group, num_computed_tokens + again), num_computed_tokens)

        coordinator._registration.num_tokens = num_tokens  # type: ignore[method-assign]  # the fault


class RegistersLate(_Shifts):
    """The reference, but its blocks wait for one token more than is computed again."""

    def shift(self, coordinator: KVCacheCoordinator, again: int) -> None:
        registered = coordinator._registration.num_tokens

        def num_tokens(group: Group, num_computed_tokens: int) -> int:
            return registered(group, max(0, num_computed_tokens - min(again, 1)))

        coordinator._registration.num_tokens = num_tokens  # type: ignore[method-assign]  # the fault


class FreesTheWindowOfDrafts(_Shifts):
    """The reference, but it frees what only the tokens that are computed again read."""

    def shift(self, coordinator: KVCacheCoordinator, again: int) -> None:
        free = coordinator.remove_skipped_blocks

        def remove_skipped_blocks(request_id: str, total_computed_tokens: int) -> None:
            free(request_id, total_computed_tokens + again)

        coordinator.remove_skipped_blocks = remove_skipped_blocks  # type: ignore[method-assign]  # the fault


class FreesBeforeItRegisters(KVCacheManager):
    """Registers nothing of earlier steps before it frees what is read no more."""

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        if num_computed_tokens != request.num_computed_tokens:
            super().cache_blocks(request, num_computed_tokens)


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


class KeepsWhatItLeaves(Wrapped):
    """Keeps the blocks that windows, chunks and states have left behind."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        coordinator: Any = manager._manager.coordinator
        coordinator.remove_skipped_blocks = lambda *_: None


class FreesTwice(Wrapped):
    """Drops a reference too many."""

    def free(self, name: str) -> None:
        held = [b for table in self.inner._manager.get_blocks(name).blocks for b in table]
        self.inner.free(name)
        for block in held:
            if block.ref_cnt > 0 and not block.is_null:
                self.pool.free_blocks([block], scratch_first=False)
                return


class StoresTheRestFirst(Wrapped):
    """Sends the event of a first block after that of those that follow it."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = [part for event in seen.events or () for part in self._parts(event)]
        return replace(seen, events=tuple(events))

    def _parts(self, event: Event) -> list[Event]:
        if not isinstance(event, Stored) or len(event.keys) < 2:
            return [event]
        first, rest = slice(0, 1), slice(1, None)

        def part(which: slice, tokens: slice, parent: str | None) -> Stored:
            return replace(
                event,
                keys=event.keys[which],
                parent=parent,
                token_ids=event.token_ids[tokens],
                extra_keys=event.extra_keys and event.extra_keys[which],
                ahead=event.ahead and event.ahead[which],
            )

        size = event.block_size
        after = part(rest, slice(size, None), event.keys[0])
        return [after, part(first, slice(0, size), event.parent)]


class EvictsTheLatest(Wrapped):
    """Puts what a request frees in front of what is free already."""

    def free(self, name: str) -> None:
        before = set(self.inner.observe().free_queue)
        self.inner.free(name)
        queue = self.pool.free_block_queue
        for block in [b for b in self.pool.blocks if b.block_id in self.inner.observe().free_queue]:
            if block.block_id not in before:
                queue.remove(block)
                queue.prepend_n([block])


class SharesFresh(Wrapped):
    """Hands out a block twice: a new last block is the one that another request got last."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        self._last: dict[str, Any] = {}

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        blocks = self.inner._manager.coordinator.single_type_managers[0].req_to_blocks.get(name)
        if tables is None or not tables[0] or not blocks or blocks[-1].is_null:
            return tables
        other = next((b for n, b in self._last.items() if n != name and b.ref_cnt == 1), None)
        self._last[name] = blocks[-1]
        if other is not None and other.block_hash is None and blocks[-1].block_hash is None:
            self.pool.free_blocks([blocks[-1]], scratch_first=False)
            self.pool.touch([other])
            blocks[-1] = other
        return tables


class TakesNothingBack(Wrapped):
    """Counts drafts that were rejected as computed when results arrive."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        self._most: dict[str, int] = {}

    def set_progress(self, name: str, progress: Progress) -> None:
        most = max(self._most.get(name, 0), progress.num_computed_tokens)
        self._most[name] = most if progress.num_computed_tokens else 0
        self.inner.set_progress(name, replace(progress, num_computed_tokens=self._most[name]))


class ZeroesLoads(Wrapped):
    """Says that all new blocks are zeroed, those that a load writes meanwhile, too."""

    skips_zeroing = True
    new: Sequence[int] = ()

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        known = {block.block_id for block in self.pool.blocks if block.ref_cnt}
        known.update(*(() if allocation.hit is None else allocation.hit.tables))
        answer = self.inner.allocate_slots(name, allocation)
        self.new = [b.block_id for b in self.pool.blocks if b.ref_cnt and b.block_id not in known]
        return answer

    def take_new_block_ids(self) -> Sequence[int]:
        return self.new

    def zeroed_again(self, name: str, start: int) -> None:
        del name, start


class RegistersWhatFailed(Wrapped):
    """Registers all that a connector was to load, whatever failed."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        self._most: dict[str, int] = {}

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        if allocation.hit is not None:
            loaded = allocation.num_external_computed_tokens
            self._most[name] = allocation.hit.length + loaded
        return self.inner.allocate_slots(name, allocation)

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.inner.cache_blocks(name, max(num_computed_tokens, self._most.get(name, 0)))


class CountsOneStepForAdmission:
    """The reference, but it admits by the blocks of one step's tokens where several are ahead."""

    def start(self, engine: EngineConfiguration) -> Manager:
        return ReferenceManagers().start(replace(engine, max_num_batched_tokens=1))


class RefusesToStart(Wrapped):
    """Refuses to be made."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        raise ValueError("no such thing")


def _always(answer: Any) -> Patch:
    return lambda *_: answer


def _hit(change: Patch) -> dict[str, Patch]:
    """Another hit."""
    return {
        "get_computed_blocks": lambda self, name: change(
            self, name, self.inner.get_computed_blocks(name)
        )
    }


def _prefix(change: Patch) -> dict[str, Patch]:
    """Another local prefix for connectors, of the name, the cap and what is right."""

    def patched(self: Wrapped, name: str, cap: int | None = None) -> Any:
        return change(self, name, cap, self.inner.get_computed_blocks_for_connector(name, cap))

    return {"get_computed_blocks_for_connector": patched}


def _allocates(**changes: Any) -> dict[str, Patch]:
    """Slots of another allocation."""
    return {
        "allocate_slots": lambda self, name, allocation: self.inner.allocate_slots(
            name, replace(allocation, **changes)
        )
    }


def _refuses(when: Patch) -> dict[str, Patch]:
    return {
        "allocate_slots": lambda self, name, allocation: (
            None if when(self, allocation) else self.inner.allocate_slots(name, allocation)
        )
    }


def _answers(change: Patch) -> dict[str, Patch]:
    """Other tables of new blocks."""

    def patched(self: Wrapped, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        return None if tables is None else tuple(map(change, tables))

    return {"allocate_slots": patched}


def _seen(change: Patch) -> dict[str, Patch]:
    """Another observation."""
    return {"observe": lambda self: change(self, self.inner.observe())}


def _stored(change: Patch) -> dict[str, Patch]:
    """Other fields of events of stored blocks."""

    def events(self: Wrapped, seen: Observation) -> Observation:
        told = (
            replace(event, **change(self, event)) if isinstance(event, Stored) else event
            for event in seen.events or ()
        )
        return replace(seen, events=tuple(told))

    return _seen(events)


def _progress(change: Patch) -> dict[str, Patch]:
    """Another progress of a request."""
    return {
        "set_progress": lambda self, name, progress: self.inner.set_progress(
            name, replace(progress, **change(progress))
        )
    }


def _first(method: str, is_moved: type[Cleared | Removed]) -> dict[str, Patch]:
    """The events of a method are queued before those that wait."""

    def patched(self: Wrapped, *given: Any) -> Any:
        answer = getattr(self.inner, method)(*given)
        self.inner._pool._events.sort(key=lambda event: not isinstance(event, is_moved))
        return answer

    held: Patch = lambda self, held: self.inner.hold_events(held)  # noqa: E731
    return {method: patched, "hold_events": held}


def raises(error: Exception) -> Patch:
    """Raise such an error; its message may name the arguments."""

    def patched(*given: Any) -> Any:
        raise type(error)(*(str(each).format(*given) for each in error.args))

    return patched


def _whole(self: Wrapped, name: str) -> list[Stored]:
    """All blocks of a request, as events of a hit."""
    return [
        Stored(n, tuple(self.block_keys(name, n)), None, (), group.block_size, None, None)
        for n, group in enumerate(self.inner._engine.groups)
    ]


def _states(self: Wrapped, name: str) -> list[OfferedState]:
    """The null block as the state of the first tokens of a request."""
    return [
        OfferedState(name, number, 0, group.block_size)
        for number, group in enumerate(self.inner._engine.groups)
        if name and group.kind is GroupKind.MAMBA and self.block_keys(name, number)
    ]


def _others(self: Wrapped, name: str) -> list[OfferedState]:
    """A state, if there are any, under each group that has none."""
    keeps = [group.kind is GroupKind.MAMBA for group in self.inner._engine.groups]
    return [
        OfferedState(name, number, 1, self.inner._engine.groups[number].block_size)
        for number, has_states in enumerate(keeps)
        if name and any(keeps) and not has_states
    ]


def _offers(offered: Patch) -> dict[str, Patch]:
    """States of the last request that got slots."""

    def allocate_slots(self: Wrapped, name: str, allocation: Allocation) -> Tables | None:
        vars(self)["last"] = name
        return self.inner.allocate_slots(name, allocation)

    return {
        **_ACCOUNTS,
        "allocate_slots": allocate_slots,
        "take_offered_states": lambda self: offered(self, vars(self).get("last", "")),
    }


def _zeroes_again(moved: int = 0, times: int = 1) -> dict[str, Any]:
    """Blocks are zeroed again from another token on, or more often than once."""

    def zeroed_again(self: Wrapped, name: str, start: int) -> Sequence[int]:
        found = []
        tables = self.inner.observe().tables[name]
        for group, table in zip(self.inner._engine.groups, tables, strict=True):
            first = max(0, start + moved) // group.block_size
            if group.kind is GroupKind.FULL_ATTENTION:
                found += [block for block in table[first:] if block] * times
        return found

    return {**_ZEROES, "zeroed_again": zeroed_again}


def _groupwise(found: Patch) -> dict[str, Patch]:
    """Another hit of each group alone, without blocks."""

    def hits_per_group(self: Wrapped, name: str, cap: int) -> tuple[tuple[int, ...], Tables]:
        groups = self.inner._engine.groups
        return (found(self, name, cap),) * len(groups), ((),) * len(groups)

    return {"hits_per_group": hits_per_group}


def _shorter(self: Wrapped, hit: Hit) -> Hit:
    length = max(0, hit.length - self.inner._engine.alignment)
    tables = zip(hit.tables, self.inner._engine.groups, strict=True)
    return Hit(length, tuple(table[: length // group.block_size] for table, group in tables))


def _stale(self: Wrapped, name: str, hit: Hit) -> Hit:
    alignment = self.inner._engine.alignment
    length = hit.length + alignment
    if length >= self.inner._requests[name].num_tokens:
        return hit
    tables = zip(hit.tables, self.inner._engine.groups, strict=True)
    return Hit(length, tuple((*t, *[1] * (alignment // g.block_size)) for t, g in tables))


def _other_block(self: Wrapped, _: str, hit: Hit) -> Hit:
    last = hit.tables[-1]
    if not last or not last[-1]:
        return hit
    other = last[-1] % (len(self.pool.blocks) - 1) + 1
    return Hit(hit.length, (*hit.tables[:-1], (*last[:-1], other)))


def _shortest(tables: Any) -> tuple[int, ...]:
    return tuple(min(of) for of in zip(*(map(len, each) for each in tables), strict=True))


def _too_few(self: Wrapped, name: str, num_tokens: int) -> Tables:
    """Without the block that the last tokens fill in part."""
    tables = zip(self.inner.observe().tables[name], self.inner._engine.groups, strict=True)
    return tuple(table[: num_tokens // group.block_size] for table, group in tables)


def _leaks(self: Wrapped, name: str) -> None:
    self.inner.free(name)
    if self.pool.num_free_blocks:
        self.pool.get_new_blocks(1)


def _head_first(self: Wrapped, name: str) -> None:
    for manager in self.inner._manager.coordinator.single_type_managers:
        manager.req_to_blocks.get(name, []).reverse()
    self.inner.free(name)


def _halfway(self: Wrapped, name: str) -> None:
    blocks = self.inner._manager.coordinator.single_type_managers[0].req_to_blocks[name]
    self.pool.free_blocks([blocks[-1]], scratch_first=False)
    raise AssertionError(f"cannot free {name}")


def without(field: str) -> Patch:
    """Requests are hashed without a field."""
    return lambda self, name, request: self.inner.add_request(
        name, replace(request, **{field: None})
    )


def _first_keys(self: Wrapped, name: str, request: RequestInput) -> None:
    kept = vars(self).setdefault("kept", {}).setdefault(request.token_ids, request)
    self.inner.add_request(name, kept)


def _without_steps(self: Wrapped, name: str, allocation: Allocation) -> Tables | None:
    """Every state is taken to be computed as soon as it is registered."""
    self.inner.new_step_starts()
    return self.inner.allocate_slots(name, allocation)


def _defers(self: Wrapped, allocation: Allocation) -> bool:
    kinds = {group.kind for group in self.inner._engine.groups}
    return GroupKind.MAMBA in kinds and allocation.hit is not None and allocation.hit.length > 0


def _kinds(self: Wrapped, event: Stored) -> dict[str, Any]:
    groups = self.inner._engine.groups
    number = event.group or 0
    is_last = number == len(groups) - 1
    return {"kind": "" if is_last else groups[number].kind, "window": groups[number].window}


def _from_the_back(self: Wrapped, count: int | None) -> Sequence[int]:
    """The free blocks that were used last."""
    queue = self.pool.free_block_queue
    blocks = queue.get_all_free_blocks()
    for block in blocks:
        queue.remove(block)
    queue.append_n(blocks[::-1])
    return self.inner.take_free_blocks(count)


def _twice(self: Wrapped, ids: Sequence[int]) -> None:
    """Blocks are given back once more, for a request that still holds them."""
    self.inner.release_blocks(ids)
    self.pool.free_blocks([self.pool.blocks[n] for n in ids], scratch_first=False)


def _forgets_freed(self: Wrapped, name: str) -> None:
    tables = self.inner.observe().tables.get(name, ())
    self.inner.free(name)
    self.inner.evict_blocks(sorted({block for table in tables for block in table if block}))


def _forgets(which: Patch) -> dict[str, Patch]:
    """New slots evict cached blocks, given the hit."""

    def patched(self: Wrapped, name: str, allocation: Allocation) -> Tables | None:
        new = self.inner.allocate_slots(name, allocation)
        if new is not None:
            self.inner.evict_blocks(which(self, allocation.hit))
        return new

    return {"allocate_slots": patched}


def _shifted(tables: Tables) -> Tables:
    return tuple(tuple(block and block + 1 for block in table) for table in tables)


_NO = _always(None)
_HANDS = dict.fromkeys(("block_ids_for_computed_tokens", "truncated", "to_load"), _NO)
_ACCOUNTS = {
    "kept_of": _always(()),
    "estimated_cached_tokens": _NO,
    "reported_hit": _NO,
    "take_offered_states": _NO,
    "final_states": _always(()),
}
"""Keeps nothing, estimates nothing, reports nothing and offers nothing."""
_ZEROES: dict[str, Any] = {"skips_zeroing": False, "take_new_block_ids": _NO, "zeroed_again": _NO}
_NO_EVICTION = {"evict_blocks": _NO}
_OTHER = _hit(_other_block)

PATCHES: dict[str, dict[str, Any]] = {
    # hits
    "TellsTooMuch": _hit(
        lambda m, _, hit: replace(
            hit, shared_prefix_boundary=hit.length + m.inner._engine.alignment
        )
    ),
    "TellsNothing": _hit(lambda m, _, hit: replace(hit, shared_prefix_boundary=0)),
    "ShorterHit": _hit(lambda m, _, hit: _shorter(m, hit)),
    "StaleHit": _hit(_stale),
    "SwapsHit": _hit(
        lambda m, _, hit: replace(hit, tables=tuple(table[::-1] for table in hit.tables))
    ),
    "OtherBlock": _OTHER,
    "OtherBlockAndEvictsNothing": {**_OTHER, **_NO_EVICTION},
    "RefusesLookups": {"get_computed_blocks": raises(AssertionError("no EAGLE here ({1})"))},
    "IgnoresCaps": {
        "get_computed_blocks_up_to": lambda m, name, cap: m.inner.get_computed_blocks(name)
    },
    "FallsShortOfCaps": {
        "get_computed_blocks_up_to": lambda m, name, cap: m.inner.get_computed_blocks_up_to(
            name, max(cap - m.inner._engine.alignment, 0)
        )
    },
    "GroupsHitNothing": _groupwise(_always(0)),
    "GroupsHitAll": _groupwise(lambda m, name, cap: cap + 1),
    "GroupsHitNoBlocks": _groupwise(
        lambda m, name, cap: getattr(m.inner.get_computed_blocks_up_to(name, cap), "length", 0)
    ),
    # local prefixes for connectors
    "ConnectorReadsForAll": _prefix(  # of requests that skip reading the cache, too
        lambda m, name, cap, _: m.inner.get_computed_blocks_for_connector(
            name, m.inner._requests[name].num_tokens - 1 if cap is None else cap
        )
    ),
    "ConnectorIgnoresCaps": _prefix(
        lambda m, name, *_: m.inner.get_computed_blocks_for_connector(name)
    ),
    "ConnectorPassesBoundaries": _prefix(
        lambda m, name, cap, right: (
            right
            if cap is None or cap % m.inner._engine.alignment
            else m.inner.get_computed_blocks_for_connector(name)
        )
    ),
    "ConnectorFlagsAll": _prefix(lambda *given: given[-1] and (given[-1][0], True)),
    "ConnectorFlagsNothing": _prefix(lambda *given: given[-1] and (given[-1][0], False)),
    "ConnectorGetsTheHit": _prefix(
        lambda m, name, cap, _: (m.inner.get_computed_blocks(name), False) if cap is None else None
    ),
    "ConnectorGetsOtherTables": _prefix(
        lambda *given: (
            given[-1]
            and (replace(given[-1][0], tables=_shifted(given[-1][0].tables)), given[-1][1])
        )
    ),
    # slots
    "AnswersOtherBlocks": _answers(lambda table: table[::-1]),
    "AnswersNoBlocks": _answers(_always(())),
    "Refuses": _refuses(lambda m, _: m.pool.num_free_blocks * 3 < len(m.pool.blocks)),
    "DefersForEver": _refuses(_defers),
    "RegistersEarly": _allocates(delay_cache_blocks=False),  # what a connector is still loading
    "AdmitsInPart": _allocates(full_sequence_must_fit=False),
    "KeepsOneBlock": _allocates(reserved_blocks=1),
    "ForgetsSteps": {"allocate_slots": _without_steps},
    # blocks that are given back
    "Leaks": {"free": _leaks},
    "Crashes": {"free": raises(AssertionError("cannot free {1}"))},
    "CrashesHalfway": {"free": _halfway},
    "FreesHeadFirst": {"free": _head_first},
    "ResetsInUse": {"reset_prefix_cache": lambda m: [m.inner.reset_prefix_cache(), True][1]},
    "NeverResets": {"reset_prefix_cache": _always(False)},
    "ResetsOnlyAnswers": {
        "reset_prefix_cache": lambda m: (
            not any(any(map(any, tables)) for tables in m.inner.observe().tables.values())
        )
    },
    "EvictsNothing": _NO_EVICTION,
    # keys
    "SharesKeys": {"block_keys": lambda m, *given: [b"same" for _ in m.inner.block_keys(*given)]},
    "ChangesKeys": {
        "block_keys": lambda m, *given: [(given[0], key) for key in m.inner.block_keys(*given)]
    },
    "IgnoresAdapters": {"add_request": without("lora_name")},
    "KeepsFirstKeys": {"add_request": _first_keys},
    # observations and events
    "WrongUsage": _seen(
        lambda m, seen: replace(seen, usage=1 - seen.num_free_blocks / len(m.pool.blocks))
    ),
    "SharesTables": _seen(
        lambda m, seen: replace(
            seen, common_prefix=dict.fromkeys(seen.tables, _shortest(seen.tables.values()))
        )
    ),
    "MiscountsHits": _seen(lambda m, seen: replace(seen, stats={**seen.stats, "hits": 0})),
    "SilentEviction": _seen(
        lambda m, seen: replace(
            seen, events=tuple(e for e in seen.events or () if not isinstance(e, Removed))
        )
    ),
    "TellsOfResetsFirst": _first("reset_prefix_cache", Cleared),
    "TellsOfEvictionsFirst": _first("evict_blocks", Removed),
    "Misdescribes": _stored(_always({"parent": None})),
    "NamesNoAdapter": _stored(lambda m, e: {"extra_keys": (None,) * len(e.keys)}),
    "NamesNoExtraKeys": _stored(_always({"extra_keys": ()})),
    "NamesImagesBackwards": _stored(
        lambda m, e: {"extra_keys": tuple(key and key[::-1] for key in e.extra_keys or ())}
    ),
    "NamesNoKind": _stored(_kinds),
    "NamesTokensAhead": _stored(_always({"ahead": ()})),
    # progress
    "IgnoresStepsInFlight": _progress(_always({"num_in_flight_tokens": 0})),
    "AllocatesFromWhatIsSettled": _progress(
        lambda told: {
            "num_computed_tokens": max(0, told.num_computed_tokens - told.num_in_flight_tokens)
        }
    ),
    "RegistersNoResults": {"cache_blocks": _NO},
    # blocks that are handed to connectors
    "HandsTooFew": {**_HANDS, "block_ids_for_computed_tokens": _too_few},
    "LoadsIntoTheHit": {
        **_HANDS,
        "to_load": lambda m, name: tuple(
            tuple(filter(None, table)) for table in m.inner.observe().tables[name]
        ),
    },
    "CutsTooLittle": {
        **_HANDS,
        "truncated": lambda m, name, _: m.inner.get_computed_blocks(name).tables,
    },
    # accounts
    "KeepsFreedRequests": {
        **_ACCOUNTS,
        "kept_of": lambda m, name: (f"KVCacheManager.checkpoints of {name}",),
    },
    "EstimatesTooMuch": {**_ACCOUNTS, "estimated_cached_tokens": _always(1000)},
    "ReportsNoHit": {**_ACCOUNTS, "reported_hit": _always(())},
    "ReportsWholeRequests": {**_ACCOUNTS, "reported_hit": _whole},
    "ReportsTwice": {**_ACCOUNTS, "reported_hit": lambda m, name: _whole(m, name) * 2},
    "CrashesOnReports": {**_ACCOUNTS, "reported_hit": raises(IndexError("no hashes of {1}"))},
    "OffersNothing": {**_ACCOUNTS, "take_offered_states": _always(())},
    "OffersOtherBlocks": _offers(_states),
    "OffersTheNullBlockAtLast": {**_ACCOUNTS, "final_states": _states},
    "OffersUnderOtherGroups": _offers(_others),
    "OffersUnderOtherGroupsAtLast": {**_ACCOUNTS, "final_states": _others},
    # blocks that are zeroed
    "ZeroesNothing": {**_ZEROES, "take_new_block_ids": _always(())},
    "ZeroesEverything": {
        **_ZEROES,
        "take_new_block_ids": lambda m: [b.block_id for b in m.pool.blocks if b.ref_cnt],
    },
    "ZeroesValidBlocksAgain": _zeroes_again(moved=-1),
    "ZeroesTooLittleAgain": _zeroes_again(moved=1_000),
    "ZeroesAgainTwice": _zeroes_again(times=2),
    # what something outside does with blocks
    "FreesTooMuch": {"remove_skipped_blocks": lambda m, name, _: m.inner.free(name)},
    "FreesOneMore": {
        "remove_skipped_blocks": lambda m, name, computed: m.inner.remove_skipped_blocks(
            name, computed + 8
        )
    },
    "FreesNothing": {"remove_skipped_blocks": _NO},
    "TakesFromTheBack": {"take_free_blocks": _from_the_back},
    "KeepsOneBack": {
        "take_free_blocks": lambda m, count: m.inner.take_free_blocks(
            min(m.pool.num_free_blocks - 1, m.pool.num_free_blocks if count is None else count)
        )
    },
    "HoldsNothing": {"hold_blocks": lambda m, ids: m.inner._outside.extend(ids)},
    "ReleasesNothing": {
        "release_blocks": lambda m, ids: [*map(m.inner._outside.remove, ids)] and None
    },
    "ReleasesTwice": {"release_blocks": _twice},
    "ReleasesHeadFirst": {
        "release_blocks": lambda m, ids: [m.inner.release_blocks([each]) for each in ids] and None
    },
    "IgnoresReserved": _allocates(reserved_blocks=0),
    "ReservesTwice": {
        "allocate_slots": lambda m, name, allocation: m.inner.allocate_slots(
            name, replace(allocation, reserved_blocks=2 * allocation.reserved_blocks)
        )
    },
    "EvictsFirstOnly": {"evict_blocks": lambda m, ids: m.inner.evict_blocks(sorted(ids)[:1])},
    "LongerPrefixes": _prefix(
        lambda m, _, __, right: (
            replace(right[0], length=right[0].length + m.inner._engine.alignment),
            right[1],
        )
    ),
    "ForgetsWhatIsFreed": {"free": _forgets_freed},
    "ForgetsTheNextFree": _forgets(  # with what it hands out
        lambda m, _: [
            b.block_id for b in m.pool.free_block_queue.get_all_free_blocks() if b.block_hash
        ][:1]
    ),
    "ForgetsTheHit": _forgets(
        lambda m, hit: [b for table in (hit.tables if hit else ()) for b in table if b]
    ),
}
"""The methods that differ, of each manager that has no class of its own here."""


def patched(name: str, **patches: Any) -> type[Wrapped]:
    """A class of managers with other methods."""
    return type(name, (Wrapped,), patches)


def __getattr__(name: str) -> Any:
    """The class of a row of `PATCHES`."""
    if name not in PATCHES:
        raise AttributeError(name)
    return globals().setdefault(name, patched(name, **PATCHES[name]))

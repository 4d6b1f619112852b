"""The reference with one fault each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.subject.managers import (
    Allocation,
    Event,
    Hit,
    Manager,
    Observation,
    OfferedState,
    Progress,
    Stored,
    Tables,
)
from hitproof.reference.coordinator import KVCacheCoordinator
from hitproof.reference.events import AllBlocksCleared, BlockRemoved, KVCacheEvent
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.policies import Policies
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind


class Broken:
    """The reference with its manager wrapped."""

    def __init__(
        self, wrap: Callable[[ReferenceManager], Manager], policies: Policies | None = None
    ) -> None:
        self._wrap = wrap
        self._reference = ReferenceManagers(Policies() if policies is None else policies)

    def start(self, engine: EngineConfiguration) -> Manager:
        return self._wrap(self._reference.start(engine))


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
        started = ReferenceManagers(Policies()).start(engine)
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
        return ReferenceManagers(Policies()).start(replace(engine, groups=groups))


class _Shifts:
    """The reference, but a method of it is asked for other numbers of computed tokens."""

    def start(self, engine: EngineConfiguration) -> Manager:
        started = ReferenceManagers(Policies()).start(engine)
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


class TellsTooMuch(Wrapped):
    """Tells of a shared prefix one boundary longer than the hit."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        return replace(hit, shared_prefix_boundary=hit.length + self.inner._engine.alignment)


class TellsNothing(Wrapped):
    """Reports no shared prefix."""

    def get_computed_blocks(self, name: str) -> Hit:
        return replace(self.inner.get_computed_blocks(name), shared_prefix_boundary=0)


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


class IgnoresCaps(Wrapped):
    """Serves what it has, whatever the cap that it is given."""

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit:
        del cap
        return self.inner.get_computed_blocks(name)


class FallsShortOfCaps(Wrapped):
    """Serves a boundary less than the cap that it is given allows."""

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit | None:
        return self.inner.get_computed_blocks_up_to(
            name, max(cap - self.inner._engine.alignment, 0)
        )


class ConnectorReadsForAll(Wrapped):
    """Reports a local prefix of requests that skip reading the cache, too."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        most = self.inner._requests[name].num_tokens - 1
        return self.inner.get_computed_blocks_for_connector(name, most if cap is None else cap)


class ConnectorIgnoresCaps(Wrapped):
    """Reports the whole local prefix, whatever the cap that it is given."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        del cap
        return self.inner.get_computed_blocks_for_connector(name)


class ConnectorPassesBoundaries(Wrapped):
    """Reports the whole local prefix where the cap that it is given is a boundary."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        ignores = cap is not None and cap % self.inner._engine.alignment == 0
        return self.inner.get_computed_blocks_for_connector(name, None if ignores else cap)


class ConnectorFlagsAll(Wrapped):
    """Flags every local prefix."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        found = self.inner.get_computed_blocks_for_connector(name, cap)
        return None if found is None else (found[0], True)


class ConnectorFlagsNothing(Wrapped):
    """Flags no local prefix."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        found = self.inner.get_computed_blocks_for_connector(name, cap)
        return None if found is None else (found[0], False)


class ConnectorGetsTheHit(Wrapped):
    """Reports the hit that all groups share as the local prefix."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        return (self.inner.get_computed_blocks(name), False) if cap is None else None


class ConnectorGetsOtherTables(Wrapped):
    """Reports a local prefix with block tables of another block."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        found = self.inner.get_computed_blocks_for_connector(name, cap)
        if found is None:
            return None
        prefix, flagged = found
        shifted = tuple(tuple(block and block + 1 for block in table) for table in prefix.tables)
        return replace(prefix, tables=shifted), flagged


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


class AnswersOtherBlocks(Wrapped):
    """Answers the blocks that a running request gets in the wrong order."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        return None if tables is None else tuple(table[::-1] for table in tables)


class AnswersNoBlocks(Wrapped):
    """Does not answer the blocks that a running request gets."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        return None if tables is None else tuple(() for _ in tables)


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


class SharesTables(Wrapped):
    """Counts all blocks of the shortest table as common to all requests."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        shortest = [
            min(of) for of in zip(*(map(len, t) for t in seen.tables.values()), strict=True)
        ]
        return replace(seen, common_prefix=dict.fromkeys(seen.tables, tuple(shortest)))


class SilentEviction(Wrapped):
    """Sends no event for blocks that are evicted."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        kept = tuple(event for event in seen.events or () if type(event).__name__ != "Removed")
        return replace(seen, events=kept)


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


class _Queues(Wrapped):
    """Its events wait until they are taken."""

    def hold_events(self, held: bool) -> None:
        self.inner.hold_events(held)

    def _moved_to_front(self, is_moved: Callable[[KVCacheEvent], bool]) -> None:
        self.pool._events.sort(key=lambda event: not is_moved(event))


class TellsOfResetsFirst(_Queues):
    """Queues the event of a reset before those that wait."""

    def reset_prefix_cache(self) -> bool:
        done = self.inner.reset_prefix_cache()
        self._moved_to_front(lambda event: isinstance(event, AllBlocksCleared))
        return done


class TellsOfEvictionsFirst(_Queues):
    """Queues the events of evictions before those that wait."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self.inner.evict_blocks(block_ids)
        self._moved_to_front(lambda event: isinstance(event, BlockRemoved))


class MiscountsHits(Wrapped):
    """Counts every lookup as a miss."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        return replace(seen, stats={**seen.stats, "hits": 0})


class Handing(Wrapped):
    """Hands no blocks to KV connectors."""

    def block_ids_for_computed_tokens(self, name: str, num_tokens: int) -> Tables | None:
        del name, num_tokens
        return None

    def truncated(self, name: str, num_tokens: int) -> Tables | None:
        del name, num_tokens
        return None

    def to_load(self, name: str) -> Tables | None:
        del name
        return None


class HandsTooFew(Handing):
    """Leaves out the block that the last tokens fill in part."""

    def block_ids_for_computed_tokens(self, name: str, num_tokens: int) -> Tables:
        tables = self.inner.observe().tables[name]
        sizes = [group.block_size for group in self.inner._engine.groups]
        return tuple(table[: num_tokens // size] for table, size in zip(tables, sizes, strict=True))


class LoadsIntoTheHit(Handing):
    """Has a load write all blocks of a request, those of its hit included."""

    def to_load(self, name: str) -> Tables | None:
        held = self.inner.observe().tables[name]
        return tuple(tuple(filter(None, table)) for table in held)


class Accountable(Wrapped):
    """Keeps nothing, estimates nothing, reports nothing and offers nothing."""

    def kept_of(self, name: str) -> Sequence[str]:
        del name
        return ()

    def estimated_cached_tokens(self, name: str) -> int | None:
        del name
        return None

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        del name
        return None

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        return None

    def final_states(self, name: str) -> Sequence[OfferedState]:
        del name
        return ()


class KeepsFreedRequests(Accountable):
    """Has an entry for each request for ever."""

    def kept_of(self, name: str) -> Sequence[str]:
        return (f"KVCacheManager.checkpoints of {name}",)


class EstimatesTooMuch(Accountable):
    """Says that more is cached than there is."""

    def estimated_cached_tokens(self, name: str) -> int | None:
        del name
        return 1000


class ReportsNoHit(Accountable):
    """Reports no block of a hit."""

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        del name
        return ()


class ReportsWholeRequests(Accountable):
    """Reports all blocks of a request, whatever it hits."""

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        return [
            Stored(number, tuple(self.inner.block_keys(name, number)), None, (), size, None, None)
            for number, group in enumerate(self.inner._engine.groups)
            for size in (group.block_size,)
        ]


class ReportsTwice(ReportsWholeRequests):
    """Reports each of these blocks once more."""

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        return [*(super().reported_hit(name) or ()), *(super().reported_hit(name) or ())]


class CrashesOnReports(Accountable):
    """Cannot report a hit."""

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        raise IndexError(f"no hashes of {name}")


class OffersNothing(Accountable):
    """Offers no state for storage."""

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        return ()


class OffersOtherBlocks(Accountable):
    """Offers the null block as the state of the first tokens of the last request."""

    _last = ""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        self._last = name
        return self.inner.allocate_slots(name, allocation)

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        groups = self.inner._engine.groups
        return [
            OfferedState(self._last, number, 0, group.block_size)
            for number, group in enumerate(groups)
            if self._last and group.kind is GroupKind.MAMBA
        ]


class OffersTheNullBlockAtLast(Accountable):
    """Offers the null block as the last state of a request that gives its blocks back."""

    def final_states(self, name: str) -> Sequence[OfferedState]:
        groups = self.inner._engine.groups
        return [
            OfferedState(name, number, 0, group.block_size)
            for number, group in enumerate(groups)
            if group.kind is GroupKind.MAMBA and self.inner.block_keys(name, number)
        ]


class _OffersUnderOtherGroups(Accountable):
    """Offers a state, if there are any, under each group that has none."""

    def _others(self, name: str) -> list[OfferedState]:
        groups = self.inner._engine.groups
        keeps = [group.kind is GroupKind.MAMBA for group in groups]
        return [
            OfferedState(name, number, 1, groups[number].block_size)
            for number, has_states in enumerate(keeps)
            if any(keeps) and not has_states
        ]


class OffersUnderOtherGroups(_OffersUnderOtherGroups):
    """Does so in the step of a request."""

    _last = ""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        self._last = name
        return self.inner.allocate_slots(name, allocation)

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        return [
            *(super().take_offered_states() or ()),
            *(self._others(self._last) if self._last else ()),
        ]


class OffersUnderOtherGroupsAtLast(_OffersUnderOtherGroups):
    """Does so before a request gives its blocks back."""

    def final_states(self, name: str) -> Sequence[OfferedState]:
        return self._others(name)


class CutsTooLittle(Handing):
    """Cuts no hit."""

    _hit = Hit(0, ())

    def get_computed_blocks(self, name: str) -> Hit:
        self._hit = self.inner.get_computed_blocks(name)
        return self._hit

    def truncated(self, name: str, num_tokens: int) -> Tables:
        del name, num_tokens
        return self._hit.tables


class Refuses(Wrapped):
    """Leaves a third of the pool unused."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        if self.pool.num_free_blocks * 3 < len(self.pool.blocks):
            return None
        return self.inner.allocate_slots(name, allocation)


class DefersForEver(Wrapped):
    """Lets each hit of a state wait, however old the state is."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        kinds = {group.kind for group in self.inner._engine.groups}
        if GroupKind.MAMBA in kinds and allocation.hit is not None and allocation.hit.length:
            return None
        return self.inner.allocate_slots(name, allocation)


class Misdescribes(Wrapped):
    """Says of stored blocks that they have no parent."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = (
            replace(e, parent=None) if isinstance(e, Stored) else e for e in seen.events or ()
        )
        return replace(seen, events=tuple(events))


class NamesNoAdapter(Wrapped):
    """Leaves the extra keys out of events."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = (
            replace(e, extra_keys=(None,) * len(e.keys)) if isinstance(e, Stored) else e
            for e in seen.events or ()
        )
        return replace(seen, events=tuple(events))


class NamesNoExtraKeys(Wrapped):
    """Says in no event what else went into the hashes of blocks."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = (
            replace(e, extra_keys=()) if isinstance(e, Stored) else e for e in seen.events or ()
        )
        return replace(seen, events=tuple(events))


class NamesImagesBackwards(Wrapped):
    """Names the images of a stored block from the last to the first."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = (
            replace(e, extra_keys=tuple(each and each[::-1] for each in e.extra_keys))
            if isinstance(e, Stored) and e.extra_keys
            else e
            for e in seen.events or ()
        )
        return replace(seen, events=tuple(events))


class NamesNoKind(Wrapped):
    """Says the kinds of groups in events, except that of the last group."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        groups = self.inner._engine.groups
        kinds = [group.kind for group in groups[:-1]] + [""]
        events = (
            replace(e, kind=kinds[e.group or 0], window=groups[e.group or 0].window)
            if isinstance(e, Stored)
            else e
            for e in seen.events or ()
        )
        return replace(seen, events=tuple(events))


class NamesTokensAhead(Wrapped):
    """Says in events that hashes cover nothing ahead, whether or not they do."""

    def observe(self) -> Observation:
        seen = self.inner.observe()
        events = (replace(e, ahead=()) if isinstance(e, Stored) else e for e in seen.events or ())
        return replace(seen, events=tuple(events))


class FreesHeadFirst(Wrapped):
    """Queues the first blocks of a request first."""

    def free(self, name: str) -> None:
        for manager in self.inner._manager.coordinator.single_type_managers:
            if name in manager.req_to_blocks:
                manager.req_to_blocks[name].reverse()
        self.inner.free(name)


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


class ResetsInUse(Wrapped):
    """Says that it has reset the cache while blocks are in use."""

    def reset_prefix_cache(self) -> bool:
        self.inner.reset_prefix_cache()
        return True


class NeverResets(Wrapped):
    """Refuses to reset the cache, also when nobody holds a block."""

    def reset_prefix_cache(self) -> bool:
        return False


class EvictsNothing(Wrapped):
    """Keeps blocks that a connector found invalid."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        pass


class RegistersEarly(Wrapped):
    """Registers what a connector is still loading."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        return self.inner.allocate_slots(name, replace(allocation, delay_cache_blocks=False))


class ForgetsSteps(Wrapped):
    """Takes every state to be computed as soon as it is registered."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        self.inner.new_step_starts()
        return self.inner.allocate_slots(name, allocation)


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


class ResetsOnlyAnswers(Wrapped):
    """Forgets nothing when the cache is reset, and says it has."""

    def reset_prefix_cache(self) -> bool:
        return not any(any(map(any, t)) for t in self.inner.observe().tables.values())


class IgnoresAdapters(Wrapped):
    """Hashes the blocks of all adapters alike."""

    def add_request(self, name: str, request: RequestInput) -> None:
        self.inner.add_request(name, replace(request, lora_name=None))


class KeepsFirstKeys(Wrapped):
    """Takes a request for an earlier one of the same tokens."""

    def add_request(self, name: str, request: RequestInput) -> None:
        first = vars(self).setdefault("kept", {}).setdefault(request.token_ids, request)
        self.inner.add_request(name, first)


class RefusesLookups(Wrapped):
    """Refuses at the first lookup."""

    def get_computed_blocks(self, name: str) -> Hit:
        raise AssertionError(f"no EAGLE here ({name})")


class RefusesToStart(Wrapped):
    """Refuses to be made."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        raise ValueError("no such thing")


class CrashesHalfway(Wrapped):
    """Raises when a request is freed, with one block given up."""

    def free(self, name: str) -> None:
        blocks = self.inner._manager.coordinator.single_type_managers[0].req_to_blocks[name]
        self.pool.free_blocks([blocks[-1]], scratch_first=False)
        raise AssertionError(f"cannot free {name}")


class OtherBlockAndEvictsNothing(OtherBlock):
    """Two faults at once."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        pass


class IgnoresStepsInFlight(Wrapped):
    """Takes all computed tokens for settled, as vLLM did up to 0.25."""

    def set_progress(self, name: str, progress: Progress) -> None:
        self.inner.set_progress(name, replace(progress, num_in_flight_tokens=0))


class AllocatesFromWhatIsSettled(Wrapped):
    """Allocates no slots for the tokens of steps in flight."""

    def set_progress(self, name: str, progress: Progress) -> None:
        settled = progress.num_computed_tokens - progress.num_in_flight_tokens
        self.inner.set_progress(name, replace(progress, num_computed_tokens=max(0, settled)))


class RegistersNoResults(Wrapped):
    """Registers nothing when results arrive."""

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        pass


class TakesNothingBack(Wrapped):
    """Counts drafts that were rejected as computed when results arrive."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        self._most: dict[str, int] = {}

    def set_progress(self, name: str, progress: Progress) -> None:
        most = max(self._most.get(name, 0), progress.num_computed_tokens)
        self._most[name] = most if progress.num_computed_tokens else 0
        self.inner.set_progress(name, replace(progress, num_computed_tokens=self._most[name]))


class AdmitsInPart(Wrapped):
    """Admits requests of which only the first chunk fits."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        return self.inner.allocate_slots(name, replace(allocation, full_sequence_must_fit=False))


class KeepsOneBlock(Wrapped):
    """Leaves one block free that nobody reserved."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        return self.inner.allocate_slots(name, replace(allocation, reserved_blocks=1))


class CountsOneStepForAdmission:
    """The reference, but it admits by the blocks of one step's tokens where several are ahead."""

    def start(self, engine: EngineConfiguration) -> Manager:
        return ReferenceManagers(Policies()).start(replace(engine, max_num_batched_tokens=1))


class ZeroesNothing(Wrapped):
    """Says that no block is zeroed."""

    skips_zeroing = False

    def take_new_block_ids(self) -> Sequence[int]:
        return ()

    def zeroed_again(self, name: str, start: int) -> None:
        del name, start


class ZeroesAgain(Wrapped):
    """Says only which blocks are zeroed again: from another token on, or each twice."""

    moved, times = 0, 1
    skips_zeroing = False

    def take_new_block_ids(self) -> None:
        return None

    def zeroed_again(self, name: str, start: int) -> Sequence[int]:
        found = []
        tables = self.inner.observe().tables[name]
        for group, table in zip(self.inner._engine.groups, tables, strict=True):
            first = max(0, start + self.moved) // group.block_size
            if group.kind is GroupKind.FULL_ATTENTION:
                found += [block for block in table[first:] if block] * self.times
        return found


class ZeroesValidBlocksAgain(ZeroesAgain):
    """Zeroes what is before the token, too."""

    moved = -1


class ZeroesTooLittleAgain(ZeroesAgain):
    """Leaves out what is right after the token."""

    moved = 1_000


class ZeroesAgainTwice(ZeroesAgain):
    """Names each block twice."""

    times = 2


class ZeroesEverything(Wrapped):
    """Says that every block that somebody holds is zeroed."""

    skips_zeroing = False

    def take_new_block_ids(self) -> Sequence[int]:
        return [block.block_id for block in self.pool.blocks if block.ref_cnt]

    def zeroed_again(self, name: str, start: int) -> None:
        del name, start


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


class GroupsHitNothing(Wrapped):
    """Finds nothing for a group alone."""

    def hits_per_group(self, name: str, cap: int) -> tuple[tuple[int, ...], Tables]:
        del name, cap
        groups = self.inner._engine.groups
        return (0,) * len(groups), ((),) * len(groups)


class GroupsHitAll(Wrapped):
    """Finds all for a group alone."""

    def hits_per_group(self, name: str, cap: int) -> tuple[tuple[int, ...], Tables]:
        del name
        groups = self.inner._engine.groups
        return (cap + 1,) * len(groups), ((),) * len(groups)


class GroupsHitNoBlocks(Wrapped):
    """Finds the hit of all groups for each alone, but no blocks."""

    def hits_per_group(self, name: str, cap: int) -> tuple[tuple[int, ...], Tables]:
        groups = self.inner._engine.groups
        hit = self.inner.get_computed_blocks_up_to(name, cap)
        return (hit.length if hit else 0,) * len(groups), ((),) * len(groups)

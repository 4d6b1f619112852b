"""The reference's manager behind the protocol of `conformance.subject.managers`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from hitproof.conformance.emulation.managers import EmulatedManager
from hitproof.conformance.emulation.releases import SPEC, FreeOrder, Policies
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.subject.managers import (
    Allocation,
    Cleared,
    Event,
    Hit,
    Observation,
    Progress,
    Removed,
    Stored,
    Tables,
)
from hitproof.reference.groups import Configuration
from hitproof.reference.manager import KVCacheManager, ids_of
from hitproof.reference.pool import BlockPool, KVCacheBlock
from hitproof.reference.request import Request
from hitproof.spec.groups import GroupKind


class WatchedPool(BlockPool):
    """A pool that records how the set of cached blocks changes."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._events: list[Event] = []

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self._events = self._events, []
        return tuple(events)

    def cache_full_blocks(
        self, request: Request, blocks: Mapping[int, KVCacheBlock], block_size: int, group_id: int
    ) -> None:
        """Also records it."""
        super().cache_full_blocks(request, blocks, block_size, group_id)
        self._events += self._stored(request, blocks, block_size, group_id)

    def reset_prefix_cache(self) -> bool:
        """Also records it."""
        done = super().reset_prefix_cache()
        if done:
            self._events.append(Cleared())
        return done

    def _evict(self, block: KVCacheBlock) -> None:
        key, group = block.block_hash, block.group_id
        super()._evict(block)
        if key is not None and key not in self._cached[group]:
            self._events.append(Removed(group, (key,)))

    def _stored(
        self, request: Request, registered: Iterable[int], block_size: int, group: int
    ) -> list[Stored]:
        """An event for each run of blocks, after a parent that is cached, so that it is known.

        Where the block before a run is not cached, the first of the run has an event of its own,
        whose tokens begin after the last block that is.
        """
        hashes = request.hashes(block_size)
        cached, events = self._cached[group], list[Stored]()
        for index in registered:
            before = next((i for i in reversed(range(index)) if hashes[i] in cached), -1)
            start, end = (before + 1) * block_size, (index + 1) * block_size
            parent = hashes[before] if before >= 0 else None
            extras: Any = request.extra_keys(start, end + request.num_hash_lookahead_tokens)
            new = Stored(
                group=group,
                keys=(hashes[index],),
                parent=parent,
                token_ids=tuple(request.all_token_ids[start:end]),
                block_size=end - start,
                lora_name=extras.lora,
                extra_keys=(extras.shown,),
            )
            last = events[-1] if events else None
            if last and last.keys[-1] == parent and last.block_size == new.block_size == block_size:
                events[-1] = replace(
                    last,
                    keys=last.keys + new.keys,
                    token_ids=last.token_ids + new.token_ids,
                    extra_keys=(last.extra_keys or ()) + (new.extra_keys or ()),
                )
            else:
                events.append(new)
        return events


class Extras(NamedTuple):
    """What besides tokens the blocks of a request depend on, or one of them.

    Attributes:
        lora: the adapter's name.
        items: each multimodal item and the place of its first token; of a request also how many
            tokens it has.
        salt: the cache salt, in the first block only; the chain of hashes propagates it.
    """

    lora: str | None = None
    items: tuple[tuple[Any, ...], ...] = ()
    salt: str | None = None

    def of(self, start: int, end: int) -> "Extras":
        """Those of the block of tokens from ``start`` to ``end``: items that have a token in it."""
        inside = (
            (name, at - start) for name, at, count in self.items if at < end and start < at + count
        )
        return Extras(self.lora, tuple(inside), (self.salt or None) if start == 0 else None)

    @property
    def shown(self) -> tuple[object, ...] | None:
        """As events show them; None when there are none."""
        found = (self.lora, *self.items, self.salt)
        return tuple(each for each in found if each is not None) or None


_COUNTED = ("requests", "queries", "hits")
_STATS = ("reset", *_COUNTED, *(f"preempted_{field}" for field in _COUNTED))


class ReferenceManagers:
    """The reference as a `ManagerSubject`, itself by default or as a release behaves."""

    def __init__(
        self, policies: Policies = SPEC, manager_class: Callable[..., KVCacheManager] | None = None
    ) -> None:
        emulated = KVCacheManager if policies == SPEC else partial(EmulatedManager, policies)
        self._policies = policies
        self._manager_class = manager_class or emulated

    def start(self, engine: EngineConfiguration) -> "ReferenceManager":
        scratch_first = self._policies.free_order is FreeOrder.SCRATCH_FIRST
        pool = WatchedPool(engine.num_gpu_blocks)
        return ReferenceManager(self.make(engine, pool), engine, pool, scratch_first)

    def make(self, engine: EngineConfiguration, pool: BlockPool | None = None) -> KVCacheManager:
        """The reference's own manager, over a pool of its own by default."""
        knows = not self._policies.keeps_states_of_drafts
        most = engine.max_in_flight_tokens if knows else engine.max_chunk
        given = Configuration(
            engine.groups,
            engine.num_gpu_blocks,
            engine.max_model_len,
            engine.hash_block_size,
            engine.alignment,
            most,
            engine.enable_prefix_caching,
            engine.use_eagle_block_drop,
            engine.retention_interval,
            engine.num_speculative_tokens,
            engine.max_concurrent_batches,
        )
        return self._manager_class(given, pool)


class ReferenceManager:
    """The reference's manager at work; see `conformance.subject.managers.Manager`."""

    def __init__(
        self,
        manager: KVCacheManager,
        engine: EngineConfiguration,
        pool: WatchedPool,
        scratch_first: bool,
    ) -> None:
        self._manager = manager
        self._engine = engine
        self._pool = pool
        self._preempted: set[str] = set()
        self._stats = Counter[str]()
        self._scratch_first = scratch_first
        self._requests: dict[str, Request] = {}
        self._outside: list[int] = []
        self._holds_events = False

    def add_request(self, name: str, request: RequestInput) -> None:
        # The reference identifies adapters by name alone, so the name includes the path.
        path = "" if request.lora_path is None else f" at {request.lora_path}"
        lora = None if request.lora_name is None else request.lora_name + path
        items = [(image.identifier, image.offset, image.length) for image in request.images]
        # The reference has no embeddings: each is an item of one token.
        items += [(f"prompt_embeds {of}", place, 1) for place, of in request.embedded.items()]
        self._requests[name] = Request(
            name,
            request.prompt,
            self._engine.hash_block_size,
            Extras(lora, tuple(items), request.cache_salt).of,
            request.skip_reading_prefix_cache,
            self._engine.num_hash_lookahead_tokens,
        )

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        self._requests[name].append_output_token_ids(*token_ids)

    def set_progress(self, name: str, progress: Progress) -> None:
        self._requests[name].num_computed_tokens = progress.num_computed_tokens
        if progress.num_preemptions:
            self._preempted.add(name)
        self._requests[name].num_in_flight_tokens = progress.num_in_flight_tokens

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return self._requests[name].hashes(self._engine.groups[group].block_size)

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        return self._cached().get((group, key), ())

    def get_computed_blocks(self, name: str) -> Hit:
        request = self._requests[name]
        hit = self._manager.get_computed_blocks(request)
        if self._engine.enable_prefix_caching and not request.skip_reading_prefix_cache:
            prefix = "preempted_" if name in self._preempted else ""
            counted = (f"{prefix}{field}" for field in _COUNTED)
            self._stats.update(dict(zip(counted, (1, request.num_tokens, hit.length), strict=True)))
        return Hit(hit.length, ids_of(hit.blocks), hit.junction)

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit | None:
        hit = self._manager.find_longest_cache_hit(self._requests[name], cap)
        return Hit(hit.length, ids_of(hit.blocks))

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool]:
        hit, flagged = self._manager.get_computed_blocks_for_connector(self._requests[name], cap)
        return Hit(hit.length, ids_of(hit.blocks)), flagged

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        hit = allocation.hit
        new = self._manager.allocate_slots(
            self._requests[name],
            allocation.num_new_tokens,
            0 if hit is None else hit.length,
            None if hit is None else tuple(map(self._blocks, hit.tables)),
            allocation.num_lookahead_tokens,
            allocation.num_external_computed_tokens,
            allocation.delay_cache_blocks,
            allocation.full_sequence_must_fit,
            allocation.reserved_blocks,
        )
        return None if new is None else ids_of(new)

    def _blocks(self, block_ids: Iterable[int]) -> list[KVCacheBlock]:
        return [self._pool.blocks[number] for number in block_ids]

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self._manager.cache_blocks(self._requests[name], num_computed_tokens)

    def free(self, name: str) -> None:
        self._manager.free(self._requests[name])

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self._pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        done = self._pool.reset_prefix_cache()
        if done:
            self._stats["reset"] = 1
        return done

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        self._manager.remove_skipped_blocks(name, num_computed_tokens)

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        free = self._pool.num_free_blocks
        blocks = self._pool.get_new_blocks(free if count is None else min(count, free))
        (taken,) = ids_of((blocks,))
        self._outside += taken
        return taken

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        self._pool.touch(self._blocks(block_ids))
        self._outside += block_ids

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        self._pool.free_blocks(self._blocks(reversed(block_ids)), self._scratch_first)
        for number in block_ids:
            self._outside.remove(number)

    def new_step_starts(self) -> None:
        self._manager.new_step_starts()

    def hold_events(self, held: bool) -> None:
        self._holds_events = held

    def observe(self) -> Observation:
        pool = self._pool
        held = {name: self._manager.get_block_ids(name) for name in self._requests}
        tables = {name: found for name, found in held.items() if any(found)}
        stats, self._stats = self._stats, Counter()
        groups, usable = range(len(self._engine.groups)), len(pool.blocks) - 1
        shared = tuple(self._common_prefix(tables.values(), group) for group in groups)
        return Observation(
            tables=tables,
            ref_counts={block.block_id: block.ref_cnt for block in pool.blocks if block.ref_cnt},
            cached=self._cached(),
            free_queue=tuple(pool.free),
            num_free_blocks=pool.num_free_blocks,
            usage=1 - pool.num_free_blocks / usable if usable else 0.0,
            common_prefix=dict.fromkeys(tables, shared),
            events=None if self._holds_events else self._pool.take_events(),
            stats={field: stats[field] for field in _STATS},
            held_outside=tuple(self._outside),
        )

    def _common_prefix(self, tables: Iterable[Tables], group: int) -> int:
        """How many leading blocks all requests share; in other kinds leading blocks are null."""
        full = self._engine.groups[group].kind is GroupKind.FULL_ATTENTION
        if not full or not self._engine.enable_prefix_caching:
            return 0
        heads = zip(*(table[group] for table in tables), strict=False)
        return len(list(takewhile(lambda held: len({*held}) == 1, heads)))

    def _cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        return {
            (group, key): tuple(block.block_id for block in blocks)
            for group, key, blocks in self._pool.cached_blocks()
        }

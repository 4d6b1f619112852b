"""The target's own ``KVCacheManager`` behind the protocol of `conformance.subject.managers`.

Requests are real ``Request`` objects, hashed by the target's own hasher with its sha256. Imported
in the worker process only.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.subject.managers import (
    Allocation,
    Hit,
    Observation,
    OfferedState,
    Progress,
    Stored,
    Tables,
)
from hitproof.vllm_integration.adapter.blocks import (
    HASH_LOOKAHEAD,
    PREFILL_LOOKAHEAD,
    block_hasher,
    embedded_prompt,
    image_features,
)
from hitproof.vllm_integration.adapter.cache import VllmCache
from hitproof.vllm_integration.adapter.connector import FOR_CONNECTORS
from hitproof.vllm_integration.adapter.groups import (
    NAMES,
    kv_cache_config,
    kv_cache_spec,
    windows_opt_out,
)
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    call,
    must,
    parameters_of,
    spelled,
)
from hitproof.vllm_integration.adapter.lookups import hits_per_group
from hitproof.vllm_integration.adapter.overrides import check_taken_up
from hitproof.vllm_integration.adapter.parts import put
from hitproof.vllm_integration.adapter.variants import (
    MANAGER_VALUES,
    REQUEST_STATE,
    REQUEST_VALUES,
    SpecClasses,
    purpose,
    varied,
    watching,
)

_CAP = "max_cache_hit_length"
_UNHASHED = "get_unhashed_block_ids_all_groups"
_REPORT_MODE = "kv_cache_report_mode"
_SKIPPED = "skip_zeroing_group_ids"
_BESIDE = "has_scheduled_reqs"
_STATS = (
    "requests",
    "queries",
    "hits",
    "preempted_requests",
    "preempted_queries",
    "preempted_hits",
)


IN_FLIGHT = ("num_in_flight_tokens", "num_output_placeholders")
"""What a request counts of its steps in flight; releases up to 0.25 lack the first."""
_JUNCTIONS = "enable_mamba_shared_prefix_checkpoint"


class VllmManagers:
    """The imported vLLM as a `conformance.subject.managers.ManagerSubject`."""

    def __init__(self) -> None:
        import vllm.v1.core.kv_cache_manager as kv_cache_manager
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface, request
        from vllm.v1.core import block_pool, kv_cache_utils, single_type_kv_cache_manager

        self.manager_class = attribute(kv_cache_manager, "KVCacheManager")
        owners = [each for each in self.manager_class.__mro__ if "allocate_slots" in vars(each)]
        self.allocation_parameters = {
            name for each in owners for name in parameters_of(each.allocate_slots)
        }
        self.fits_whole = "full_sequence_must_fit" in self.allocation_parameters or hasattr(
            self.manager_class, "can_fit_full_sequence"
        )
        self.blocks_class = attribute(kv_cache_manager, "KVCacheBlocks")
        lookup = attribute(self.manager_class, "get_computed_blocks")
        self.caps_lookups = _CAP in parameters_of(lookup)
        self.interface = kv_cache_interface
        self.utils = kv_cache_utils
        self.spec_classes = SpecClasses(kv_cache_interface, single_type_kv_cache_manager, NAMES)
        self.requests = request
        self.hash_function = sha256
        self.registers_tails = hasattr(attribute(block_pool, "BlockPool"), "cache_partial_block")
        mamba = parameters_of(attribute(kv_cache_interface, "MambaSpec"))
        self.keeps_every_state = "mamba_cache_mode" not in mamba
        self.exports_states = "prefill_checkpoint_alignment" in mamba
        constructor = parameters_of(self.manager_class)
        self.keeps_shared_states = _JUNCTIONS in constructor
        self.names_groups = "group_idx" in parameters_of(attribute(block_pool, "BlockStored"))
        self.hashes_look_ahead = HASH_LOOKAHEAD in constructor
        self.looks_ahead = PREFILL_LOOKAHEAD in constructor
        self.windows_opt_out = windows_opt_out(kv_cache_interface)
        attribute(kv_cache_utils, "init_none_hash")(sha256)
        # It warns about each refused reset, and histories request many.
        logging.getLogger("vllm").setLevel(logging.ERROR)

    def start(self, engine: EngineConfiguration) -> "VllmManager":
        return VllmManager(self, engine)

    def _in_flight(self, engine: EngineConfiguration) -> int | None:
        """The most tokens of a step; where that is the default, the target's own, if it has one."""
        parameter = parameters_of(self.manager_class).get("max_in_flight_tokens")
        if parameter is not None and parameter.default is None:
            tokens = engine.max_num_batched_tokens
            return tokens and engine.max_concurrent_batches * tokens
        return engine.max_in_flight_tokens

    def make(self, engine: EngineConfiguration, **watched: bool) -> Any:
        """A real ``KVCacheManager``, in the plainest variant with statistics and events on.

        ``watched`` overrides what the variant has of `variants.MANAGER_VALUES`.
        """
        groups = [
            (
                group,
                kv_cache_spec(
                    self.interface,
                    group,
                    engine.num_speculative_tokens,
                    engine.mamba_checkpoint_alignment,
                    self.spec_classes.chosen(group, engine.variant, alone=False),
                    engine.enable_prefix_caching,
                ),
            )
            for group in engine.groups
        ]
        if engine.mamba_shared_prefix_checkpoint:
            what = "does not keep Mamba states inside blocks for shared prefixes"
            must(self.keeps_shared_states, what, "mamba_shared_prefix_checkpoint")
        if engine.num_hash_lookahead_tokens:
            what = "has no hashes that look ahead"
            must(self.hashes_look_ahead, what, "num_hash_lookahead_tokens")
        if engine.num_prefill_lookahead > 1:
            must(self.looks_ahead, "has no multi-module MTP", "prefill_lookahead")
        interval = engine.retention_interval
        with kv_cache_config(self.interface, groups, engine.num_gpu_blocks, interval) as config:
            manager = call(
                self.manager_class,
                {
                    "kv_cache_config": config,
                    "max_model_len": engine.max_model_len,
                    "scheduler_block_size": engine.alignment,
                    "hash_block_size": engine.hash_block_size,
                    "max_num_batched_tokens": engine.max_chunk,
                    "max_in_flight_tokens": self._in_flight(engine),
                    "enable_caching": engine.enable_prefix_caching,
                    "use_eagle": engine.use_eagle_block_drop,
                    HASH_LOOKAHEAD: engine.num_hash_lookahead_tokens,
                    PREFILL_LOOKAHEAD: engine.num_prefill_lookahead,
                    **watching(engine.variant),
                    **watched,
                    _JUNCTIONS: engine.mamba_shared_prefix_checkpoint,
                },
                "KVCacheManager",
            )
        check_taken_up(attribute(manager, "coordinator"), interval)
        if engine.full_sequence_must_fit:
            what = "cannot check whether a whole request fits"
            must(self.fits_whole, what, "full_sequence_must_fit")
        return manager


class VllmManager:
    """A running ``KVCacheManager``; see `conformance.subject.managers.Manager`."""

    def __init__(self, vllm: VllmManagers, engine: EngineConfiguration) -> None:
        self._vllm = vllm
        self._engine = engine
        self._manager = vllm.make(engine)
        self._pool = attribute(self._manager, "block_pool")
        self._single = attribute(self._manager.coordinator, "single_type_managers")
        self._null = attribute(self._pool, "null_block")
        unit, ahead = engine.hash_block_size, engine.num_hash_lookahead_tokens
        self._hasher = block_hasher(vllm.utils, vllm.hash_function, unit, ahead)
        self._statuses = attribute(vllm.requests, "RequestStatus")
        # Start-up refuses events of several groups where these do not name their group.
        several = len(engine.groups) > 1 and not vllm.names_groups
        chosen = varied(MANAGER_VALUES, "manager", engine.variant)
        self._has_events: bool = chosen["enable_kv_cache_events"] and not several
        self._holds_events = False
        self._requests: dict[str, Any] = {}
        self._found: dict[str, tuple[Hit, Any]] = {}
        self._local: dict[str, tuple[Hit, Any]] = {}
        self._outside: list[int] = []
        self._cache = VllmCache(
            vllm.utils, engine, self._pool, self._requests, vllm.registers_tails
        )
        self._loras: dict[tuple[str, str], int] = {}

    def add_request(self, name: str, request: RequestInput) -> None:
        """A real request, with the hashes of its prompt."""
        variant = self._engine.variant and self._engine.variant + crc32(name.encode()) % 100
        real = attribute(self._vllm.requests, "Request")
        self._requests[name] = call(
            real,
            {
                **varied(REQUEST_VALUES, "request", variant),
                "request_id": name,
                "prompt_token_ids": list(request.prompt),
                **purpose(
                    variant,
                    len(request.output),
                    skip_reading_prefix_cache=request.skip_reading_prefix_cache,
                ),
                "mm_features": image_features(
                    (image.identifier, image.offset, image.length) for image in request.images
                ),
                **embedded_prompt(request, real),
                "lora_request": self._lora(request.lora_name, request.lora_path),
                "cache_salt": request.cache_salt,
                "block_hasher": self._hasher,
            },
            "Request",
        )
        put(self._requests[name], varied(REQUEST_STATE, "request", variant))

    def _lora(self, name: str | None, path: str | None) -> Any:
        if name is None:
            return None
        from vllm.lora.request import LoRARequest

        path = f"/{name}" if path is None else path
        number = self._loras.setdefault((name, path), len(self._loras) + 1)
        return LoRARequest(lora_name=name, lora_int_id=number, lora_path=path)

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        """One token in every second variant as vLLM's scheduler appends it, by itself."""
        request = self._requests[name]
        if len(token_ids) == 1 and self._engine.variant % 2:
            request.append_output_token_ids(token_ids[0])
        else:
            request.append_output_token_ids(list(token_ids))

    def set_progress(self, name: str, progress: Progress) -> None:
        request = self._requests[name]
        request.num_computed_tokens = progress.num_computed_tokens
        request.num_preemptions = progress.num_preemptions
        if self._engine.max_concurrent_batches > 1:
            for counted in IN_FLIGHT:
                if hasattr(request, counted):
                    setattr(request, counted, getattr(progress, counted))
        if progress.running:
            request.status = self._statuses.RUNNING
        else:
            preempted = progress.num_preemptions > 0
            request.status = self._statuses.PREEMPTED if preempted else self._statuses.WAITING

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """The request's hashes as the target groups them into blocks."""
        return self._cache.block_keys(name, group)

    def unit_keys(self, name: str) -> Sequence[Any]:
        """The request's hashes as they are."""
        return self._cache.unit_keys(name)

    def take_block_copies(self) -> Sequence[tuple[int, int]]:
        """Those of ``take_kv_cache_block_copies``, whose blocks are returned at once.

        vLLM's scheduler returns them when it has scheduled the step.
        """
        take = getattr(self._manager, "take_kv_cache_block_copies", None)
        if take is None:
            return ()
        copies, retained = take()
        if retained:
            self._pool.free_blocks(retained)
        return [(copy.src_block_id, copy.dst_block_id) for copy in copies]

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        return self._cache.cached().get((group, key), ())

    def get_computed_blocks(self, name: str) -> Hit:
        request = self._requests[name]
        blocks, length, *boundary = self._manager.get_computed_blocks(request)
        if boundary:  # the scheduler keeps it with the request
            request.shared_prefix_boundary = boundary[0]
        # From 0.30 on the scheduler requests the counting of lookups that lead to admission.
        # Here all are counted, so that the statistics can be compared.
        record = getattr(self._manager, "record_prefix_cache_stats", None)
        if record is not None:
            record(request, length)
        hit = Hit(length, self._tables(blocks), boundary[0] if boundary else 0)
        self._found[name] = hit, blocks
        return hit

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit | None:
        """See `conformance.subject.managers.CappedManager`; not all releases have caps."""
        if not self._vllm.caps_lookups:
            return None
        found = self._manager.get_computed_blocks(
            self._requests[name], **spelled(self._manager.get_computed_blocks, {_CAP: cap})
        )
        blocks, length, *_ = found
        return Hit(length, self._tables(blocks))

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        find = getattr(self._manager, FOR_CONNECTORS, None)
        if find is None or (cap is not None and not self._vllm.caps_lookups):
            return None
        capped = {} if cap is None else {_CAP: cap}
        blocks, length, _, diverged = find(self._requests[name], **spelled(find, capped))
        hit = Hit(length, self._tables(blocks))
        self._local[name] = hit, blocks
        return hit, diverged

    def hits_per_group(self, name: str, cap: int) -> tuple[tuple[int, ...], Tables] | None:
        """See `conformance.subject.managers.GroupwiseManager`; not all releases have that."""
        found = hits_per_group(self._manager.coordinator, self._requests[name], cap)
        if found is None:
            return None
        blocks, lengths = found
        numbers = [[block.block_id for block in table] for table in blocks]
        return tuple(lengths), self._numbers(numbers)

    def take_new_block_ids(self) -> Sequence[int] | None:
        """See `conformance.subject.managers.ZeroingManager`; not all configurations zero."""
        config = getattr(self._manager, "kv_cache_config", None)
        if not getattr(config, "needs_kv_cache_zeroing", False):
            return None
        return list(self._manager.take_new_block_ids())

    @property
    def skips_zeroing(self) -> bool:
        """See `conformance.subject.managers.ZeroingManager`; not all releases do."""
        return _SKIPPED in self._vllm.allocation_parameters

    def zeroed_again(self, name: str, start: int) -> Sequence[int] | None:
        """See `conformance.subject.managers.ZeroingManager`; not all releases have that."""
        record = getattr(self._manager, "record_blocks_for_zeroing", None)
        if record is None or self.take_new_block_ids() is None:
            return None
        record(name, start)
        return self.take_new_block_ids()

    def block_ids_for_computed_tokens(self, name: str, num_tokens: int) -> Tables | None:
        """See `conformance.subject.managers.HandingManager`; not all releases have that."""
        find = getattr(self._manager, "get_block_ids_for_computed_tokens", None)
        return None if find is None else self._numbers(find(name, num_tokens))

    def truncated(self, name: str, num_tokens: int) -> Tables | None:
        """See `conformance.subject.managers.HandingManager`; not all releases have that."""
        cut = getattr(self._manager, "truncate_computed_blocks", None)
        return None if cut is None else self._tables(cut(self._found[name][1], num_tokens))

    def to_load(self, name: str) -> Tables | None:
        """See `conformance.subject.managers.HandingManager`; not all releases have that."""
        find = getattr(self._manager.get_blocks(name), _UNHASHED, None)
        return None if find is None else self._numbers(find())

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        keywords: dict[str, Any] = {}
        if allocation.hit is not None:
            keywords["num_new_computed_tokens"] = allocation.hit.length
            keywords["new_computed_blocks"] = self._blocks(name, allocation.hit)
            if self._is_local(name, allocation.hit):
                # The scheduler keeps it with the request; lookups for connectors see none.
                self._requests[name].shared_prefix_boundary = 0
        if allocation.num_external_computed_tokens:
            keywords["num_external_computed_tokens"] = allocation.num_external_computed_tokens
        if allocation.delay_cache_blocks:
            keywords["delay_cache_blocks"] = True
            if self.skips_zeroing:  # the connector writes the blocks of all groups
                keywords[_SKIPPED] = tuple(range(len(self._engine.groups)))
        if _BESIDE in self._vllm.allocation_parameters:
            keywords[_BESIDE] = allocation.has_scheduled_reqs
        if allocation.reserved_blocks:
            keywords["reserved_blocks"] = self._reserved(allocation.reserved_blocks)
        if allocation.full_sequence_must_fit and not self._fits(name, allocation, keywords):
            return None
        keywords["num_lookahead_tokens"] = allocation.num_lookahead_tokens
        allocate = self._manager.allocate_slots
        new = allocate(
            self._requests[name], allocation.num_new_tokens, **spelled(allocate, keywords)
        )
        return None if new is None else self._tables(new)

    def _fits(self, name: str, allocation: Allocation, keywords: dict[str, Any]) -> bool:
        """Require blocks for the whole request, in the way that the release provides.

        Up to 0.20 that is a separate method, from 0.21 on an argument, added to ``keywords``.
        """
        if "full_sequence_must_fit" in self._vllm.allocation_parameters:
            keywords["full_sequence_must_fit"] = True
            return True
        values = {
            "request": self._requests[name],
            "num_new_tokens": allocation.num_new_tokens,
            "num_lookahead_tokens": allocation.num_lookahead_tokens,
            **keywords,
        }
        fits = attribute(self._manager, "can_fit_full_sequence")
        where = "KVCacheManager.can_fit_full_sequence"
        return bool(fits(**spelled(fits, arguments(fits, values, where))))

    def _reserved(self, blocks: int) -> int:
        """Blocks to leave free. Raises `CannotJudge` where the release can leave none."""
        able = "reserved_blocks" in self._vllm.allocation_parameters
        must(able, "reserves no blocks", "reserved_blocks")
        return blocks

    def _is_local(self, name: str, hit: Hit) -> bool:
        """Whether a hit is the local prefix that the last lookup for a connector returned."""
        return name in self._local and self._local[name][0] is hit

    def _blocks(self, name: str, hit: Hit) -> Any:
        """The blocks that the lookup returned, or the blocks of another answer."""
        if self._is_local(name, hit):
            return self._local[name][1]
        found, blocks = self._found.get(name, (None, None))
        if found == hit:
            return blocks
        return self._vllm.blocks_class(
            tuple([self._pool.blocks[number] for number in table] for table in hit.tables)
        )

    def kept_of(self, name: str) -> Sequence[str]:
        """See `conformance.subject.managers.AccountableManager`: in dicts, sets and lists."""
        request_id = self._requests[name].request_id
        owners = (self._manager, self._manager.coordinator, self._pool, *self._single)
        return [
            f"{type(owner).__name__}.{attribute_name}"
            for owner in owners
            for attribute_name, value in vars(owner).items()
            if _has(value, request_id)
        ]

    def estimated_cached_tokens(self, name: str) -> int | None:
        """See `conformance.subject.managers.AccountableManager`; not all releases have that."""
        estimate = getattr(self._manager, "estimate_cached_tokens", None)
        return None if estimate is None else int(estimate(self._requests[name]))

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        """See `conformance.subject.managers.AccountableManager`; not all releases have that.

        Those whose lookups count themselves are not asked: the statistics are compared.
        """
        request = self._requests[name]
        usual = getattr(request, _REPORT_MODE, None)
        counts_apart = hasattr(self._manager, "record_prefix_cache_stats")
        if usual is None or not self._has_events or not counts_apart:
            return None
        waiting = self._manager.take_events()
        try:
            setattr(request, _REPORT_MODE, "full")
            self._manager.get_computed_blocks(request)
        finally:
            setattr(request, _REPORT_MODE, usual)
            events = self._cache.events(self._manager.take_events())
            if waiting:
                attribute(self._pool, "kv_event_queue").extend(waiting)
        return [event for event in events if isinstance(event, Stored)]

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        """See `conformance.subject.managers.AccountableManager`; not all releases have that."""
        take = getattr(self._manager, "take_boundary_state_offloads", None)
        if take is None:
            return None
        names = {request.request_id: name for name, request in self._requests.items()}
        return [
            OfferedState(names[request_id], group, block, end)
            for request_id, entries in take().items()
            for group, block, end in entries
        ]

    def final_states(self, name: str) -> Sequence[OfferedState]:
        """See `conformance.subject.managers.AccountableManager`; not all releases have that."""
        finalize = getattr(self._manager, "finalize_partial_tail_offloads", None)
        found = () if finalize is None else finalize(self._requests[name])
        return [OfferedState(name, group, block, end) for group, block, end in found]

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self._manager.cache_blocks(self._requests[name], num_computed_tokens)

    def free(self, name: str) -> None:
        """In every second variant as vLLM's scheduler frees what a step in flight may still read.

        It takes the blocks out of the tables and returns them later; here that is at once, and
        group by group, as ``free`` does it, so that the free queue is the same in all variants.
        """
        request = self._requests[name]
        pop = getattr(self._manager, "pop_blocks_for_free", None)
        if pop is None or self._engine.variant % 2 == 0:
            self._manager.free(request)
            return
        tables = self._tables(self._manager.get_blocks(name))
        popped = [block for block in pop(request) if not block.is_null]
        others = {block.block_id for block in popped}.difference(*tables)
        for numbers in [*tables, others]:
            part = [block for block in popped if block.block_id in numbers]
            self._pool.free_blocks(reversed(part))

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self._manager.evict_blocks(set(block_ids))

    def reset_prefix_cache(self) -> bool:
        return bool(self._manager.reset_prefix_cache())

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        remove = attribute(self._manager, "remove_skipped_blocks")
        request = self._requests[name]
        values = {
            "request_id": request.request_id,
            "total_computed_tokens": num_computed_tokens,
            "processed_computed_tokens": num_computed_tokens,
            "num_prompt_tokens": request.num_prompt_tokens,
        }
        where = "KVCacheManager.remove_skipped_blocks"
        remove(**spelled(remove, arguments(remove, values, where)))

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        free = self._pool.get_num_free_blocks()
        blocks = self._pool.get_new_blocks(free if count is None else min(count, free))
        taken = [block.block_id for block in blocks]
        self._outside += taken
        return taken

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        self._pool.touch([self._pool.blocks[number] for number in block_ids])
        self._outside += block_ids

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        self._pool.free_blocks([self._pool.blocks[number] for number in reversed(block_ids)])
        for number in block_ids:
            self._outside.remove(number)

    def new_step_starts(self) -> None:
        starts = getattr(self._manager, "new_step_starts", None)
        if starts is not None:
            starts()

    def hold_events(self, held: bool) -> None:
        self._holds_events = held

    def observe(self) -> Observation:
        held = {name: self._numbers(self._manager.get_block_ids(name)) for name in self._requests}
        tables = {name: found for name, found in held.items() if any(found)}
        stats = self._manager.make_prefix_cache_stats()
        return Observation(
            tables=tables,
            ref_counts={
                block.block_id: block.ref_cnt
                for block in self._pool.blocks
                if block.ref_cnt and not block.is_null
            },
            cached=self._cache.cached(),
            free_queue=tuple(
                block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()
            ),
            num_free_blocks=self._pool.get_num_free_blocks(),
            usage=self._manager.usage,
            common_prefix=self._common_prefix(tables),
            events=self._cache.events(self._manager.take_events())
            if self._has_events and not self._holds_events
            else None,
            stats={}
            if stats is None
            else {"reset": int(stats.reset)}
            | {field: getattr(stats, field) for field in _STATS if hasattr(stats, field)},
            held_outside=tuple(self._outside),
        )

    def _common_prefix(self, names: Iterable[str]) -> dict[str, tuple[int, ...]] | None:
        """None on releases that no longer have cascade attention and always return 0."""
        if not hasattr(self._single[0], "get_num_common_prefix_blocks"):
            return None
        return {name: tuple(self._manager.get_num_common_prefix_blocks(name)) for name in names}

    def _tables(self, blocks: Any) -> Tables:
        return self._numbers(blocks.get_block_ids())

    def _numbers(self, tables: Any) -> Tables:
        null = self._null.block_id
        return tuple([tuple([0 if n == null else n for n in table]) for table in tables])


def _has(value: Any, request_id: str) -> bool:
    """Whether a container has an entry under the id of a request."""
    if isinstance(value, dict | set):
        return request_id in value
    return isinstance(value, list) and any(
        entry == request_id or (isinstance(entry, tuple) and request_id in entry[:1])
        for entry in value
        if isinstance(entry, str | tuple)
    )

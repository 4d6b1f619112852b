"""The real offloading scheduler: a tier of chunks behind a KV connector.

vLLM's own scheduler is started with its own connector, over a backend that keeps no blocks
(`vllm_integration.adapter.offloads`).
"""

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from hitproof.conformance.histories.workloads import Deployment
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.subject.schedulers import StartupRefused
from hitproof.conformance.subject.tiers import Load
from hitproof.spec.groups import Group, GroupKind, alignment
from hitproof.vllm_integration.adapter.chunks import (
    Copies,
    chunk_of,
    connect_chunks,
    ends_of,
    reported,
)
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.parts import Parts, stand_in_hashes
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.transfers import connectable, note_lookups

_CHUNKS = "offloading in chunks of several blocks"
_STATES = "states that connectors load"
_LOCAL = "offloading of chunked local attention"

OFFLOADING_ENTRIES = {
    "lookup": "get_num_new_matched_tokens",
    "stored": "build_connector_meta",
    "loaded": "update_state_after_alloc",
}
"""The methods of the offloading scheduler, by what they are asked for."""


def offloading_class() -> Any:
    """The class of the scheduler's half of the connector."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler

    return attribute(scheduler, "OffloadingConnectorScheduler")


class Offloading:
    """A real scheduler with a real offloading connector, for one layout.

    Attributes:
        started: the scheduler.
        connector: its connector.
        manager: the backend's half of it, which keeps the keys.
    """

    def __init__(
        self, parts: Parts, schedulers: VllmSchedulers, layout: Layout, max_num_tokens: int
    ) -> None:
        if connectable(layout.groups) != layout.groups:
            parts.lacks(_STATES)
        deployment = deployment_of(layout, max_num_tokens)
        vllm_config = schedulers.vllm_config(deployment)
        connect_chunks(vllm_config, layout.groups, layout.blocks_per_chunk)
        with schedulers.groups_config(deployment, vllm_config) as groups:
            try:
                self.started = schedulers.start_with(deployment, vllm_config, groups)
            except StartupRefused as refusal:
                _refuse(parts, layout, refusal)
        self.connector = attribute(self.started.scheduler, "connector")
        self.half = attribute(self.connector, "connector_scheduler")
        self.manager = attribute(self.half, "manager")
        if layout.blocks_per_chunk != chunk_of(self.half):
            parts.lacks(_CHUNKS)
        if self.started.engine.hash_block_size != layout.hash_block_size:
            raise CannotJudge(
                f"blocks are hashed in units of {self.started.engine.hash_block_size} tokens, not "
                f"{layout.hash_block_size}"
            )


def _refuse(parts: Parts, layout: Layout, refusal: StartupRefused) -> None:
    """What does not start is not served beside the connector, where that is known."""
    kinds = {group.kind for group in layout.groups}
    sizes = {group.block_size for group in layout.groups}
    if GroupKind.CHUNKED_LOCAL in kinds:
        parts.lacks(_LOCAL)
    if layout.blocks_per_chunk > 1 and len(sizes) > 1:
        parts.lacks(_CHUNKS)
    raise CannotJudge(f"the offloading connector does not start: {refusal}") from refusal


def deployment_of(layout: Layout, max_num_tokens: int) -> Deployment:
    """A deployment of the layout for requests of up to ``max_num_tokens`` tokens."""
    drafts = layout.use_eagle
    modules = layout.prefill_lookahead if drafts else 1
    longest = max_num_tokens + 1
    return Deployment(
        layout.groups,
        2 + sum(-(-longest // group.block_size) + 4 for group in layout.groups),
        longest,
        longest,
        max_num_seqs=2,
        speculative_method=("mtp" if modules > 1 else "eagle") if drafts else None,
        num_speculative_tokens=modules if drafts else 0,
        num_mtp_modules=modules,
        lookahead_hashes=False,
        retention_interval="dense",
    )


class VllmOffloadLookup:
    """``get_num_new_matched_tokens`` of a real connector, for requests of one layout."""

    inputs: Sequence[object] = ()

    def __init__(self, offloading: Offloading, parts: Parts, layout: Layout, local: int) -> None:
        from vllm.v1.kv_offload import base

        self._unit = unit = layout.hash_block_size
        self._hashes = stand_in_hashes(layout.num_tokens // unit)
        # A chunk is known by the hash of its last tokens, which is of all before them.
        self.keys = [
            self._hashes[size // unit - 1 :: size // unit]
            for size in (each.group.block_size for each in layout.looked_up)
        ]
        self._offloading = offloading
        self._parts = parts
        self._local = local
        self._requests: dict[int, Any] = {}
        self._hash_of: Callable[[Any], bytes] = attribute(base, "get_offload_block_hash")
        self._group_of: Callable[[Any], int] = attribute(base, "get_offload_group_idx")

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        connector, manager = self._offloading.connector, self._offloading.manager

        def has(key: Any) -> bool:
            return pool.get_cached_block(self._hash_of(key), (self._group_of(key),)) is not None

        manager.has = has
        request = self._request(max_length + 1)
        if hasattr(connector, "on_new_request"):
            connector.on_new_request(request)
        try:
            more, _ = connector.get_num_new_matched_tokens(request, self._local)
        finally:
            vars(self._offloading.half)["_req_status"].clear()
        if more is None:
            raise CannotJudge("the offloading scheduler wants to be asked later")
        return LookupAnswer(self._local + more, ())

    def _request(self, length: int) -> Any:
        """A request of ``length`` tokens, of which the connector forgets what it noted."""
        if length not in self._requests:
            hashes = self._hashes[: length // self._unit]
            self._requests[length] = self._parts.request_of(range(length), hashes)
        return self._requests[length]


class VllmOffloadPlays:
    """Requests that a real scheduler serves, with what its connector stores and loads of them.

    A block's content is known by its group and what it is of: its place
    in the request or, of a state, the tokens that it is after.
    """

    def __init__(self, offloading: Offloading, parts: Parts, layout: Layout, length: int) -> None:
        self._offloading = offloading
        self._parts = parts
        self._layout = layout
        self._length = length
        # How many tokens at the end of a prompt are computed together.
        self._own = layout.prefill_lookahead if layout.use_eagle else 1
        self._scheduler = offloading.started.scheduler
        self._manager = attribute(self._scheduler, "kv_cache_manager")
        self._copies = Copies(layout.blocks_per_chunk, len(offloading.half.config.kv_group_configs))
        self._device: dict[int, _Content] = {}
        self._memory: dict[Any, list[_Content | None]] = {}
        self._longest: dict[Any, list[_Content | None]] = {}
        self._answer = self._first = (0, 0)
        offloading.manager.has = self._memory.__contains__

        def note(_: str, local: int, more: int | None) -> None:
            self._answer = local, more or 0

        note_lookups(offloading.connector, note)

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        """See `conformance.subject.tiers.TierPlays`."""
        self._memory.clear()
        self._empty()
        self._serve(ends)
        return [
            frozenset(
                chunk
                for chunk in range(ends[-1] // size)
                if self._key(group, (chunk + 1) * size) in self._memory
            )
            if each.prefix_cacheable
            else None
            for group, each in enumerate(self._layout.groups)
            for size in (each.block_size * self._layout.blocks_per_chunk,)
        ]

    def loaded(self, local: int, length: int) -> Load | None:
        """See `conformance.subject.tiers.TierPlays`."""
        if not self._longest:
            every = alignment(self._layout.groups)
            self.stored(range(every, self._length + 1, every))
            self._longest = {key: [*chunk] for key, chunk in self._memory.items()}
        self._memory.clear()
        self._memory.update({key: [*chunk] for key, chunk in self._longest.items()})
        self._empty()
        if local:
            self._serve([local])
        loads = self._serve([length])
        here, more = self._first
        if not more:
            return None
        return Load(here, min(here + more, length + self._own - 1), loads)

    def _key(self, group: int, end: int) -> bytes:
        from vllm.v1.kv_offload.base import make_offload_key

        unit = self._layout.hash_block_size
        made: bytes = make_offload_key(stand_in_hashes(end // unit)[-1], group)
        return made

    def _empty(self) -> None:
        self._manager.reset_prefix_cache()
        self._device.clear()

    def _serve(self, ends: Sequence[int]) -> Sequence[Set[int]]:
        """Serve a request until it has ended, in steps that end there; what it loads."""
        length = ends[-1] + self._own
        unit = self._layout.hash_block_size
        request = self._parts.request_of(range(length), stand_in_hashes(length // unit))
        name, scheduler = request.request_id, self._scheduler
        most = scheduler.scheduler_config.max_num_batched_tokens
        scheduler.add_request(request)
        loads: list[set[int]] = [set() for _ in self._layout.groups]
        stops = [*ends, length]
        self._first = (0, 0)
        for step in range(8 * len(stops) + 8):
            computed = request.num_computed_tokens
            stop = next((end for end in stops if end > computed), length)
            # The last step may be padded by drafts.
            scheduler.max_num_scheduled_tokens = most if stop == length else stop - computed
            output = scheduler.schedule()
            if not step:
                self._first = self._answer
            self._copy_blocks(output)
            told = output.kv_connector_metadata
            for job in told.load_jobs.values():
                self._load(job, name, loads)
            if name in output.num_scheduled_tokens:
                self._compute(name, computed, request.num_computed_tokens)
            for job in told.store_jobs.values():
                self._store(job)
            self._report(output, told)
            if request.is_finished() and not output.num_scheduled_tokens and not told.store_jobs:
                return loads
        raise CannotJudge("a request does not end")

    def _tables(self, name: str) -> Iterator[tuple[int, Group, Sequence[int]]]:
        """Each group's number, the group, and the blocks that the request has of it."""
        tables = self._manager.get_block_ids(name)
        for number, (group, table) in enumerate(zip(self._layout.groups, tables, strict=True)):
            yield number, group, table

    def _copy_blocks(self, output: Any) -> None:
        for copy in getattr(output, "kv_cache_block_copies", None) or ():
            self._device[copy.dst_block_id] = self._device.get(copy.src_block_id, _NOTHING)

    def _compute(self, name: str, start: int, end: int) -> None:
        """What a step writes that computes these tokens."""
        for group, each, table in self._tables(name):
            size = each.block_size
            last = -(-end // size)
            first = last - 1 if each.kind is GroupKind.MAMBA else start // size
            for place in range(first, last):
                content = (group, end) if each.kind is GroupKind.MAMBA else (group, place)
                if place < len(table) and table[place]:
                    self._device[table[place]] = content

    def _store(self, job: Any) -> None:
        keys, chunk = ends_of(job)[1].keys, self._layout.blocks_per_chunk
        for key in keys:
            self._memory.setdefault(key, [None] * chunk)
        for block, place in self._copies.of(job, stores=True):
            self._memory[keys[place // chunk]][place % chunk] = self._device.get(block, _NOTHING)

    def _load(self, job: Any, name: str, loads: list[set[int]]) -> None:
        source, target = ends_of(job)
        for block, place in self._copies.of(job, stores=False):
            at, slot = divmod(place, self._layout.blocks_per_chunk)
            self._device[block] = self._memory.get(source.keys[at], [])[slot] or _NOTHING
        loaded = {*map(int, target.block_ids)}
        for group, each, table in self._tables(name):
            for place, block in enumerate(table):
                due = (place + 1) * each.block_size if each.kind is GroupKind.MAMBA else place
                if block in loaded and self._device[block] == (group, due):
                    loads[group].add(place)

    def _report(self, output: Any, told: Any) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        jobs = [*told.load_jobs, *told.store_jobs]
        names = list(output.num_scheduled_tokens)
        requests = self._scheduler.requests
        sampled = [
            [0] if requests[each].num_computed_tokens >= requests[each].num_tokens else []
            for each in names
        ]
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={each: place for place, each in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=None,
        )
        loaded = [job.req_id for job in told.load_jobs.values()]
        result.kv_connector_output = reported(jobs, loaded)
        self._scheduler.update_from_output(output, result)


_Content = tuple[int, int]
_NOTHING: _Content = (-1, -1)

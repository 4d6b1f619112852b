"""The target's own manager under simulation. Imported in the worker process only."""

from collections.abc import Callable, Sequence
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.simulation.subject import HandedOut, Lookup
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.inspection import attribute, call, spelled
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.variants import REQUEST_VALUES, SAMPLING_VALUES, varied


def count_handed_out(pool: Any) -> HandedOut:
    """Count from now on what a ``BlockPool`` hands out."""
    keys = attribute(pool, "cached_block_hash_to_block")
    attribute(pool, "get_new_blocks")
    return HandedOut.by(pool, lambda: len(keys))


class SimulatedVllm:
    """See `conformance.simulation.subject.SimulatedManager`."""

    def __init__(
        self,
        vllm: VllmManagers,
        engine: EngineConfiguration,
        horizon: LookaheadHorizon,
        junctions: bool,
    ) -> None:
        self._vllm, self._engine = vllm, engine
        self.horizon, self.junctions = horizon, junctions
        self._manager = vllm.make(engine, enable_kv_cache_events=False)
        self._pool = attribute(self._manager, "block_pool")
        self._keys = attribute(self._pool, "cached_block_hash_to_block")
        self._null = attribute(self._pool, "null_block").block_id
        self._coarse = attribute(vllm.utils, "BlockHashListWithBlockSize")
        self._running = attribute(attribute(vllm.requests, "RequestStatus"), "RUNNING")
        self._step_starts: Callable[[], None] | None = getattr(
            self._manager, "new_step_starts", None
        )
        self._copies = getattr(self._manager, "take_kv_cache_block_copies", None)
        self._offered = getattr(self._manager, "take_boundary_state_offloads", None)
        self.handed_out = count_handed_out(self._pool)

    def arrive(self, name: str, num_prompt_tokens: int, hashes: Sequence[bytes]) -> Any:
        from vllm.sampling_params import SamplingParams

        unit, ahead = self._engine.hash_block_size, self._engine.num_hash_lookahead_tokens

        def new_hashes(request: Any) -> list[Any]:
            known = max(0, request.num_tokens - ahead) // unit
            return list(hashes[len(request.block_hashes) : known])

        sampling = SamplingParams(max_tokens=1, **varied(SAMPLING_VALUES, "sampling", 0))
        return call(
            attribute(self._vllm.requests, "Request"),
            {
                **varied(REQUEST_VALUES, "request", 0),
                "request_id": name,
                "prompt_token_ids": [0] * num_prompt_tokens,
                "sampling_params": sampling,
                "pooling_params": None,
                "mm_features": [],
                "lora_request": None,
                "cache_salt": None,
                "block_hasher": new_hashes,
            },
            "Request",
        )

    def append(self, request: Any, count: int) -> None:
        """The request asks for the hashes itself."""
        request.append_output_token_ids([0] * count)

    def lookup(self, request: Any) -> Lookup:
        blocks, length, *boundary = self._manager.get_computed_blocks(request)
        if boundary:  # the scheduler keeps it with the request
            request.shared_prefix_boundary = boundary[0]
        return Lookup(length, blocks)

    def allocate(self, request: Any, num_new_tokens: int, hit: Lookup | None) -> bool:
        """The whole request need not fit."""
        keywords = {}
        if hit is not None:
            keywords = {"num_new_computed_tokens": hit.length, "new_computed_blocks": hit.blocks}
        allocate = self._manager.allocate_slots
        new = allocate(request, num_new_tokens, **spelled(allocate, keywords))
        return new is not None

    def computed(self, request: Any, num_tokens: int) -> None:
        request.num_computed_tokens = num_tokens
        request.status = self._running

    def free(self, request: Any) -> None:
        self._manager.free(request)

    def new_step_starts(self) -> None:
        """Also takes what the last step left for the model runner, as the scheduler does."""
        if self._copies is not None:
            _, retained = self._copies()
            if retained:
                self._pool.free_blocks(retained)
        if self._offered is not None:
            self._offered()
        if self._step_starts is not None:
            self._step_starts()

    def num_free(self) -> int:
        return int(self._pool.get_num_free_blocks())

    def cached(self) -> list[int]:
        """Counted in the hash map itself: no method counts by group."""
        counts = [0] * len(self._engine.groups)
        for key in attribute(self._keys, "_cache"):
            counts[self._vllm.utils.get_group_id(key)] += 1
        return counts

    def held(self, request: Any) -> list[int]:
        """Without null blocks."""
        tables = self._manager.get_block_ids(request.request_id)
        return [sum(block != self._null for block in table) for table in tables]

    def has_block(self, request: Any, group: int, block: int) -> bool:
        size, unit = self._engine.groups[group].block_size, self._engine.hash_block_size
        hashes = request.block_hashes
        if (block + 1) * size > len(hashes) * unit:
            return False
        key = hashes[block] if size == unit else self._coarse(hashes, unit, size)[block]
        return self._pool.get_cached_block(key, [group]) is not None

"""The reference under simulation."""

from collections.abc import Sequence
from typing import Any

from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.simulation.subject import HandedOut, Lookup
from hitproof.reference.pool import BlockPool
from hitproof.reference.request import Request


class SimulatedReference:
    """See `conformance.simulation.subject.SimulatedManager`."""

    def __init__(self, engine: EngineConfiguration, policies: Policies) -> None:
        self._engine = engine
        self._manager = ReferenceManagers(policies).make(engine)
        self._pool: BlockPool = self._manager.block_pool
        self.horizon, self.junctions = policies.horizon, policies.junctions
        self._hashes: dict[str, Sequence[bytes]] = {}
        self.handed_out = HandedOut.by(self._pool, lambda: self._pool.num_cached_keys)

    def arrive(self, name: str, num_prompt_tokens: int, hashes: Sequence[bytes]) -> Request:
        request = Request(name, (), self._engine.hash_block_size)
        request.num_hash_lookahead_tokens = self._engine.num_hash_lookahead_tokens
        request.num_prompt_tokens = num_prompt_tokens
        self._hashes[name] = hashes
        self.append(request, num_prompt_tokens)
        return request

    def append(self, request: Request, count: int) -> None:
        """Tokens and their hashes."""
        request.all_token_ids += [0] * count
        known = max(0, request.num_tokens - request.num_hash_lookahead_tokens)
        units = known // request.hash_block_size
        request.block_hashes += self._hashes[request.request_id][len(request.block_hashes) : units]

    def lookup(self, request: Request) -> Lookup:
        """Without the statistics."""
        hit = self._manager.get_computed_blocks(request)
        return Lookup(hit.length, hit.blocks)

    def allocate(self, request: Request, num_new_tokens: int, hit: Lookup | None) -> bool:
        """The whole request need not fit."""
        if hit is None:
            return self._manager.allocate_slots(request, num_new_tokens) is not None
        new = self._manager.allocate_slots(request, num_new_tokens, hit.length, hit.blocks)
        return new is not None

    def computed(self, request: Request, num_tokens: int) -> None:
        request.num_computed_tokens = num_tokens

    def free(self, request: Request) -> None:
        """The request may come again, if it was preempted."""
        self._manager.free(request)

    def new_step_starts(self) -> None:
        self._manager.new_step_starts()

    def num_free(self) -> int:
        return self._pool.num_free_blocks

    def cached(self) -> list[int]:
        counts = [0] * len(self._engine.groups)
        for group, _, _ in self._pool.cached_blocks():
            counts[group] += 1
        return counts

    def held(self, request: Request) -> list[int]:
        """Without null blocks."""
        tables = self._manager.get_block_ids(request.request_id)
        return [sum(map(bool, table)) for table in tables]

    def has_block(self, request: Request, group: int, block: int) -> bool:
        units = self._engine.groups[group].block_size // self._engine.hash_block_size
        last = (block + 1) * units - 1
        hashes: Sequence[Any] = request.block_hashes
        if last >= len(hashes):
            return False
        return self._pool.get_cached_block(hashes[last], (group,)) is not None

"""The manager: what the scheduler calls for each request, step by step.

vLLM: ``vllm/v1/core/kv_cache_manager.py``, with the same names and meanings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from hitproof.reference.configuration import KVCacheConfig
from hitproof.reference.coordinator import KVCacheCoordinator
from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.pool import BlockPool
from hitproof.reference.request import Request
from hitproof.spec.groups import ConfigurationError


@dataclass
class KVCacheBlocks:
    """Blocks per group: those of a hit, or newly allocated ones. vLLM: ``KVCacheBlocks``."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def __add__(self, other: "KVCacheBlocks") -> "KVCacheBlocks":
        pairs = zip(self.blocks, other.blocks, strict=True)
        return KVCacheBlocks(tuple([*mine, *theirs] for mine, theirs in pairs))

    def get_block_ids(self) -> tuple[list[int], ...]:
        """The blocks' ids, one list per group."""
        return tuple([block.block_id for block in blocks] for blocks in self.blocks)


class KVCacheManager:
    """The prefix cache and the block tables of all running requests.

    Arguments:
        kv_cache_config: the groups, and the blocks in the pool.
        max_model_len: the most tokens that a request can have.
        hash_block_size: tokens under one hash of a request.
        scheduler_block_size: the alignment of hits in tokens; the LCM of all block sizes by
            default.
        max_num_batched_tokens: the most tokens in flight, for admission: of one step, or of those
            that are scheduled before its results are known; ``max_model_len`` by default.
        enable_caching: whether blocks are shared between requests at all.
        use_eagle: whether an EAGLE or MTP draft model runs.
        retention_interval: see `reference.registration`; None is dense.
        block_pool: the pool; a new one by default.

    Raises `ConfigurationError` for a configuration that no engine can have.
    """

    coordinator_class: Callable[..., KVCacheCoordinator] = KVCacheCoordinator

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        hash_block_size: int,
        scheduler_block_size: int | None = None,
        max_num_batched_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        retention_interval: int | None = None,
        block_pool: BlockPool | None = None,
    ) -> None:
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.block_pool = (
            BlockPool(kv_cache_config.num_blocks) if block_pool is None else block_pool
        )
        self.coordinator = self.coordinator_class(
            kv_cache_config,
            max_model_len,
            max_model_len if max_num_batched_tokens is None else max_num_batched_tokens,
            scheduler_block_size,
            hash_block_size,
            enable_caching,
            use_eagle,
            retention_interval,
            self.block_pool,
        )
        self._hash_block_size = hash_block_size
        self.empty_kv_cache_blocks = KVCacheBlocks(((),) * len(kv_cache_config.kv_cache_groups))

    def get_computed_blocks(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """The request's longest valid hit: its block tables and its length in tokens.

        The last token is always recomputed, for its logits. Nothing is looked up for requests
        that need every token's logits (prompt logprobs).
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            request.shared_prefix_boundary = 0
            return self.empty_kv_cache_blocks, 0
        if request.hash_block_size != self._hash_block_size:
            self._refuse(request)
        cap = request.num_tokens - 1
        hit = self.coordinator.find_longest_cache_hit(request.block_hashes, cap)
        request.shared_prefix_boundary = hit.junction
        if hit.length == 0:
            return self.empty_kv_cache_blocks, 0
        return KVCacheBlocks(hit.blocks), hit.length

    def get_computed_blocks_for_connector(
        self, request: Request
    ) -> tuple[KVCacheBlocks, int, bool]:
        """The request's local prefix, for a KV connector that loads Mamba states.

        Its block tables, its length in tokens, and whether it is flagged: if nothing is loaded in
        the end, `get_computed_blocks` must be called instead.
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0, False
        if request.hash_block_size != self._hash_block_size:
            self._refuse(request)
        cap = request.num_tokens - 1
        hit, flagged = self.coordinator.find_local_prefix(request.block_hashes, cap)
        return KVCacheBlocks(hit.blocks), hit.length, flagged

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
    ) -> KVCacheBlocks | None:
        """Give the request slots for its next step; returns None if too few blocks are free.

        Args:
            request: its ``num_computed_tokens`` tokens have slots already.
            num_new_tokens: tokens of this step, draft tokens included.
            num_new_computed_tokens: the length of its hit, if this is its first step.
            new_computed_blocks: the tables of that hit.
            num_lookahead_tokens: slots for tokens that a draft model will propose.
            num_external_computed_tokens: tokens that a connector loads.
            delay_cache_blocks: do not register blocks yet, since a connector still fills them.
            full_sequence_must_fit: refuse unless all of the request's tokens would fit.
            reserved_blocks: free blocks to leave for other requests.

        Returns:
            The blocks added to each group's table.

        Blocks that the step no longer reads are freed in any case. Draft tokens are not
        registered, since they may be rejected.
        """
        # Of a hit that is computed again in part, a step may compute no token past it.
        if not (num_new_tokens or num_new_computed_tokens or num_external_computed_tokens):
            raise ValueError(
                "a step computes at least one new token, takes a hit, or a connector loads some; "
                "pass one of num_new_tokens, num_new_computed_tokens and "
                "num_external_computed_tokens"
            )
        if request.hash_block_size != self._hash_block_size:
            self._refuse(request)
        coordinator, request_id = self.coordinator, request.request_id
        hit = self.empty_kv_cache_blocks if new_computed_blocks is None else new_computed_blocks
        num_local = request.num_computed_tokens + num_new_computed_tokens
        total_computed = min(num_local + num_external_computed_tokens, self.max_model_len)
        if full_sequence_must_fit:
            full = min(request.num_tokens, self.max_model_len)
            needed = coordinator.get_num_blocks_to_allocate(
                request_id, full, hit.blocks, total_computed, full, True
            )
            if needed > self.block_pool.num_free_blocks:
                return None
        num_main = total_computed + num_new_tokens
        num_slots = min(num_main + num_lookahead_tokens, self.max_model_len)
        self._register_accepted(request)
        coordinator.remove_skipped_blocks(request_id, self._num_settled(request, total_computed))
        needed = coordinator.get_num_blocks_to_allocate(
            request_id, num_slots, hit.blocks, num_local + num_external_computed_tokens, num_main
        )
        if needed > self.block_pool.num_free_blocks - reserved_blocks:
            return None
        if any(hit.blocks) or num_external_computed_tokens:
            coordinator.allocate_new_computed_blocks(
                request_id, hit.blocks, num_local, num_external_computed_tokens
            )
        new_blocks = coordinator.allocate_new_blocks(request_id, num_slots, num_main)
        if not delay_cache_blocks:
            self.cache_blocks(request, min(num_main, request.num_tokens))
        return KVCacheBlocks(new_blocks)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register the request's blocks up to ``num_computed_tokens`` that hits can reach."""
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def free(self, request: Request) -> None:
        """Free all blocks of a request that is finished or preempted, the last ones first."""
        for manager in self.coordinator.single_type_managers:
            manager.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the blocks that a request no longer reads."""
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Make lookups stop finding these blocks, because a connector failed to fill them."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Empty the cache; returns False and does nothing while requests hold blocks."""
        return self.block_pool.reset_prefix_cache()

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        """The request's block table in each group."""
        return KVCacheBlocks(
            tuple(
                manager.req_to_blocks.get(request_id, [])
                for manager in self.coordinator.single_type_managers
            )
        )

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """The ids of the request's blocks in each group."""
        return self.get_blocks(request_id).get_block_ids()

    def new_step_starts(self) -> None:
        """A new scheduler step begins: what earlier steps registered is computed."""
        for manager in self.coordinator.single_type_managers:
            manager.new_step_starts()

    def _register_accepted(self, request: Request) -> None:
        """Blocks filled by accepted drafts get their hash only now, and may be freed next."""
        if request.num_hash_lookahead_tokens:
            self.cache_blocks(request, request.num_computed_tokens)

    def _num_settled(self, request: Request, total_computed: int) -> int:
        """The next token to compute is known to be no earlier: that after the last results."""
        return max(0, total_computed - request.num_in_flight_tokens)

    def _refuse(self, request: Request) -> NoReturn:
        raise ConfigurationError(
            f"request {request.request_id} is hashed in blocks of {request.hash_block_size} "
            f"tokens, the manager in blocks of {self._hash_block_size}; use one hash block size"
        )

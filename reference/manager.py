"""The manager: what the scheduler calls for each request, step by step, in all groups together.

vLLM: ``vllm/v1/core/kv_cache_manager.py``, with the same names and meanings, and
``kv_cache_coordinator.py``, which has three classes for what one does here: without caching nothing
is looked up or registered, and the common hit of one group is its own.
"""

from collections.abc import Callable, Sequence

from hitproof.reference.groups import Blocks, Configuration, GroupManager, MambaManager, Step
from hitproof.reference.pool import BlockPool
from hitproof.reference.registration import Registration
from hitproof.reference.request import Request
from hitproof.reference.spec_groups import Hit, SpecGroup, find_hit, find_local_prefix, spec_groups
from hitproof.spec.groups import GroupKind, alignment, share_eagle

Tables = tuple[Blocks, ...]
"""Blocks of each group: those of a hit, of a request, or newly allocated ones."""


class KVCacheManager:
    """The prefix cache and the block tables of all running requests.

    It is made of ``registration_class`` and of a manager for each group. ``block_pool`` is a new
    one by default. Raises `ConfigurationError` for a configuration that no engine can have.
    """

    registration_class: Callable[..., Registration] = Registration
    group_class: Callable[..., GroupManager] = GroupManager
    mamba_class: Callable[..., GroupManager] = MambaManager

    def __init__(self, given: Configuration, block_pool: BlockPool | None = None) -> None:
        if given.enable_caching:
            alignment(given.groups)
        self._given = given
        self.block_pool = BlockPool(given.num_blocks) if block_pool is None else block_pool
        shared = share_eagle(given.groups, given.use_eagle)
        self._spec_groups = spec_groups(shared, given.alignment, given.hash_block_size)
        # Of one group neither lookups nor what is kept for them may peek past the cap.
        self._peeks = self._may_peek(len(shared))
        self.registration = self.registration_class(
            shared, given.alignment, given.retention_interval, self._peeks
        )
        self.groups = [
            (self.mamba_class if group.kind is GroupKind.MAMBA else self.group_class)(
                group, group_id, self.block_pool, given
            )
            for group_id, group in enumerate(shared)
        ]

    def get_computed_blocks(self, request: Request) -> Hit:
        """The request's longest valid hit: its block tables, and its length in tokens.

        The last token is always recomputed, for its logits. Nothing is looked up for requests
        that need every token's logits (prompt logprobs).
        """
        hit = self._nothing
        if self._reads(request):
            hit = self.find_longest_cache_hit(request, request.num_tokens - 1)
        request.shared_prefix_boundary = hit.junction
        return hit

    def find_longest_cache_hit(self, request: Request, cap: int) -> Hit:
        """The longest valid hit of at most ``cap`` tokens."""
        return find_hit(*self._lookup(request, cap))

    def get_computed_blocks_for_connector(
        self, request: Request, cap: int | None = None
    ) -> tuple[Hit, bool]:
        """The request's local prefix, for a KV connector that loads Mamba states.

        And whether it is flagged: if nothing is loaded in the end, `get_computed_blocks` must be
        called instead. With a ``cap`` of its own it is that of any request.
        """
        if cap is None:
            if not self._reads(request):
                return self._nothing, False
            cap = request.num_tokens - 1
        return find_local_prefix(*self._lookup(request, cap))

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Tables | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
    ) -> Tables | None:
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
        request_id, most = request.request_id, self._given.max_model_len
        hit = self._nothing.blocks if new_computed_blocks is None else new_computed_blocks
        local = request.num_computed_tokens + num_new_computed_tokens
        total = local + num_external_computed_tokens
        computed = min(total, most)
        if full_sequence_must_fit:
            full = min(request.num_tokens, most)
            if not self._fits(request_id, Step(computed, full, full, True), hit):
                return None
        main = computed + num_new_tokens
        step = Step(total, main, min(main + num_lookahead_tokens, most))
        self._register_accepted(request)
        self.remove_skipped_blocks(request_id, self._num_settled(request, computed))
        if not self._fits(request_id, step, hit, reserved_blocks):
            return None
        if any(hit) or num_external_computed_tokens:
            self._take_computed(request_id, hit, total, num_external_computed_tokens > 0)
        new = tuple(each.allocate_new_blocks(request_id, step) for each in self.groups)
        if not delay_cache_blocks:
            self.cache_blocks(request, min(main, request.num_tokens))
        return new

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register the request's blocks up to ``num_computed_tokens`` that hits can reach."""
        for manager in self.groups if self._given.enable_caching else ():
            if (group := manager.group).prefix_cacheable:
                tokens = self.registration.num_tokens(group, num_computed_tokens)
                mask = self.registration.mask(
                    group,
                    request.num_prompt_tokens,
                    request.shared_prefix_boundary,
                    request.num_hash_lookahead_tokens,
                )
                manager.cache_blocks(request, tokens, mask)

    def free(self, request: Request) -> None:
        """Free all blocks of a request that is finished or preempted, the last ones first."""
        for manager in self.groups:
            manager.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the blocks that a request no longer reads."""
        for manager in self.groups:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def new_step_starts(self) -> None:
        """A new scheduler step begins: what earlier steps registered is computed."""
        for manager in self.groups:
            manager.new_step_starts()

    def get_blocks(self, request_id: str) -> Tables:
        """The request's block table in each group."""
        return tuple(each.req_to_blocks.get(request_id, ()) for each in self.groups)

    def get_block_ids(self, request_id: str) -> tuple[tuple[int, ...], ...]:
        """The ids of the request's blocks in each group."""
        return ids_of(self.get_blocks(request_id))

    @property
    def _nothing(self) -> Hit:
        return Hit(((),) * len(self.groups), 0, 0)

    def _reads(self, request: Request) -> bool:
        return self._given.enable_caching and not request.skip_reading_prefix_cache

    def _lookup(
        self, request: Request, cap: int
    ) -> tuple[Sequence[SpecGroup], int, Sequence[bytes], int, int, BlockPool]:
        """What a lookup is given: it sees to the end of what is hashed, or not past its cap."""
        hashes = request.block_hashes
        hashed = len(hashes) * self._given.hash_block_size
        horizon = max(cap + 1, hashed) if self._peeks else cap
        return self._spec_groups, len(self.groups), hashes, cap, horizon, self.block_pool

    def _may_peek(self, num_groups: int) -> bool:
        return num_groups > 1

    def _fits(self, request_id: str, step: Step, hit: Tables, reserved_blocks: int = 0) -> bool:
        """Whether the blocks for a step are free; of a new request that takes a ``hit`` first."""
        needed = sum(
            manager.get_num_blocks_to_allocate(request_id, step, blocks)
            for manager, blocks in zip(self.groups, hit, strict=True)
        )
        return needed <= self.block_pool.num_free_blocks - reserved_blocks

    def _take_computed(self, request_id: str, hit: Tables, computed: int, loads: bool) -> None:
        """Give a new request its hit, and blocks for the tokens that a connector computed.

        Every group's hit is touched before any block is taken; otherwise a block taken for one
        group could be part of another's hit. vLLM does so from 0.24 on (issue #33775).
        """
        new = [
            (manager, blocks)
            for manager, blocks in zip(self.groups, hit, strict=True)
            if request_id not in manager.num_cached_block
        ]
        for manager, blocks in new:
            manager.add_local_computed_blocks(request_id, blocks, computed)
        for manager, _ in new if loads else ():
            manager.allocate_external_computed_blocks(request_id, computed)

    def _register_accepted(self, request: Request) -> None:
        """Blocks filled by accepted drafts get their hash only now, and may be freed next."""
        if request.num_hash_lookahead_tokens:
            self.cache_blocks(request, request.num_computed_tokens)

    def _num_settled(self, request: Request, computed: int) -> int:
        """The next token to compute is known to be no earlier: that after the last results."""
        return max(0, computed - request.num_in_flight_tokens)


def ids_of(tables: Tables) -> tuple[tuple[int, ...], ...]:
    """The ids of blocks."""
    return tuple([tuple([block.block_id for block in table]) for table in tables])

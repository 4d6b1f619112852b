"""All groups together: the common hit, and every operation in each group.

vLLM: ``vllm/v1/core/kv_cache_coordinator.py``, which has three classes for what one does here:
without caching nothing is looked up or registered, and the common hit of one group is its own.
"""

from collections.abc import Callable, Sequence

from hitproof.reference.configuration import (
    KVCacheConfig,
    max_admission_blocks,
    scheduler_block_size,
)
from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.groups import Blocks, GroupManager, MambaManager
from hitproof.reference.pool import BlockPool
from hitproof.reference.registration import Registration
from hitproof.reference.request import Request
from hitproof.reference.spec_groups import Hit, SpecGroup, find_hit, spec_groups
from hitproof.spec.connector import is_fully_loaded, may_diverge
from hitproof.spec.groups import Group, GroupKind, alignment, share_eagle


def find_local_prefix(
    shared: Sequence[SpecGroup],
    num_groups: int,
    block_hashes: Sequence[bytes],
    max_cache_hit_length: int,
    horizon: int,
    block_pool: BlockPool,
) -> tuple[Hit, bool]:
    """The longest local prefix, and whether it is flagged: a state at its end is not cached.

    Arguments as in `reference.spec_groups.find_hit`. vLLM:
    ``KVCacheManager.get_computed_blocks_for_connector``.
    """
    if not may_diverge([each.group for each in shared]):
        return (
            find_hit(shared, num_groups, block_hashes, max_cache_hit_length, horizon, block_pool),
            False,
        )
    states = [each for each in shared if is_fully_loaded(each.group.kind)]
    others = [each for each in shared if not is_fully_loaded(each.group.kind)]
    hit = find_hit(others, num_groups, block_hashes, max_cache_hit_length, horizon, block_pool)
    blocks: list[Sequence[KVCacheBlock]] = list(hit.blocks)
    diverged = False
    for group in states:
        tables = group.tables(block_hashes, hit.length, horizon, block_pool)
        diverged |= len(tables[0]) * group.block_size < hit.length
        for group_id, table in zip(group.group_ids, tables, strict=True):
            blocks[group_id] = table
    return Hit(tuple(blocks), hit.length, 0), diverged


class KVCacheCoordinator:
    """The groups of one model over one pool. Arguments as in `reference.manager`.

    It is made of ``registration_class`` and of a manager for each group.
    """

    registration_class: Callable[..., Registration] = Registration
    group_class: Callable[..., GroupManager] = GroupManager
    mamba_class: Callable[..., GroupManager] = MambaManager

    def __init__(
        self,
        kv_cache_config: KVCacheConfig,
        max_model_len: int,
        max_num_batched_tokens: int,
        alignment_tokens: int | None,
        hash_block_size: int,
        enable_caching: bool,
        use_eagle: bool,
        retention_interval: int | None,
        block_pool: BlockPool,
    ) -> None:
        groups = kv_cache_config.kv_cache_groups
        if enable_caching:
            alignment(groups)
        self.alignment = scheduler_block_size(groups, hash_block_size, alignment_tokens)
        self.enable_caching = enable_caching
        self.block_pool = block_pool
        shared = share_eagle(groups, use_eagle)
        self._spec_groups = spec_groups(shared, self.alignment, hash_block_size)
        # Of one group neither lookups nor what is kept for them may peek past the cap.
        self._peeks = self._may_peek(len(groups))
        self._registration = self.registration_class(
            shared, self.alignment, retention_interval, self._peeks
        )
        self._hash_block_size = hash_block_size
        self.single_type_managers = tuple(
            self._manager(group, group_id, kv_cache_config, max_num_batched_tokens, max_model_len)
            for group_id, group in enumerate(shared)
        )

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> Hit:
        """The longest valid hit of at most ``max_cache_hit_length`` tokens."""
        return find_hit(
            self._spec_groups,
            len(self.single_type_managers),
            block_hashes,
            max_cache_hit_length,
            self._horizon(block_hashes, max_cache_hit_length),
            self.block_pool,
        )

    def _may_peek(self, num_groups: int) -> bool:
        return num_groups > 1

    def _horizon(self, block_hashes: Sequence[bytes], cap: int) -> int:
        """How far a lookup sees: no further than its cap, or to the end of what is hashed."""
        hashed = len(block_hashes) * self._hash_block_size
        return max(cap + 1, hashed) if self._peeks else cap

    def find_local_prefix(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> tuple[Hit, bool]:
        """The longest local prefix of such a request, and whether it is flagged.

        See `reference.coordinator`.
        """
        return find_local_prefix(
            self._spec_groups,
            len(self.single_type_managers),
            block_hashes,
            max_cache_hit_length,
            self._horizon(block_hashes, max_cache_hit_length),
            self.block_pool,
        )

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Blocks],
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        """Free blocks needed by all groups. See `GroupManager.get_num_blocks_to_allocate`."""
        return sum(
            manager.get_num_blocks_to_allocate(
                request_id,
                num_tokens,
                blocks,
                total_computed_tokens,
                num_tokens_main_model,
                apply_admission_cap,
            )
            for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True)
        )

    def allocate_new_computed_blocks(
        self,
        request_id: str,
        new_computed_blocks: Sequence[Blocks],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        """Give a new request its hit, and blocks for the tokens that a connector computed.

        Every group's hit is touched before any block is taken; otherwise a block taken for one
        group could be part of another's hit. vLLM does so from 0.24 on (issue #33775).
        """
        total = num_local_computed_tokens + num_external_computed_tokens
        new = [
            (manager, blocks)
            for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True)
            if request_id not in manager.num_cached_block
        ]
        for manager, blocks in new:
            manager.add_local_computed_blocks(request_id, blocks, total)
        if num_external_computed_tokens:
            for manager, _ in new:
                manager.allocate_external_computed_blocks(request_id, total)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> tuple[list[KVCacheBlock], ...]:
        """Slots for ``num_tokens`` tokens in every group; the blocks that are new."""
        return tuple(
            manager.allocate_new_blocks(request_id, num_tokens, num_tokens_main_model)
            for manager in self.single_type_managers
        )

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        """Register what future hits can reach of the request's computed tokens."""
        for manager in self.single_type_managers:
            group = manager.group
            if group.prefix_cacheable:
                tokens = self._registration.num_tokens(group, num_computed_tokens)
                manager.cache_blocks(
                    request, tokens, self._registration.mask(group, request.registered)
                )

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free in every group the blocks that the request no longer reads."""
        for manager in self.single_type_managers:
            manager.remove_skipped_blocks(request_id, total_computed_tokens)

    def _manager(
        self,
        group: Group,
        group_id: int,
        kv_cache_config: KVCacheConfig,
        max_num_batched_tokens: int,
        max_model_len: int,
    ) -> GroupManager:
        pool = self.block_pool
        if group.kind is GroupKind.MAMBA:
            states = 1 + kv_cache_config.max_concurrent_batches
            drafts = kv_cache_config.num_speculative_blocks
            return self.mamba_class(group, group_id, pool, drafts, states)
        cap = max_admission_blocks(group, max_num_batched_tokens, max_model_len)
        return self.group_class(group, group_id, pool, cap)

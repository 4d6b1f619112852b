"""The real coordinator as producer: what it registers of a prompt, and how far its lookup peeks."""

from collections.abc import Callable
from math import ceil
from types import ModuleType
from typing import Any

from conformance.configurations import Configuration
from conformance.subjects import CannotJudge
from spec.groups import Group, GroupKind
from spec.retention import LookaheadHorizon
from vllm_integration.groups import kv_cache_config
from vllm_integration.inspection import attribute, call


class Producer:
    """``cache_blocks`` of the real hybrid coordinator, over one group and a full-attention one.

    ``coordinator`` and ``interface`` are the target's modules ``kv_cache_coordinator`` and
    ``kv_cache_interface``; ``spec_of`` makes the ``KVCacheSpec`` of a group, ``request_of`` a
    ``Request`` of so many tokens with hashes of so many tokens each.
    """

    def __init__(
        self,
        coordinator: ModuleType,
        interface: ModuleType,
        spec_of: Callable[[Group], Any],
        request_of: Callable[[int, int], Any],
    ) -> None:
        self._module = coordinator
        self._interface = interface
        self._spec_of = spec_of
        self._request_of = request_of

    def registered(
        self, configuration: Configuration, num_tokens: int, interval: int | None
    ) -> list[bool]:
        """Which full blocks of the group are registered for a prompt of ``num_tokens`` tokens."""
        coordinator = self._coordinator(configuration, num_tokens, interval)
        request = self._cached(coordinator, configuration, num_tokens)
        blocks = coordinator.single_type_managers[1].req_to_blocks[request.request_id]
        full = num_tokens // configuration.group.block_size
        return [block.block_hash is not None for block in blocks[:full]]

    def lookahead_horizon(self) -> LookaheadHorizon:
        """Resend a prompt whose last block can only serve as lookahead block, and see it hit.

        The prompt ends with that block, so its hit needs to peek at the very last token.
        """
        size = 2
        group = Group(GroupKind.SLIDING_WINDOW, size, size + 1, eagle=True)
        configuration = Configuration(1, 3, 2 * size, group, hash_block_size=size)
        num_tokens = 3 * size
        coordinator = self._coordinator(configuration, num_tokens, None)
        request = self._cached(coordinator, configuration, num_tokens)
        hit = coordinator.find_longest_cache_hit(request.block_hashes, num_tokens - 1)[1]
        return LookaheadHorizon.HASHED if hit == 2 * size else LookaheadHorizon.CAPPED

    def _cached(self, coordinator: Any, configuration: Configuration, num_tokens: int) -> Any:
        """A request whose prompt was computed in one go."""
        request = self._request_of(num_tokens, configuration.hash_block_size)
        for manager in coordinator.single_type_managers:
            blocks = coordinator.block_pool.get_new_blocks(ceil(num_tokens / manager.block_size))
            manager.req_to_blocks[request.request_id] = list(blocks)
        coordinator.cache_blocks(request, num_tokens)
        return request

    def _coordinator(
        self, configuration: Configuration, num_tokens: int, interval: int | None
    ) -> Any:
        full = Group(GroupKind.FULL_ATTENTION, configuration.alignment)
        groups = [full, *[configuration.group] * configuration.members]
        with kv_cache_config(
            self._interface,
            [(group, self._spec_of(group)) for group in groups],
            1 + sum(num_tokens // g.block_size + 1 for g in groups),
            interval,
        ) as config:
            coordinator = call(
                attribute(self._module, "get_kv_cache_coordinator"),
                {
                    "kv_cache_config": config,
                    "max_model_len": num_tokens + 1,
                    "max_in_flight_tokens": num_tokens + 1,
                    "max_num_batched_tokens": num_tokens + 1,
                    "use_eagle": configuration.group.eagle,
                    "enable_caching": True,
                    "enable_kv_cache_events": False,
                    "dcp_world_size": 1,
                    "pcp_world_size": 1,
                    "scheduler_block_size": configuration.alignment,
                    "hash_block_size": configuration.hash_block_size,
                },
                "get_kv_cache_coordinator",
            )
        if getattr(coordinator, "retention_interval", None) != interval:
            raise CannotJudge("the coordinator does not take up the retention interval")
        return coordinator

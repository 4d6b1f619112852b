"""The real coordinator: what it registers of a prompt, and how far its lookup peeks."""

import inspect
from dataclasses import replace
from math import ceil
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.inspection import attribute, call
from hitproof.vllm_integration.adapter.overrides import check_taken_up
from hitproof.vllm_integration.adapter.parts import Parts

_LOOKAHEAD = "num_prefill_lookahead"


class Producer:
    """``cache_blocks`` of the real hybrid coordinator, over one group and a full-attention one.

    ``parts`` sets up the objects.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._module = parts.coordinators

    def registered(
        self, configuration: Configuration, num_tokens: int, interval: int | None
    ) -> list[bool]:
        """Which full blocks of the group are registered for a prompt of ``num_tokens`` tokens."""
        layout = _beside_full(configuration, num_tokens)
        return self._registered(layout, configuration, num_tokens, interval)

    def registered_when_final(
        self, configuration: Configuration, num_tokens: int, not_final: int, alone: bool
    ) -> list[bool]:
        """The same, when a draft model recomputes the last ``not_final`` tokens."""
        layout = _beside_full(configuration, num_tokens)
        if alone:
            layout = replace(layout, groups=layout.groups[1:2])
        # One token ahead is what the drafts themselves are, and is never computed anew.
        return self._registered(layout, configuration, num_tokens, None, not_final + 1)

    @property
    def looks_ahead(self) -> bool:
        """Whether a coordinator has a parameter for how far draft models look ahead in prefill."""
        function = attribute(self._module, "get_kv_cache_coordinator")
        return _LOOKAHEAD in inspect.signature(function).parameters

    def _registered(
        self,
        layout: Layout,
        configuration: Configuration,
        num_tokens: int,
        interval: int | None,
        ahead: int = 0,
    ) -> list[bool]:
        coordinator = self.coordinator(layout, interval, ahead)
        request = self._cached(coordinator, configuration, num_tokens)
        blocks = coordinator.single_type_managers[-1].req_to_blocks[request.request_id]
        full = num_tokens // configuration.group.block_size
        return [block.block_hash is not None for block in blocks[:full]]

    def lookahead_horizon(self) -> LookaheadHorizon:
        """Look up a prompt of four blocks, all of them cached.

        A hit of three blocks peeks at the very last token, one of two stops before it. Where no
        group peeks past its candidate, full attention leaves two and the window at most one.
        """
        size = 2
        group = Group(GroupKind.SLIDING_WINDOW, size, size + 1, eagle=True)
        hit = self._prefix_hit(group, size, 4 * size)
        if hit == 3 * size:
            return LookaheadHorizon.HASHED
        return LookaheadHorizon.CAPPED if hit == 2 * size else LookaheadHorizon.CANDIDATE

    def all_groups_drop(self) -> bool:
        """Whether full attention drops a block although the draft layers are in another group.

        The prompt has one and a half blocks of full attention; the other group's lookahead block
        fills the rest. If full attention drops a block, nothing is left.
        """
        return self._prefix_hit(Group(GroupKind.SLIDING_WINDOW, 2, 5, eagle=True), 4, 7) == 0

    def _prefix_hit(self, group: Group, align: int, num_tokens: int) -> int:
        """The hit, in tokens, of a prompt whose extension by two alignments was just computed."""
        size, extended = group.block_size, num_tokens + 2 * align
        configuration = Configuration(1, extended, align, group, hash_block_size=size)
        coordinator = self.coordinator(_beside_full(configuration, extended), None)
        request = self._cached(coordinator, configuration, extended)
        hashes = request.block_hashes[: num_tokens // size]
        find = attribute(coordinator, "find_longest_cache_hit")
        return int(find(hashes, num_tokens - 1)[1])

    def _cached(self, coordinator: Any, configuration: Configuration, num_tokens: int) -> Any:
        """A request whose prompt was computed: with Mamba block by block, else in two chunks.

        A Mamba block keeps a state only where a chunk ends. The first chunk of the others is of one
        alignment and one block.
        """
        request = self._parts.request(num_tokens, configuration.hash_block_size)
        for manager in coordinator.single_type_managers:
            blocks = coordinator.block_pool.get_new_blocks(ceil(num_tokens / manager.block_size))
            manager.req_to_blocks[request.request_id] = list(blocks)
        size, first = configuration.group.block_size, configuration.alignment
        if configuration.group.kind is GroupKind.MAMBA:
            ends = range(size, num_tokens, size)
        else:
            ends = range(first + size, min(num_tokens, first + size + 1))
        for end in (*ends, num_tokens):
            coordinator.cache_blocks(request, end)
        return request

    @property
    def hybrid(self) -> Any:
        """The class of the coordinator of several groups."""
        return attribute(self._module, "HybridKVCacheCoordinator")

    def coordinator(self, layout: Layout, interval: int | None, ahead: int = 0) -> Any:
        """The real coordinator of the layout, with a pool for one request of its bound.

        In prefill draft models look ``ahead`` tokens ahead.
        """
        num_tokens, groups = layout.num_tokens, layout.groups
        num_blocks = 1 + sum(num_tokens // group.block_size + 1 for group in groups)
        with self._parts.configured(groups, num_blocks, interval) as config:
            coordinator = call(
                attribute(self._module, "get_kv_cache_coordinator"),
                {
                    **self._parts.watching,
                    "kv_cache_config": config,
                    "max_model_len": num_tokens + 1,
                    "max_in_flight_tokens": num_tokens + 1,
                    "max_num_batched_tokens": num_tokens + 1,
                    "use_eagle": layout.use_eagle,
                    "enable_caching": True,
                    "dcp_world_size": 1,
                    "pcp_world_size": 1,
                    "scheduler_block_size": layout.alignment,
                    "hash_block_size": layout.hash_block_size,
                    "allow_partial_hash_hits": False,
                    _LOOKAHEAD: ahead,
                },
                "get_kv_cache_coordinator",
            )
        check_taken_up(coordinator, interval)
        return coordinator


def _beside_full(configuration: Configuration, num_tokens: int) -> Layout:
    """The configuration's groups with full attention, for requests of that many tokens."""
    return Layout(
        configuration.layout,
        num_tokens,
        configuration.group.eagle,
        configuration.hash_block_size,
    )

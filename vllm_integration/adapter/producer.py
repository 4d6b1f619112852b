"""The real coordinator, and how far lookup over several groups peeks."""

from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.blocks import PREFILL_LOOKAHEAD
from hitproof.vllm_integration.adapter.history import History
from hitproof.vllm_integration.adapter.inspection import attribute, call, parameters_of
from hitproof.vllm_integration.adapter.overrides import check_taken_up
from hitproof.vllm_integration.adapter.parts import Parts


class Producer:
    """The real coordinators, and what prompts that are served one after another show of them.

    ``parts`` sets up the objects.
    """

    def __init__(self, parts: Parts, history: History) -> None:
        self._parts = parts
        self._history = history
        self._module = parts.coordinators

    @property
    def looks_ahead(self) -> bool:
        """Whether a coordinator has a parameter for how far draft models look ahead in prefill."""
        function = attribute(self._module, "get_kv_cache_coordinator")
        return PREFILL_LOOKAHEAD in parameters_of(function)

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
        extended, unit = num_tokens + 2 * align, group.block_size
        configuration = Configuration(1, extended, align, group, hash_block_size=unit)
        return self._history.hits(configuration, (range(extended), range(num_tokens)), None)[-1]

    @property
    def hybrid(self) -> Any:
        """The class of the coordinator of several groups."""
        return attribute(self._module, "HybridKVCacheCoordinator")

    def coordinator(self, layout: Layout, inside: bool = False) -> Any:
        """The real coordinator of the layout, with a pool for lookups, which take no blocks.

        With ``inside`` hits may end inside blocks.
        """
        num_tokens, groups = layout.num_tokens, layout.groups
        several = layout.prefill_lookahead > 1
        if several and not self.looks_ahead:
            self._parts.lacks("drafts that are computed anew")
        with self._parts.configured(groups, 0, None) as config:
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
                    "allow_partial_hash_hits": inside,
                    **({PREFILL_LOOKAHEAD: layout.prefill_lookahead} if several else {}),
                },
                "get_kv_cache_coordinator",
            )
        check_taken_up(coordinator, None)
        return coordinator

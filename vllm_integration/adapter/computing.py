"""Prompts computed by the real ``KVCacheManager``, by the calls that a scheduler makes.

What is registered is read where another request would look for it, in the block pool. So everything
between a scheduler and the block pool is judged, such as the coordinator's ``cache_blocks``.

Beside it: the real coordinator, and how far lookup over several groups peeks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.blocks import PREFILL_LOOKAHEAD
from hitproof.vllm_integration.adapter.history import History, whole_manager
from hitproof.vllm_integration.adapter.inspection import attribute, call, parameters_of
from hitproof.vllm_integration.adapter.overrides import check_taken_up
from hitproof.vllm_integration.adapter.parts import Parts, parallel


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

    def coordinator(self, layout: Layout) -> Any:
        """The real coordinator of the layout, with a pool for lookups, which take no blocks."""
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
                    "allow_partial_hash_hits": False,
                    **({PREFILL_LOOKAHEAD: layout.prefill_lookahead} if several else {}),
                },
                "get_kv_cache_coordinator",
            )
        check_taken_up(coordinator, None)
        return coordinator


class Computing:
    """Which blocks of a group are registered of a prompt that a ``KVCacheManager`` computes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def registered(
        self,
        configuration: Configuration,
        ends: Sequence[int],
        interval: int | None = None,
        *,
        alone: bool = False,
        prefill_lookahead: int = 0,
    ) -> list[bool]:
        """Which full blocks of the group are registered for a prompt of ``ends[-1]`` tokens.

        It is computed in chunks that end at ``ends``. The group stands ``alone``, or beside full
        attention (`Configuration.layout`). A block counts where each member has it.
        ``interval`` is the retention interval; ``prefill_lookahead`` is how far draft models
        look ahead in prefill, in tokens.
        """
        self._parts.vary(configuration)
        parts, num_tokens, size = self._parts, ends[-1], configuration.group.block_size
        unit = size if alone else configuration.hash_block_size
        groups = configuration.layout[1:2] if alone else configuration.layout
        if alone and configuration.group.eagle:
            groups = (replace(groups[0], eagle=configuration.drops_block),)
        layout = Layout(groups, num_tokens, configuration.group.eagle, unit)
        num_blocks = 1 + sum(num_tokens // group.block_size + 3 for group in groups)
        more: dict[str, Any] = {PREFILL_LOOKAHEAD: prefill_lookahead}
        if configuration.ranks != (1, 1):
            layout = replace(layout, groups=(parts.on_one_rank(configuration),))
            more |= parallel(configuration)
        more["scheduler_block_size"] = configuration.alignment
        # What the planner does, so that what is drafted anew is still there.
        retained = max(0, prefill_lookahead - 1)
        manager = whole_manager(parts, layout, num_blocks, interval, retained, more)
        request = parts.request(num_tokens, unit)
        compute(manager, request, ends)
        view = parts.view(request.block_hashes, unit, size)
        find: Callable[..., Any] = attribute(manager.block_pool, "get_cached_block")
        group_ids = [0] if alone else list(range(1, len(groups)))
        return [find(view[block], group_ids) is not None for block in range(num_tokens // size)]


def compute(manager: Any, request: Any, ends: Sequence[int]) -> None:
    """Have a request computed in chunks that end at ``ends``, in tokens, from where it stands.

    Raises `CannotJudge` when the manager finds no blocks.
    """
    allocate_slots = attribute(manager, "allocate_slots")
    starts = getattr(manager, "new_step_starts", None)
    for end in ends:
        if starts is not None:
            starts()
        if allocate_slots(request, end - request.num_computed_tokens) is None:
            raise CannotJudge("allocate_slots finds no free blocks in a pool that has them")
        request.num_computed_tokens = end


def ends_of(configuration: Configuration, num_tokens: int) -> tuple[int, ...]:
    """Chunks of a prompt: with Mamba block by block, else two where it is long enough.

    A Mamba block keeps a state only where a chunk ends. The first chunk of the others is of one
    alignment and one block.
    """
    size, first = configuration.group.block_size, configuration.alignment
    if configuration.group.kind is GroupKind.MAMBA:
        ends = range(size, num_tokens, size)
    else:
        ends = range(first + size, min(num_tokens, first + size + 1))
    return (*ends, num_tokens)

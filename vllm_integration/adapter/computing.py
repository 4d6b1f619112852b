"""Prompts computed by the real ``KVCacheManager``, by the calls that a scheduler makes.

What is registered is read where another request would look for it, in the block pool. So everything
between a scheduler and the block pool is judged, such as the coordinator's ``cache_blocks``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.blocks import PREFILL_LOOKAHEAD
from hitproof.vllm_integration.adapter.history import whole_manager
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.parts import Parts, parallel


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

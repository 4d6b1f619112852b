"""The real ``KVCacheManager``, serving prompts one after another."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, call
from hitproof.vllm_integration.adapter.overrides import check_taken_up
from hitproof.vllm_integration.adapter.parts import Parts

_JUNCTION = "shared_prefix_boundary"


class History:
    """Prompts served by one ``KVCacheManager``, each looked up, computed and freed.

    What the scheduler does between calls is done here: with Mamba, chunks end where it keeps
    states (``Scheduler._mamba_block_aligned_split``), and a prefix that lookup reports as shared is
    recorded on the request. The pool is large enough that nothing is evicted. ``parts`` sets up
    the objects.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def notes_junctions(self) -> bool:
        """Whether a request records a shared prefix that lookup found but that was not kept."""
        return hasattr(self._parts.request_of([0], []), _JUNCTION)

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        """The hit of each prompt, in tokens, when they arrive in this order."""
        manager = self._manager(configuration, prompts, interval)
        return [self._serve(manager, configuration, prompt) for prompt in prompts]

    def _serve(self, manager: Any, configuration: Configuration, prompt: Sequence[int]) -> int:
        unit, align = configuration.hash_block_size, configuration.alignment
        request = self._parts.request_of(prompt, prefix_hashes(prompt, unit))
        found, hit, *junction = attribute(manager, "get_computed_blocks")(request)
        if junction:
            setattr(request, _JUNCTION, junction[0])
        computed, first = hit, True
        stops = (len(prompt),)
        if any(group.kind is GroupKind.MAMBA for group in configuration.layout):
            kept = (len(prompt) // align - configuration.group.eagle) * align
            stops = *(each // align * align for each in junction), kept, len(prompt)
        while computed < len(prompt):
            if hasattr(manager, "new_step_starts"):
                manager.new_step_starts()
            end = min(stop for stop in stops if stop > computed)
            adopted = {"num_new_computed_tokens": hit, "new_computed_blocks": found}
            allocate_slots = attribute(manager, "allocate_slots")
            slots = allocate_slots(request, end - computed, **(adopted if first else {}))
            if slots is None:
                raise CannotJudge("allocate_slots finds no free blocks in a pool that has them")
            request.num_computed_tokens = computed = end
            first = False
        manager.free(request)
        return int(hit)

    def _manager(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> Any:
        groups, unit = configuration.layout, configuration.hash_block_size
        layout = Layout(groups, max(map(len, prompts)), configuration.group.eagle, unit)
        blocks = sum(len(p) // g.block_size + 3 for p in prompts for g in groups)
        return whole_manager(self._parts, layout, 1 + blocks, interval)


def whole_manager(
    parts: Parts,
    layout: Layout,
    num_blocks: int,
    interval: int | None,
    retained: int = 0,
    more: Mapping[str, Any] | None = None,
) -> Any:
    """A real ``KVCacheManager`` of the layout, with a pool of at least ``num_blocks`` blocks.

    ``interval`` is the retention interval; windows keep ``retained`` tokens more than they attend
    to. ``more`` are further arguments, or others than the layout gives.
    """
    with parts.configured(layout.groups, num_blocks, interval, retained) as config:
        manager = call(
            attribute(parts.whole, "KVCacheManager"),
            {
                **parts.watching,
                "kv_cache_config": config,
                "max_model_len": layout.num_tokens + 1,
                "scheduler_block_size": layout.alignment,
                "hash_block_size": layout.hash_block_size,
                "enable_caching": True,
                "use_eagle": layout.use_eagle,
                **(more or {}),
            },
            "KVCacheManager",
        )
    check_taken_up(attribute(manager, "coordinator"), interval)
    return manager


def prefix_hashes(prompt: Sequence[int], unit: int) -> list[bytes]:
    """A hash for every ``unit`` tokens, each of the whole prefix up to there."""
    running, hashes = hashlib.sha256(), []
    for end in range(unit, len(prompt) + 1, unit):
        running.update(str(list(prompt[end - unit : end])).encode())
        hashes.append(running.digest())
    return hashes

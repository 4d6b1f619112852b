"""The real ``KVCacheManager``, called by a scheduler with a KV connector."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from hitproof.conformance.exploration.watch import do_not_watch
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.vllm_integration.adapter.history import whole_manager
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.parts import Parts

FOR_CONNECTORS = "get_computed_blocks_for_connector"


class VllmConnectorLookup:
    """``get_computed_blocks_for_connector`` of a real ``KVCacheManager``, ready for one layout.

    ``parts`` sets up the objects.
    """

    inputs: Sequence[object] = ()

    def __init__(
        self, parts: Parts, layout: Layout, hashes: list[bytes], keys: Sequence[Sequence[bytes]]
    ) -> None:
        self.keys = keys
        blocks = sum(layout.num_tokens // group.block_size + 1 for group in layout.groups)
        manager = whole_manager(parts, layout, 1 + blocks, None)
        coordinator = attribute(manager, "coordinator")
        self._owners = (manager, coordinator, *coordinator.single_type_managers)
        self._find = attribute(manager, FOR_CONNECTORS)
        unit = layout.hash_block_size
        # Every other one is looked up again after a preemption: half of it is output.
        self._request = cache(
            lambda count: parts.request_of(
                range(count), hashes[: count // unit], count // 2 if count % 2 else 0
            )
        )

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        for owner in self._owners:
            owner.block_pool = pool
        returned = self._find(self._request(max_length + 1))
        match returned:
            case (blocks, int() as hit_length, _, bool() as diverged):
                return LookupAnswer(hit_length, attribute(blocks, "blocks"), diverged)
        raise CannotJudge(f"{FOR_CONNECTORS} returned {returned!r:.80}, which hitproof cannot read")


do_not_watch(VllmConnectorLookup.__call__.__code__)

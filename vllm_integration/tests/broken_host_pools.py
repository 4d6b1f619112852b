"""What generated histories show of a target's host pool, part by part broken.

Run in a process of its own with the target on its path; writes what was found of each fault.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.host_workloads import host_workload
from hitproof.conformance.scheduling.playing import play
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers

_MANY = 100
_KNOWN = "request-never-finishes"


def _early(publish: Callable[..., Any]) -> Callable[..., Any]:
    def published(self: Any, request_id: str) -> None:
        if request_id in self.request_states:
            self.request_states[request_id].ready_prefix_pages = 1000
        publish(self, request_id)

    return published


def _without_changes(take: Callable[..., Any]) -> Callable[..., Any]:
    def taken(self: Any, request_ids: Any) -> Any:
        names = list(request_ids)
        for name in names:
            self._get_request_state(name).stale_pages.clear()
        return take(self, names)

    return taken


def _moved(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Events of one pool that say they are of another."""

    def emitted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with patch.object(self, "medium", "STORAGE"):
            return emit(self, *arguments, **keywords)

    return emitted


def found(subject: VllmSchedulers) -> list[str]:
    """What the first history that shows anything new shows."""
    for number in range(_MANY):
        causes = play(host_workload(f"1:{number}"), subject).causes
        codes = [str(each.signature.code) for each in causes]
        if new := [code for code in codes if code != _KNOWN]:
            return new
    return []


def faults() -> dict[str, Any]:
    """What breaks a part of the target."""
    from vllm.v1.core import block_pool
    from vllm.v1.core import single_type_kv_cache_manager as managers
    from vllm.v1.hisparse import coordinator

    owner, pool = coordinator.HiSparseCoordinator, block_pool.BlockPool
    removes, stores = pool._emit_block_removed_events, pool._build_block_stored_event
    hot, nothing = managers.HiSparseHotManager, lambda *_: None
    early = _early(owner._publish_host_blocks_if_ready)
    unchanged = _without_changes(owner.take_residency_updates)
    return {
        "none": nullcontext(),
        "a page whose block is taken is still read": patch.object(owner, "_lose_page", nothing),
        "a copy whose block is taken is still found": patch.object(owner, "_drop_copy", nothing),
        "no hot blocks": patch.object(hot, "require_hot", nothing),
        "hot blocks are kept": patch.object(hot, "pop_blocks_for_free", lambda *_: []),
        "the engine ends before copies do": patch.object(
            owner, "has_pending_work", lambda _: False
        ),
        "keys before content": patch.object(owner, "_publish_host_blocks_if_ready", early),
        "what is loaded is not restored": patch.object(owner, "complete_host_import", nothing),
        "workers are told of no change": patch.object(owner, "take_residency_updates", unchanged),
        "no event of what is evicted": patch.object(pool, "_emit_block_removed_events", nothing),
        "evicted elsewhere": patch.object(pool, "_emit_block_removed_events", _moved(removes)),
        "stored elsewhere": patch.object(pool, "_build_block_stored_event", _moved(stores)),
        "the last pages are given up": patch.object(coordinator, "ACTIVE_TAIL_PAGES", 0),
    }


if __name__ == "__main__":
    subject, answers = VllmSchedulers(), {}
    for name, broken in faults().items():
        with broken:
            answers[name] = found(subject)
    print(f"\nfound {json.dumps(answers)}")

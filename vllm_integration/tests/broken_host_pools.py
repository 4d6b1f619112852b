"""What generated histories show of a target's host pool, part by part broken.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 80
_HISTORY = """{"kind": "scheduler", "version": 1,
 "deployment": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_gpu_blocks": 69,
  "max_model_len": 40, "max_num_batched_tokens": 8, "max_num_seqs": 1, "v2_model_runner": true,
  "policy": "priority",
  "host": {"num_blocks": 17, "writes_through": false, "delay": 3, "loads": true}},
 "requests": {
  "a": {"prompt": [[1, 13]], "output": [[14, 17]], "loads": 13},
  "b": {"prompt": [[18, 25]], "output": [[26, 31]], "loads": 8},
  "c": {"prompt": [[1, 6], [32, 63]], "output": [70, 71], "arrives": 5, "loads": 5},
  "d": {"prompt": [[72, 78]], "output": [[79, 85]]},
  "e": {"prompt": [[1, 5], [86, 102]], "output": [108], "arrives": 2, "after": "a", "aborted": 5,
   "loads": 22, "load_fails": true}}}"""
"""The last pages are given up here; few scenarios show that."""


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


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.core import block_pool
    from vllm.v1.core import single_type_kv_cache_manager as managers
    from vllm.v1.hisparse import coordinator

    owner, pool = coordinator.HiSparseCoordinator, block_pool.BlockPool
    removes, stores = pool._emit_block_removed_events, pool._build_block_stored_event
    hot, nothing = managers.HiSparseHotManager, lambda *_: None
    early = _early(owner._publish_host_blocks_if_ready)
    unchanged = _without_changes(owner.take_residency_updates)
    made = {
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
    return {name: ("", fault) for name, fault in made.items()}


if __name__ == "__main__":
    subject = VllmSchedulers()
    made = chain(drawn(_MANY, "host pool"), [read_workload(_HISTORY)])
    write(answers(subject, silent(subject, made), faults()))

"""What generated histories show of a target that zeroes blocks in a wrong way.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 24


def _held(take: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """Blocks that are hit are zeroed, too."""

    def taken(self: Any) -> list[int]:
        held = {block.block_id for block in self.block_pool.blocks if block.ref_cnt > 1}
        return sorted({*take(self), *held} - {0})

    return taken


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig

    def never(name: str) -> Any:
        return patch.object(KVCacheConfig, name, property(lambda _: False))

    taken = _held(KVCacheManager.take_new_block_ids)
    return {
        "precisions do not count": (
            "page-not-zeroed(of=precision",
            never("has_mixed_precision_kv_cache"),
        ),
        "states do not count": ("page-not-zeroed(of=state", never("has_mamba_layers")),
        "nobody is told": (
            "page-not-zeroed",
            patch.object(Scheduler, "_get_new_block_ids_to_zero", lambda _: None),
        ),
        "zeroes what is in use": (
            "other-content-read",
            patch.object(KVCacheManager, "take_new_block_ids", taken),
        ),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    write(answers(subject, silent(subject, drawn(_MANY, "precisions")), faults()))

"""What generated histories show of a target that rebuilds windows outside the prefix cache wrongly.

Run in a process of its own with the target on its path; writes what was found of each fault.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 12


def _left_out(self: Any, request: Any, num_hit_tokens: int, window_loaded: bool) -> int:
    """Nothing is computed again."""
    del self, request, num_hit_tokens, window_loaded
    return 0


def _short(told: int, computed: int) -> Callable[..., int]:
    """So many tokens too few are computed again, as the model runner is told, or is not."""

    def mark(self: Any, request: Any, num_hit_tokens: int, window_loaded: bool) -> int:
        del window_loaded
        window = min(self.prefix_replay_tokens, num_hit_tokens)
        request.replay_start = num_hit_tokens and num_hit_tokens - window + told
        return window - computed if num_hit_tokens else 0

    return mark


def _faults() -> dict[str, tuple[str, Any]]:
    """By name, how what is found begins, and what breaks the target."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    def mark(marked: Callable[..., int]) -> Any:
        return patch.object(Scheduler, "_mark_prefix_replay", marked)

    record = KVCacheManager.record_prefix_cache_stats

    def uncounted(self: Any, request: Any, num_hit_tokens: int) -> None:
        record(self, request, max(0, num_hit_tokens - 1))

    unsound = "other-content-read"
    return {
        "left out": (unsound, mark(_left_out)),
        "one token short": (unsound, mark(_short(1, 1))),
        "one token short, not told": (unsound, mark(_short(0, 1))),
        "counted less": (
            "statistics-wrong",
            patch.object(KVCacheManager, "record_prefix_cache_stats", uncounted),
        ),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    histories = silent(subject, drawn(_MANY, "outside the cache"))
    write(answers(subject, histories, _faults()))

"""What generated histories show of a target that keeps the encoder's outputs in a wrong way.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 250


def _keeping(*names: str) -> Callable[..., Any]:
    """A reset keeps some of what the manager has."""

    def broken(reset: Callable[..., Any]) -> Callable[..., Any]:
        def resets(self: Any) -> None:
            kept = {name: getattr(self, name) for name in names}
            copies = {n: v if isinstance(v, int) else v.copy() for n, v in kept.items()}
            reset(self)
            vars(self).update(copies)

        return resets

    return broken


def _leaking(free: Callable[..., Any]) -> Callable[..., Any]:
    """What is freed counts as less than it was."""

    def freed(self: Any, request: Any, place: int) -> None:
        before = self.num_freeable_slots
        free(self, request, place)
        self.num_freeable_slots -= self.num_freeable_slots > before

    return freed


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager as Manager
    from vllm.v1.core.sched.scheduler import Scheduler

    def broken(method: str, how: Callable[..., Any]) -> Any:
        return patch.object(Manager, method, how(getattr(Manager, method)))

    held = "images-held-when-idle"
    return {
        "keeps counts of references": (held, broken("reset", _keeping("request_hash_refs"))),
        "keeps room taken": (held, broken("reset", _keeping("num_free_slots"))),
        "keeps room held": (held, broken("reset", _keeping("num_freeable_slots"))),
        "keeps what may be evicted": ("", broken("reset", _keeping("freeable"))),
        "keeps outputs": (
            "encoder-output-missing(how=reset",
            patch.object(Scheduler, "reset_encoder_cache", lambda _: None),
        ),
        "frees too little": (held, broken("free_encoder_input", _leaking)),
        "frees nothing of who gives up": (held, patch.object(Manager, "free", lambda *_: None)),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    reset = (each for each in drawn(_MANY, "images") if each.encoder_resets)
    made = chain(reset, drawn(_MANY // 5, "images", "gives up"))
    write(answers(subject, silent(subject, made), faults()))

"""What generated histories show of a target that ends requests in a wrong way.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 100


def _late(check: Callable[..., bool]) -> Callable[..., bool]:
    """Stop tokens are seen one token late."""

    def checked(request: Any, max_model_len: int) -> bool:
        params, tokens = request.sampling_params, request.output_token_ids
        stopped = len(tokens) > 1 and tokens[-2] in params.stop_token_ids
        given, params.stop_token_ids = params.stop_token_ids, []
        ended = check(request, max_model_len)
        params.stop_token_ids = given
        if stopped and not ended:
            request.status = type(request.status).FINISHED_STOPPED
        return stopped or ended

    return checked


def _untrimmed(update: Callable[..., Any]) -> Callable[..., Any]:
    """Users get all that was sampled in the step."""

    def updated(self: Any, request: Any, tokens: Any, *more: Any, **named: Any) -> Any:
        sampled = list(tokens)
        _, stopped = update(self, request, tokens, *more, **named)
        return sampled, stopped

    return updated


def _uncomputed(update: Callable[..., Any]) -> Callable[..., Any]:
    """The stop token counts as computed."""

    def updated(self: Any, request: Any, tokens: Any, *more: Any, **named: Any) -> Any:
        kept, stopped = update(self, request, tokens, *more, **named)
        if stopped:
            self.kv_cache_manager.cache_blocks(request, request.num_tokens)
        return kept, stopped

    return updated


def _kept(free: Callable[..., Any]) -> Callable[..., Any]:
    """Who stops keeps its blocks."""

    def freed(self: Any, request: Any) -> None:
        if "STOPPED" not in str(request.status):
            free(self, request)

    return freed


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.core.sched import scheduler

    owner, update = scheduler.Scheduler, "_update_request_with_output"

    def broken(how: Callable[..., Any], method: str = update) -> tuple[str, Any]:
        return "", patch.object(owner, method, how(getattr(owner, method)))

    return {
        "stops late": ("", patch.object(scheduler, "check_stop", _late(scheduler.check_stop))),
        "delivers what comes after": broken(_untrimmed),
        "registers what is not computed": broken(_uncomputed),
        "keeps blocks": broken(_kept, "_free_request_blocks"),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    write(answers(subject, silent(subject, drawn(_MANY, "stops")), faults()))

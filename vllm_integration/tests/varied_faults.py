"""Faults that only some specs, pools or requests meet, put into an imported vLLM one by one.

python varied_faults.py ROOT     prints which of them the checks and histories see, as JSON
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.histories.plays import Origin, Play, plays
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.gate.obligations import Task, tasks
from hitproof.vllm_integration.worker.replay import played

Where = Callable[..., bool]


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing, or mask nothing."""


def no_key(*_: Any) -> list[Any]:
    """No extra key of a block's hash."""
    return []


def miss(_: Any, manager: Any, *__: Any) -> Any:
    """A lookup that finds nothing."""
    return manager.empty_kv_cache_blocks, 0, 0


@contextmanager
def _when(owner: Any, name: str, where: Where, otherwise: Callable[..., Any]) -> Iterator[None]:
    """``owner.name``, with another answer where a condition on its arguments holds."""
    own = vars(owner)[name]
    function = getattr(own, "__func__", own)

    def faulty(*arguments: Any, **keywords: Any) -> Any:
        if where(*arguments, **keywords):
            return otherwise(function, *arguments, **keywords)
        return function(*arguments, **keywords)

    wrapped = classmethod(faulty) if isinstance(own, classmethod) else faulty
    with patch.object(owner, name, wrapped):
        yield


def faults(subject: VllmSubject) -> dict[str, Any]:
    """The faults, by what meets them."""
    parts = subject._parts
    managers, utils = parts.managers, parts.utils
    base, full = managers.SingleTypeKVCacheManager, managers.FullAttentionManager
    window, mamba = managers.SlidingWindowManager, managers.MambaManager
    pool, whole = parts.pools.BlockPool, parts.whole.KVCacheManager
    find, mask = "find_longest_cache_hit", "reachable_block_mask"

    def undropped(function: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords | {"drop_eagle_block": False})

    def narrower(function: Any, *arguments: Any, **keywords: Any) -> Any:
        spec = keywords["kv_cache_spec"]
        less = replace(spec, sliding_window=max(1, spec.sliding_window - spec.block_size))
        return function(*arguments, **keywords | {"kv_cache_spec": less})

    def shorter(function: Any, *arguments: Any, **keywords: Any) -> Any:
        most = max(keywords["max_length"] - keywords["alignment_tokens"], 0)
        return function(*arguments, **keywords | {"max_length": most})

    def forget_a_group(function: Any, coordinator: Any) -> None:
        function(coordinator)
        coordinator.attention_groups.pop()

    def spec_is(name: str) -> Where:
        return lambda *_, kv_cache_spec, **__: type(kv_cache_spec).__name__ == name

    def spec_has(holds: Callable[[Any], bool]) -> Where:
        return lambda *_, kv_cache_spec, **__: holds(kv_cache_spec)

    def request_has(holds: Callable[[Any], bool]) -> Where:
        return lambda _, request, *__, **___: holds(request)

    bf16 = "torch.bfloat16"
    return {
        "MLA, lookup": (full, find, spec_is("MLAAttentionSpec"), undropped),
        "hidden states, lookup": (full, find, spec_is("HiddenStateCacheSpec"), shorter),
        "sinks, lookup": (full, find, spec_is("SinkFullAttentionSpec"), shorter),
        "reference windows, lookup": (full, find, spec_is("RSWASpec"), undropped),
        "window MLA, lookup": (window, find, spec_is("SlidingWindowMLASpec"), narrower),
        "window MLA, mask": (window, mask, spec_is("SlidingWindowMLASpec"), narrower),
        "large heads": (window, find, spec_has(lambda s: s.head_size > 128), narrower),
        "many heads": (window, mask, spec_has(lambda s: s.num_kv_heads > 4), nothing),
        "bfloat16": (full, find, spec_has(lambda s: str(s.dtype) == bf16), undropped),
        "quantized": (full, find, spec_has(lambda s: bool(s.kv_quant_mode)), shorter),
        "padded pages": (mamba, find, spec_has(lambda s: bool(s.page_size_padded)), shorter),
        "full in place of a window": (
            full,
            find,
            spec_has(lambda s: bool(s.sliding_window)),
            shorter,
        ),
        "Mamba type": (mamba, find, spec_has(lambda s: s.mamba_type.name == "LINEAR"), shorter),
        "drafting layers": (window, mask, spec_has(lambda s: s.is_draft), nothing),
        "priority": (base, "cache_blocks", request_has(lambda r: r.priority > 0), nothing),
        "client": (whole, "get_computed_blocks", request_has(lambda r: r.client_index), miss),
        "session": (whole, "get_computed_blocks", request_has(lambda r: r.session_id), miss),
        "async": (base, "cache_blocks", request_has(lambda r: r.num_output_placeholders), nothing),
        "temperature": (
            base,
            "cache_blocks",
            request_has(lambda r: r.sampling_params.temperature == 0),
            nothing,
        ),
        "second adapter": (
            utils,
            "_gen_lora_extra_hash_keys",
            lambda r: r.lora_request is not None and r.lora_request.lora_int_id > 1,
            no_key,
        ),
        "large pool": (
            pool,
            "cache_full_blocks",
            lambda p, *_, **__: p.num_gpu_blocks > 250,
            nothing,
        ),
        "smallest pool": (
            subject._producer.hybrid,
            "verify_and_split_kv_cache_groups",
            lambda c: c.block_pool.get_num_free_blocks() < 4,
            forget_a_group,
        ),
        "no events": (
            pool,
            "cache_full_blocks",
            lambda p, *_, **__: not p.enable_kv_cache_events,
            nothing,
        ),
        "metrics": (
            pool,
            "cache_full_blocks",
            lambda p, *_, **__: bool(p.metrics_collector),
            nothing,
        ),
        "no statistics": (whole, "get_computed_blocks", lambda m, *_, **__: not m.log_stats, miss),
    }


def seen(root: str) -> dict[str, str]:
    """What sees each fault: a configuration or a history, "" if none does."""
    sys.path.insert(0, root)
    subject = VllmSubject(frozenset())

    def shown(each: Task | Play) -> Any:
        if isinstance(each, Play):
            return [found.signature for found in played(subject, each).causes]
        result = CHECKS[each.claim](subject, each.configuration)
        return [e.signature for e in result.evidence], result.detail

    as_it_is = cache(shown)
    small = [t for t in tasks(Profile.QUICK, ()) if not t.configuration.model]
    some = [p for p in plays(Profile.DEFAULT, False) if p.origin is Origin.GENERATED]
    judged: list[Task | Play] = [*some[:30], *small, *some[30:150]]
    found = {}
    for name, fault in faults(subject).items():
        found[name] = ""
        for each in judged:
            before = as_it_is(each)
            with _when(*fault):
                after = shown(each)
            if before != after:
                found[name] = str(each)
                break
    return found


if __name__ == "__main__":
    print(json.dumps(seen(sys.argv[1]), indent=1))

"""Faults that only some specs, pools or requests meet, put into an imported vLLM one by one.

python varied_faults.py ROOT     prints which of them the checks and histories see, as JSON
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.histories.plays import Origin, Play, plays
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.gate.obligations import Task, tasks
from hitproof.vllm_integration.worker.replay import played

FULL, WINDOW = "managers FullAttentionManager", "managers SlidingWindowManager"
FULL_HIT, WINDOW_HIT = f"{FULL} find_longest_cache_hit", f"{WINDOW} find_longest_cache_hit"
STATE_HIT = "managers MambaManager find_longest_cache_hit"
MASK = f"{WINDOW} reachable_block_mask"
REGISTER = "managers SingleTypeKVCacheManager cache_blocks"
REGISTER_FULL = "pools BlockPool cache_full_blocks"
LOOKUP = "whole KVCacheManager get_computed_blocks"
KEEP_TO_LAST = "drop_eagle_block = False"
SHORTER = "max_length = max(max_length - alignment_tokens, 0)"
NARROWER = """kv_cache_spec = __import__("dataclasses").replace(
    kv_cache_spec,
    sliding_window=max(1, kv_cache_spec.sliding_window - kv_cache_spec.block_size),
)"""
NOTHING, MISS = "return None", "return self.empty_kv_cache_blocks, 0, 0"
CLASS = "type(kv_cache_spec).__name__ == "
FAULTS = {
    "MLA, lookup": (FULL_HIT, f"{CLASS}'MLAAttentionSpec'", KEEP_TO_LAST),
    "hidden states, lookup": (FULL_HIT, f"{CLASS}'HiddenStateCacheSpec'", SHORTER),
    "sinks, lookup": (FULL_HIT, f"{CLASS}'SinkFullAttentionSpec'", SHORTER),
    "reference windows, lookup": (FULL_HIT, f"{CLASS}'RSWASpec'", KEEP_TO_LAST),
    "window MLA, lookup": (WINDOW_HIT, f"{CLASS}'SlidingWindowMLASpec'", NARROWER),
    "window MLA, mask": (MASK, f"{CLASS}'SlidingWindowMLASpec'", NARROWER),
    "large heads": (WINDOW_HIT, "kv_cache_spec.head_size > 128", NARROWER),
    "many heads": (MASK, "kv_cache_spec.num_kv_heads > 4", NOTHING),
    "bfloat16": (FULL_HIT, "str(kv_cache_spec.dtype) == 'torch.bfloat16'", KEEP_TO_LAST),
    "quantized": (FULL_HIT, "kv_cache_spec.kv_quant_mode", SHORTER),
    "padded pages": (STATE_HIT, "kv_cache_spec.page_size_padded", SHORTER),
    "full in place of a window": (FULL_HIT, "kv_cache_spec.sliding_window", SHORTER),
    "Mamba type": (STATE_HIT, "kv_cache_spec.mamba_type.name == 'LINEAR'", SHORTER),
    "drafting layers": (MASK, "kv_cache_spec.is_draft", NOTHING),
    "priority": (REGISTER, "request.priority > 0", NOTHING),
    "client": (LOOKUP, "request.client_index", MISS),
    "session": (LOOKUP, "request.session_id", MISS),
    "async": (REGISTER, "request.num_output_placeholders", NOTHING),
    "temperature": (REGISTER, "request.sampling_params.temperature == 0", NOTHING),
    "second adapter": (
        "utils _gen_lora_extra_hash_keys",
        "request.lora_request is not None and request.lora_request.lora_int_id > 1",
        "return []",
    ),
    "large pool": (REGISTER_FULL, "self.num_gpu_blocks > 250", NOTHING),
    "smallest pool": (
        "hybrid verify_and_split_kv_cache_groups",
        "self.block_pool.get_num_free_blocks() < 4",
        "self.attention_groups.pop()",
    ),
    "no events": (REGISTER_FULL, "not self.enable_kv_cache_events", NOTHING),
    "metrics": (REGISTER_FULL, "self.metrics_collector", NOTHING),
    "no statistics": (LOOKUP, "not self.log_stats", MISS),
}
"""A function, when it is wrong, and what it does then: first of all, or with groups at last."""


@contextmanager
def _wrong(subject: VllmSubject, place: str, when: str, then: str) -> Iterator[None]:
    where: Any = {**vars(subject._parts), "hybrid": subject._producer.hybrid}
    module, *names = place.split()
    function = where[module]
    for name in names:
        function = getattr(function, name)
    function = getattr(function, "__func__", function)
    code = function.__code__
    function.__code__ = _code(function, when, then)
    try:
        yield
    finally:
        function.__code__ = code


@cache
def _code(function: Any, when: str, then: str) -> Any:
    """The code of a function in which ``then`` is done where ``when`` holds."""
    module = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (definition,) = module.body
    assert isinstance(definition, ast.FunctionDef)
    fault = ast.parse(f"if {when}:\n{textwrap.indent(then, ' ')}").body
    at = len(definition.body) if ".pop()" in then else 0
    definition.body[at:at] = fault
    definition.decorator_list = []
    ast.increment_lineno(ast.fix_missing_locations(module), function.__code__.co_firstlineno - 1)
    compiled = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    return next(each for each in compiled.co_consts if inspect.iscode(each))


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
    for name, fault in FAULTS.items():
        found[name] = ""
        for each in judged:
            before = as_it_is(each)
            with _wrong(subject, *fault):
                after = shown(each)
            if before != after:
                found[name] = str(each)
                break
    return found


if __name__ == "__main__":
    print(json.dumps(seen(sys.argv[1]), indent=1))

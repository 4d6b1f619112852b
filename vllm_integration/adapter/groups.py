"""The target's own group specs and ``KVCacheConfig`` for groups of the spec."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, call, must, parameters_of
from hitproof.vllm_integration.adapter.variants import Chosen, base_values, torch_type

NAMES = {
    GroupKind.FULL_ATTENTION: ("FullAttentionManager", "FullAttentionSpec"),
    GroupKind.SLIDING_WINDOW: ("SlidingWindowManager", "SlidingWindowSpec"),
    GroupKind.CHUNKED_LOCAL: ("ChunkedLocalAttentionManager", "ChunkedLocalAttentionSpec"),
    GroupKind.MAMBA: ("MambaManager", "MambaSpec"),
}
"""The manager and the ``KVCacheSpec`` of each kind."""

KINDS = {manager: kind for kind, (manager, _) in NAMES.items()}
"""The kind of each manager."""

OPTING_OUT = "CircularBufferSpec"
"""The spec of a group that opts out of prefix caching, unless it is a window that can."""

_REPLAYED, _REPLAY = "SlidingWindowMLASpec", "bounded_replay"
"""The spec of a window that can opt out, and the field by which it does."""

Configured: TypeAlias = Callable[[Sequence[Group], int, int | None], AbstractContextManager[Any]]
"""`kv_cache_config` for a target: of groups, number of blocks and retention interval."""

_INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


def kv_cache_spec(
    interface: ModuleType,
    group: Group,
    num_speculative_blocks: int = 0,
    checkpoint_alignment: int | None = None,
    chosen: Chosen | None = None,
    enable_prefix_caching: bool = True,
    quantized: bool = False,
) -> Any:
    """The ``KVCacheSpec`` of a group; ``interface`` is the target's ``kv_cache_interface``.

    It is the plainest one unless a variant has ``chosen`` another, or keys and values are
    ``quantized``, to 8 bits.
    """
    name = NAMES[group.kind][1] if group.prefix_cacheable else OPTING_OUT
    values = base_values(group) | {
        "num_speculative_blocks": num_speculative_blocks,
        "is_draft": group.eagle,
    }
    if quantized:
        # How caches are made that a checkpoint or --kv-cache-dtype quantizes to fp8.
        values["dtype"] = torch_type("uint8")
        modes = getattr(interface, "KVQuantMode", None)
        if modes is not None:
            values["kv_quant_mode"] = modes.FP8_PER_TENSOR
    if not enable_prefix_caching:
        values["mamba_cache_mode"] = "none"
    if name == OPTING_OUT and group.kind is GroupKind.SLIDING_WINDOW and windows_opt_out(interface):
        name, values = _REPLAYED, values | {_REPLAY: True}
    spec_class = attribute(interface, name)
    if checkpoint_alignment is not None and group.kind is GroupKind.MAMBA:
        able = "prefill_checkpoint_alignment" in parameters_of(spec_class)
        what = "does not export Mamba states from inside a chunk"
        must(able, what, "mamba_checkpoint_alignment")
        values["num_prefill_checkpoint_blocks"] = 1
        values["prefill_checkpoint_alignment"] = checkpoint_alignment
    if chosen is not None and group.prefix_cacheable:
        spec_class, values = chosen.spec_class, values | chosen.values
    if group.kind is GroupKind.SLIDING_WINDOW and group.prefill_lookahead > 1:
        # As the planner has it: what is computed again has its window still.
        values["extra_retained_tokens"] = group.prefill_lookahead - 1
    return call(spec_class, values, spec_class.__name__)


def windows_opt_out(interface: ModuleType) -> bool:
    """Whether a window can opt out of prefix caching."""
    spec_class = getattr(interface, _REPLAYED, None)
    return spec_class is not None and _REPLAY in parameters_of(spec_class)


@contextmanager
def kv_cache_config(
    interface: ModuleType,
    groups: Sequence[tuple[Group, Any]],
    num_blocks: int,
    interval: int | None,
) -> Iterator[Any]:
    """A ``KVCacheConfig`` of groups with their specs, under a retention interval.

    Make the manager inside the context: before it became part of ``KVCacheConfig``, the interval
    was an environment variable.
    """
    group_class = attribute(interface, "KVCacheGroupSpec")
    laid_out = [
        call(
            group_class,
            {
                "layer_names": [f"layer {number}"],
                "kv_cache_spec": spec,
                "is_eagle_group": group.eagle,
            },
            "KVCacheGroupSpec",
        )
        for number, (group, spec) in enumerate(groups)
    ]
    config_class = attribute(interface, "KVCacheConfig")
    by_config = "prefix_cache_retention_interval" in parameters_of(config_class)
    config = call(
        config_class,
        {
            "num_blocks": num_blocks,
            "kv_cache_tensors": [],
            "kv_cache_groups": laid_out,
            "prefix_cache_retention_interval": interval,
        },
        "KVCacheConfig",
    )
    if by_config or interval is None:
        yield config
        return
    os.environ[_INTERVAL] = str(interval)
    try:
        yield config
    finally:
        del os.environ[_INTERVAL]

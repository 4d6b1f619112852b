"""The target's own group specs and ``KVCacheConfig`` for groups of the spec."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, call

NAMES = {
    GroupKind.FULL_ATTENTION: ("FullAttentionManager", "FullAttentionSpec"),
    GroupKind.SLIDING_WINDOW: ("SlidingWindowManager", "SlidingWindowSpec"),
    GroupKind.CHUNKED_LOCAL: ("ChunkedLocalAttentionManager", "ChunkedLocalAttentionSpec"),
    GroupKind.MAMBA: ("MambaManager", "MambaSpec"),
}
"""The manager and the ``KVCacheSpec`` of each kind."""

KINDS = {manager: kind for kind, (manager, _) in NAMES.items()}
"""The kind of each manager."""

_OPTING_OUT = "CircularBufferSpec"
"""The spec of a group that opts out of prefix caching, whatever its kind."""

Configured: TypeAlias = Callable[[Sequence[Group], int, int | None], AbstractContextManager[Any]]
"""`kv_cache_config` for a target: of groups, number of blocks and retention interval."""

_INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


def kv_cache_spec(
    interface: ModuleType,
    group: Group,
    num_speculative_blocks: int = 0,
    checkpoint_alignment: int | None = None,
) -> Any:
    """The ``KVCacheSpec`` of a group; ``interface`` is the target's ``kv_cache_interface``."""
    import torch

    name = NAMES[group.kind][1] if group.prefix_cacheable else _OPTING_OUT
    values = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
        "sliding_window": group.window,
        "attention_chunk_size": group.chunk,
        "shapes": ((1,),),
        "dtypes": (torch.float32,),
        "mamba_cache_mode": "align",
        "num_speculative_blocks": num_speculative_blocks,
    }
    if checkpoint_alignment is not None and group.kind is GroupKind.MAMBA:
        spec = attribute(interface, name)
        if "prefill_checkpoint_alignment" not in inspect.signature(spec).parameters:
            raise CannotJudge(
                "this release does not export Mamba states from inside a chunk; leave "
                "mamba_checkpoint_alignment out, or name a later release"
            )
        values["num_prefill_checkpoint_blocks"] = 1
        values["prefill_checkpoint_alignment"] = checkpoint_alignment
    if group.kind is GroupKind.FULL_ATTENTION:
        del values["sliding_window"], values["attention_chunk_size"]
    return call(attribute(interface, name), values, name)


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
    by_config = "prefix_cache_retention_interval" in inspect.signature(config_class).parameters
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

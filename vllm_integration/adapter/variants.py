"""Variants: what the target's objects look like where the answer must not depend on it.

A group can be of several ``KVCacheSpec`` classes, with heads, types and pages of many sizes; pools
are of many sizes, and requests have a priority, a client and more. The expected answer is the same
for all. So each configuration and history has the number of a variant, which chooses one value of
each; number 0 chooses the plainest. The numbers of a profile cover all classes, and all pairs of
values.

Imported in the worker process only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any
from zlib import crc32

from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, call, parameters_of

_AS_IT_IS: Any = ...
"""Leaves a field at the target's default."""


def choice(what: str, number: int, values: tuple[Any, ...]) -> Any:
    """The value of ``what`` in a variant; of number 0 the first.

    Each number is as good as a throw of dice, so that the value of one field says nothing about
    that of another, and a new field moves none.
    """
    return values[_place(what, number, len(values))]


@lru_cache(1 << 16)
def _place(what: str, number: int, places: int) -> int:
    return crc32(f"{what} {number}".encode()) % places if number else 0


SPEC_VALUES: dict[str, tuple[Any, ...]] = {
    "alignment": (_AS_IT_IS, 576),
    "block_stride_alignment": (_AS_IT_IS, 16),
    "cache_dtype_str": (_AS_IT_IS, "fp8_ds_mla", "auto"),
    "cache_role": (_AS_IT_IS, "indexer"),
    "compress_ratio": (_AS_IT_IS, 4),
    "dcp_sharded": (_AS_IT_IS, False),
    "dtype": ("float32", "bfloat16", "uint8"),
    "head_size": (1, 128, 576),
    "head_size_v": (_AS_IT_IS, 64),
    "indexes_kv_by_block_stride": (_AS_IT_IS, True),
    "is_draft": (_AS_IT_IS, True),
    "is_index_group_leader": (_AS_IT_IS, True),
    "kv_quant_mode": (_AS_IT_IS, 1, 2),
    "max_tp_shards": (_AS_IT_IS, 8),
    "model_version": (_AS_IT_IS, "deepseek_v4"),
    "non_causal": (_AS_IT_IS, True),
    "non_causal_multi_token_decode": (_AS_IT_IS, True),
    "num_head_slots": (_AS_IT_IS, 4),
    "num_kv_heads": (1, 8, 2),
    "page_size_padded": (_AS_IT_IS, 1 << 24),
    "state_content_bytes": (_AS_IT_IS, 640),
    "storage_block_size": (_AS_IT_IS, 64),
    "tokens_per_state": (_AS_IT_IS, 4),
    "topk_buffer_width": (_AS_IT_IS, 2048),
    "tp_replicated": (_AS_IT_IS, True),
    "tq_slot_size": (_AS_IT_IS, 96),
}
"""The fields of ``KVCacheSpec`` classes that only the layout of the pages depends on."""

_OF_KIND: dict[GroupKind, dict[str, tuple[Any, ...]]] = {
    # Full attention in place of a window or of chunks: only the model runner masks them.
    GroupKind.FULL_ATTENTION: {
        "sliding_window": (_AS_IT_IS, 3),
        "attention_chunk_size": (_AS_IT_IS, 4),
    },
    GroupKind.MAMBA: {
        "mamba_type": (_AS_IT_IS, 0, 1, 2, 3),
        "num_heads": (_AS_IT_IS, 4),
        "tokens_per_state": (_AS_IT_IS,),
        "shapes": (((1,),), ((4, 8), (16, 2))),
    },
}
"""The same, of the specs of one kind."""

_ALONE: dict[GroupKind, dict[str, tuple[Any, ...]]] = {
    GroupKind.SLIDING_WINDOW: {"extra_retained_tokens": (_AS_IT_IS, 5)},
    GroupKind.MAMBA: {"num_speculative_blocks": (_AS_IT_IS, 3)},
}
"""Fields that change how long a request holds its blocks, but neither hits nor registration."""

REQUEST_VALUES: dict[str, tuple[Any, ...]] = {
    "arrival_time": (0.0, 1.7e9),
    "client_index": (0, 3),
    "eos_token_id": (None, 2),
    "priority": (0, 5, -1),
    "reasoning_ended": (_AS_IT_IS, True),
    "resumable": (_AS_IT_IS, True),
    "session_id": (_AS_IT_IS, "session"),
    "trace_headers": (_AS_IT_IS, {"traceparent": "00-1-1-01"}),
}
"""Arguments of ``Request`` that only the scheduler and the engine need."""

REQUEST_STATE: dict[str, tuple[Any, ...]] = {
    "is_prefill_chunk": (_AS_IT_IS, True),
    "kv_transfer_params": (_AS_IT_IS, {"do_remote_prefill": False}),
    "last_sched_seq": (_AS_IT_IS, 9),
    "next_decode_eligible_step": (_AS_IT_IS, 9),
    "num_nans_in_logits": (_AS_IT_IS, 1),
    "num_output_placeholders": (_AS_IT_IS, 1),
    "num_stale_output_tokens": (_AS_IT_IS, 1),
    "spec_token_ids": (_AS_IT_IS, [3, 4]),
    "stop_reason": (_AS_IT_IS, "stop"),
}
"""What the scheduler keeps with a request for itself, with asynchronous scheduling too."""

ALONE_STATE: dict[str, tuple[Any, ...]] = {"num_preemptions": (_AS_IT_IS, 1)}
"""What requests outside histories may have been through; histories set it themselves."""

SAMPLING_VALUES: dict[str, tuple[Any, ...]] = {
    "ignore_eos": (_AS_IT_IS, True),
    "logprobs": (_AS_IT_IS, 2),
    "min_tokens": (_AS_IT_IS, 1),
    "seed": (_AS_IT_IS, 7),
    "stop": (_AS_IT_IS, ["."]),
    "temperature": (_AS_IT_IS, 0.0),
}
"""Arguments of ``SamplingParams``."""

_PURPOSES = ("sampling", "sampling", "sampling", "pooling")
"""What requests without output may be for."""

MANAGER_VALUES: dict[str, tuple[Any, ...]] = {
    "enable_kv_cache_events": (True, False),
    "log_stats": (True, False),
    "metrics_collector": (None, 0.5),
}
"""Arguments of ``KVCacheManager``, its coordinator and its pool that only watch."""

_DERIVED = (
    "has_layer_views",
    "num_states",
    "page_size_bytes",
    "real_page_size_bytes",
    "state_content_size_bytes",
    "unpadded_page_size_bytes",
)
"""Properties of specs that follow from `SPEC_VALUES`."""

_MAMBA_TYPES = ("mamba1", "mamba2", "short_conv", "linear_attention", "gdn_attention")
_NEVER = 1 << 30


@dataclass(frozen=True)
class Chosen:
    """A ``KVCacheSpec`` class for a group, and the values of its fields that a variant chooses."""

    spec_class: Any
    manager_class: Any
    values: dict[str, Any]


class SpecClasses:
    """The ``KVCacheSpec`` classes of the target, by the kind of group that they are for.

    ``interface`` and ``managers`` are the target's modules ``kv_cache_interface`` and
    ``single_type_kv_cache_manager``, ``names`` the manager and the plain spec of each kind.
    """

    def __init__(
        self, interface: ModuleType, managers: ModuleType, names: dict[GroupKind, tuple[str, str]]
    ) -> None:
        self._interface = interface
        self._managers = managers
        self._names = names
        self._chosen: dict[tuple[Any, Group, int, bool], dict[str, Any]] = {}

    def chosen(self, group: Group, number: int, alone: bool) -> Chosen:
        """The class and its values for a group.

        ``alone`` is whether the group is checked without a coordinator.
        """
        kind = group.kind
        plain = attribute(self._interface, self._names[kind][1])
        manager = attribute(self._managers, self._names[kind][0])
        if not number:
            return Chosen(plain, manager, {})
        classes = [*self._classes[kind]]
        if not alone:
            classes = [each for each in classes if each.__name__ not in self._only_alone]
        spec_class = classes[number % len(classes)] if classes else plain
        managed = self._classes[kind].get(spec_class, manager)
        key = spec_class, group, number, alone
        if key not in self._chosen:
            self._chosen[key] = dict(self._values(*key))
        return Chosen(spec_class, managed, self._chosen[key].copy())

    @cached_property
    def _classes(self) -> dict[GroupKind, dict[Any, Any]]:
        """The classes of each kind with their managers, the plain one first."""
        found: dict[GroupKind, dict[Any, Any]] = {}
        for kind, (manager_name, plain_name) in self._names.items():
            base = attribute(self._managers, manager_name)
            plain = attribute(self._interface, plain_name)
            of_kind = found[kind] = {plain: base}
            group = _example(kind)
            for spec_class in _subclasses(plain):
                try:
                    values = dict(self._values(spec_class, group, 0, alone=True))
                    spec = plain_spec(spec_class, group, values)
                    manager = self._manager_of(spec)
                except Exception:  # it is reported as a class that no check covers
                    continue
                cacheable = getattr(spec, "prefix_cacheable", True)
                if cacheable and isinstance(manager, type) and issubclass(manager, base):
                    of_kind[spec_class] = manager
        return found

    @property
    def covered(self) -> dict[str, GroupKind]:
        """The names of the classes that variants choose, and their kinds."""
        return {each.__name__: kind for kind, of in self._classes.items() for each in of}

    @cached_property
    def _only_alone(self) -> frozenset[str]:
        """The classes whose managers a coordinator cannot set up, or that keep blocks back."""
        return frozenset(
            spec_class.__name__
            for of_kind in self._classes.values()
            for spec_class, manager in of_kind.items()
            if "sink_len" in {each.name for each in fields(spec_class)}
        )

    def _manager_of(self, spec: Any) -> Any:
        """The manager of a spec; None where it has none."""
        table = getattr(self._managers, "spec_manager_map", None)
        if table is not None:
            return table.get(type(spec))
        from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

        return KVCacheSpecRegistry.get_manager_class(spec)

    def _values(
        self, spec_class: Any, group: Group, number: int, alone: bool
    ) -> Iterator[tuple[str, Any]]:
        parameters = parameters_of(spec_class)
        if "sink_len" in parameters:
            yield "sink_len", group.block_size
        if "rswa_window" in parameters:
            yield "rswa_window", _NEVER
        if not number:
            return
        kind = group.kind
        tables = SPEC_VALUES | _OF_KIND.get(kind, {}) | (_ALONE.get(kind, {}) if alone else {})
        chosen = {
            name: value
            for name, values in tables.items()
            if name in parameters
            and (value := choice(f"{kind} {name}", number, values)) is not _AS_IT_IS
        }
        if "sliding_window" in chosen and kind is GroupKind.FULL_ATTENTION:
            chosen.pop("attention_chunk_size", None)  # a model has one of them
        for name, value in chosen.items():
            yield name, _of_target(parameters[name].default, name, value)
        if "shapes" in chosen:
            yield "dtypes", tuple(torch_type("float32") for _ in chosen["shapes"])


def varied(tables: dict[str, tuple[Any, ...]], what: str, number: int) -> dict[str, Any]:
    """The values of a variant, without those that are left at the target's defaults."""
    found = {name: choice(f"{what} {name}", number, values) for name, values in tables.items()}
    return {name: value for name, value in found.items() if value is not _AS_IT_IS}


def purpose(
    number: int, num_output_tokens: int, *, skip_reading_prefix_cache: bool
) -> dict[str, Any]:
    """What a request is for, as arguments of ``Request``: some variants without output pool."""
    from vllm.pooling_params import PoolingParams
    from vllm.sampling_params import SamplingParams

    skips = {"skip_reading_prefix_cache": skip_reading_prefix_cache}
    if not num_output_tokens and choice("request purpose", number, _PURPOSES) == "pooling":
        return {"sampling_params": None, "pooling_params": PoolingParams(task="embed", **skips)}
    values = varied(SAMPLING_VALUES, "sampling", number)
    sampling = SamplingParams(max_tokens=max(1, num_output_tokens), **skips, **values)
    return {"sampling_params": sampling, "pooling_params": None}


def varied_names() -> set[str]:
    """All that variants differ in, as ``class.attribute``; see `vllm_integration.adapter.reads`."""
    of_specs = [SPEC_VALUES, *_OF_KIND.values(), *_ALONE.values()]
    names = {f"KVCacheSpec.{name}" for table in of_specs for name in table}
    names |= {f"KVCacheSpec.{name}" for name in _DERIVED}
    of_requests = (REQUEST_VALUES, REQUEST_STATE, ALONE_STATE)
    names |= {f"Request.{name}" for table in of_requests for name in table}
    names |= {f"SamplingParams.{name}" for name in SAMPLING_VALUES}
    names |= {"Request.sampling_params", "Request.pooling_params"}
    owners = ("KVCacheManager", "KVCacheCoordinator", "BlockPool")
    return names | {f"{owner}.{name}" for owner in owners for name in MANAGER_VALUES}


def watching(number: int) -> dict[str, Any]:
    """`MANAGER_VALUES` of a variant."""
    found = varied(MANAGER_VALUES, "manager", number)
    if found["metrics_collector"] is not None:
        from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector

        found["metrics_collector"] = KVCacheMetricsCollector(found["metrics_collector"])
    return found


def plain_spec(spec_class: Any, group: Group, values: dict[str, Any]) -> Any:
    """A ``KVCacheSpec`` of the class for a group, with those values of its other fields."""
    return call(spec_class, base_values(group) | values, spec_class.__name__)


def base_values(group: Group) -> dict[str, Any]:
    """The fields that describe a group, and small values of those that every spec needs."""
    values = {
        "block_size": group.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch_type("float32"),
        "sliding_window": group.window,
        "attention_chunk_size": group.chunk,
        "shapes": ((1,),),
        "dtypes": (torch_type("float32"),),
        "mamba_cache_mode": "align",
    }
    if group.kind is GroupKind.FULL_ATTENTION:
        del values["sliding_window"], values["attention_chunk_size"]
    return values


def torch_type(name: str) -> Any:
    """The ``torch.dtype`` of that name."""
    import torch

    return getattr(torch, name)


def _of_target(default: Any, name: str, value: Any) -> Any:
    """A value in the target's own type."""
    if name == "dtype":
        return torch_type(value)
    if name == "mamba_type":
        return list(type(default))[value] if isinstance(default, Enum) else _MAMBA_TYPES[value]
    return type(default)(value) if isinstance(default, Enum) else value


def _subclasses(spec_class: Any) -> Iterator[Any]:
    """All subclasses, in an order that does not depend on the order of imports."""
    found = set(spec_class.__subclasses__())
    for each in sorted(found, key=lambda each: (each.__module__, each.__qualname__)):
        yield each
        yield from _subclasses(each)


def _example(kind: GroupKind) -> Group:
    window = 3 if kind is GroupKind.SLIDING_WINDOW else None
    return Group(kind, 2, window, chunk=4 if kind is GroupKind.CHUNKED_LOCAL else None)

"""The layers of a deployment, and what the target's start-up derives from them.

Each layer gets the target's own spec of its sort; engine core, planner and pool are the target's.
Imported in the worker process only.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from hitproof.conformance.explain.derivation import Derived, Layer, Place, Rank
from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.conformance.histories.workloads import Deployment, Layers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.engine import group_of
from hitproof.vllm_integration.adapter.groups import kv_cache_spec
from hitproof.vllm_integration.adapter.inspection import attribute, call, parameters_of

_KEEPS = {"latents": "MLAAttentionSpec", "hidden states": "HiddenStateCacheSpec"}
_WINDOW_OF_LATENTS = "SlidingWindowMLASpec"
_DRAFT = "is_draft"
ALIGNMENT = "block_stride_alignment"
"""The parameter of specs that says how far apart blocks are. vLLM: ``KVCacheSpec``."""
_SPARE = 3
"""Bytes of memory that make no block."""
_LAYOUTS = {"layers": "LBNHC", "blocks": "BLHNC"}


class Workers:
    """What the workers of pipeline ranks answer at start-up.

    Attributes:
        specs: the specs of the layers of each rank.
        memory: bytes that each has for the pool.
        layout: how pages lie in memory.
        configs: the ``KVCacheConfig`` of each, once start-up is done.
    """

    # Tests of findings have its source, too, so that it uses nothing of ours.

    def __init__(self, specs: list[Any], memory: list[int], layout: str) -> None:
        self.specs, self.memory, self.layout = specs, memory, layout
        self.configs: Any = ()

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """Those of each rank."""
        return [dict(each) for each in self.specs]

    def determine_available_memory(self) -> list[int]:
        """That of each rank."""
        return list(self.memory)

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        """One layout, the same on each rank."""
        return [[self.layout] for _ in self.specs]

    def set_kv_cache_layout(self, layout: str, *_: Any) -> None:
        """Note what start-up has chosen."""
        self.layout = layout

    def initialize_from_config(self, configs: Any) -> None:
        """Note what the ranks are given."""
        self.configs = configs

    def allocate(self, config: Any) -> None:
        """Allocate what a rank is given as its model runner does, but on no device."""
        from vllm.v1.worker import utils

        # Up to 0.28 this is a method of the model runner, which needs a device.
        if hasattr(utils, "allocate_kv_cache"):
            import torch
            from vllm.v1.kv_cache_layout import KVCacheLayout

            layout = KVCacheLayout[self.layout]
            utils.allocate_kv_cache(config, torch.device("meta"), layout)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class OneWorker(Workers):
    """One rank with a layer of each group of a configuration, and memory for blocks."""

    def __init__(self, config: Any, offloaded: int | None) -> None:
        specs = {
            name: group.kv_cache_spec
            for group in config.kv_cache_groups
            for name in group.layer_names
        }
        page = max(spec.page_size_bytes for spec in specs.values())
        super().__init__([specs], [config.num_blocks * page], "LBNHC")
        self._offloaded = offloaded

    def initialize_from_config(self, configs: Any) -> None:
        """Allocate them."""
        for each in configs:
            self.allocate(each)

    def get_simple_cpu_offload_num_blocks(self) -> int | None:
        """Blocks of host memory."""
        return self._offloaded


class LayeredExecutor(Workers):
    """The workers of a deployment's layers.

    Attributes:
        layers: the layers by name.
    """

    def __init__(self, interface: ModuleType, deployment: Deployment) -> None:
        specs: list[dict[str, Any]] = [{} for _ in range(deployment.ranks)]
        self.layers: dict[str, Layer] = {}
        for sort, (group, layers) in enumerate(
            zip(deployment.groups, deployment.layers, strict=True)
        ):
            spec = _spec(interface, deployment, group, layers)
            for number in range(layers.count):
                name = f"sort {sort} layer {number}"
                specs[number * deployment.ranks // layers.count][name] = spec
                self.layers[name] = Layer(
                    replace(group_of(interface, spec, False), prefill_lookahead=1),
                    spec.page_size_bytes,
                    getattr(spec, _DRAFT, None),
                    any_block=layers.keeps == "hidden states",
                    padding=layers.padding,
                    alignment=layers.alignment,
                    whole_rows=layers.keeps == "latents",
                )
        pages = [sum(each.page_size_bytes for each in of_rank.values()) for of_rank in specs]
        memory = [
            blocks * of_rank + _SPARE
            for blocks, of_rank in zip(deployment.blocks_of_ranks, pages, strict=True)
        ]
        override = deployment.num_gpu_blocks_override
        # What an override leaves unused is not wasted.
        self._to_be_used = memory if override is None else [override * each for each in pages]
        super().__init__(specs, memory, _LAYOUTS[deployment.layout])

    def derived(self, setup: CacheSetup, unit: int | None) -> Derived:
        """What start-up made of the layers."""
        of_rank = [dict(_placed(config)) for config in self.configs]
        ranks = tuple(
            Rank(
                config.num_blocks,
                _pool_bytes(config),
                memory,
                places,
                frozenset(specs),
                self._ended(config, places.keys() - specs.keys()),
            )
            for config, memory, places, specs in zip(
                self.configs, self._to_be_used, of_rank, self.specs, strict=True
            )
        )
        groups = self.configs[0].kv_cache_groups
        members = tuple(
            tuple(name for config in self.configs for name in config.kv_cache_groups[i].layer_names)
            for i in range(len(groups))
        )
        # A rank may have no layer of a group; its spec there is of those on other ranks.
        having = [
            next(
                (c.kv_cache_groups[i] for c in self.configs if c.kv_cache_groups[i].layer_names),
                each,
            )
            for i, each in enumerate(groups)
        ]
        pages = tuple(
            max(
                (_page_of(group, name) for name in group.layer_names),
                default=group.kv_cache_spec.page_size_bytes,
            )
            for group in having
        )
        pool = ranks[0].pool_bytes if len(ranks) == 1 else 1 << 62
        return Derived(setup, self.layers, members, pages, pool, None, ranks, unit)

    def _ended(self, config: Any, foreign: Collection[str]) -> str:
        """What ends a rank that is given pages of foreign layers; empty where it allocates them.

        Raises what ends another rank.
        """
        try:
            self.allocate(config)
        except Exception as error:
            if foreign:
                return type(error).__name__
            raise
        return ""


def _spec(interface: ModuleType, deployment: Deployment, group: Group, layers: Layers) -> Any:
    """The target's spec of a layer; its page is ``size`` times that of the smallest."""
    spec = _unpadded(interface, deployment, group, layers.size, layers.keeps)
    changes = {}
    if layers.padding:
        changes["page_size_padded"] = spec.page_size_bytes + layers.padding
    if layers.alignment > 1:
        changes[ALIGNMENT] = layers.alignment
    if changes.keys() - parameters_of(type(spec)).keys():
        raise CannotJudge("this release pads no pages so; leave padding and alignment out")
    return replace(spec, **changes)


def _unpadded(
    interface: ModuleType, deployment: Deployment, group: Group, size: int, keeps: str
) -> Any:
    spec = kv_cache_spec(
        interface, group, deployment.num_speculative_tokens, deployment.mamba_checkpoint_alignment
    )
    changes: dict[str, Any] = {"num_kv_heads": size}
    if group.kind is GroupKind.MAMBA:
        changes = {"shapes": ((2 * size * group.block_size,),)}
    if keeps == "keys and values":
        return replace(spec, **changes)
    windowed = keeps == "latents" and group.kind is GroupKind.SLIDING_WINDOW
    name = _WINDOW_OF_LATENTS if windowed else _KEEPS[keeps]
    if not hasattr(interface, name):
        raise CannotJudge(f"this release has no layers that keep {keeps}; name a later release")
    made = attribute(interface, name)
    known = {each: getattr(spec, each) for each in ("block_size", "dtype")}
    heads = 2 if keeps == "hidden states" else 1
    values = known | {"num_kv_heads": heads, "head_size": 2 * size // heads}
    values["sliding_window"] = group.window
    return call(made, {k: v for k, v in values.items() if k in parameters_of(made)}, name)


def _page_of(group: Any, name: str) -> int:
    specs: Mapping[str, Any] = getattr(group.kv_cache_spec, "kv_cache_specs", {})
    return int(specs.get(name, group.kv_cache_spec).page_size_bytes)


def _placed(config: Any) -> Any:
    """Where each layer's pages are, where tensors say it."""
    for tensor in config.kv_cache_tensors:
        if not hasattr(tensor, "layer_stride"):
            return
        for number, name in enumerate(tensor.layers):
            # A tensor may be of layers that no group of this rank has.
            group = next((g for g in config.kv_cache_groups if name in g.layer_names), None)
            offset = tensor.offset + number * tensor.layer_stride
            page = _page_of(group, name) if group is not None else 0
            yield name, Place(offset, tensor.block_stride, page)


def _pool_bytes(config: Any) -> int:
    sizes = [each.size for each in config.kv_cache_tensors]
    shared = any(hasattr(each, "layer_stride") for each in config.kv_cache_tensors)
    return int(max(sizes, default=0) if shared else sum(sizes))

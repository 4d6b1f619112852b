"""The real coordinator of the Mooncake store: a tier behind a KV connector.

It keeps no blocks. What is stored is a pool that it is handed, as vLLM's worker hands it one of the
keys that the store says it has.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hitproof.conformance.exploration.watch import do_not_watch
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    call,
    parameters_of,
    spelled,
)
from hitproof.vllm_integration.adapter.parts import Parts, stand_in_hashes
from hitproof.vllm_integration.adapter.stand_ins import StandIn

_MODULE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.coordinator"
_CLASS = "MooncakeStoreCoordinator"
INNER = "_find_hit_blocks"
"""The method that finds the blocks of a lookup."""
_MAKE = "from_kv_cache_config"  # since 0.32
TIERS = "tiers"
"""The driver's name of the feature."""

ENTRIES = {
    "lookup": "find_longest_cache_hit",
    "stored": "store_mask",
    "asked": "lookup_mask",
    "loaded": "load_mask",
}
"""The methods of the coordinator, by what they are asked for."""


def coordinator_class(parts: Parts) -> Any:
    """The class of the coordinator. Raises `Predates` where the release has none."""
    package, _, _ = _MODULE.rpartition(".")
    try:
        found = find_spec(package) is not None and find_spec(_MODULE) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        parts.lacks(TIERS)
    return attribute(import_module(_MODULE), _CLASS)


def coordinator(parts: Parts, layout: Layout) -> Any:
    """A real coordinator of the layout, made as vLLM's callers do.

    Where they leave the groups out that opt out, it is made without these.
    """
    made = coordinator_class(parts)
    with parts.configured(layout.groups, 0, None) as config:
        if hasattr(made, _MAKE):
            drops = StandIn("SpeculativeConfig", use_eagle_block_drop=lambda: True)
            ranks = StandIn("ParallelConfig", decode_context_parallel_size=1)
            return call(
                getattr(made, _MAKE),
                {
                    "kv_cache_config": config,
                    "vllm_config": StandIn(
                        "VllmConfig",
                        parallel_config=ranks,
                        speculative_config=drops if layout.use_eagle else None,
                    ),
                    "scheduler_block_size": layout.alignment,
                    "hash_block_size": layout.hash_block_size,
                },
                f"{_CLASS}.{_MAKE}",
            )
        groups = config.kv_cache_groups
        return call(
            made,
            {
                "kv_cache_groups": [groups[number] for number in _handed_over(layout)],
                "scheduler_block_size": layout.alignment,
                "hash_block_size": layout.hash_block_size,
                "use_eagle": layout.use_eagle,
                "retention_interval": None,
                "enable_partial_hash_hits": False,
                "dcp_world_size": 1,
            },
            _CLASS,
        )


def _handed_over(layout: Layout) -> list[int]:
    """The groups that take part in prefix caching, by their places in the layout."""
    return [number for number, group in enumerate(layout.groups) if group.prefix_cacheable]


class _OfLayout:
    """A pool that is asked for groups by their places in a layout, not in a coordinator."""

    def __init__(self, pool: Any, places: Sequence[int]) -> None:
        self.null_block = pool.null_block
        self.hash_block_size = pool.hash_block_size
        self._pool = pool
        self._places = places

    def get_cached_block(self, block_hash: bytes, group_ids: Sequence[int]) -> Any:
        """See `conformance.subject.lookups.Lookup`."""
        return self._pool.get_cached_block(block_hash, [self._places[each] for each in group_ids])


class VllmTierLookup:
    """``find_longest_cache_hit`` of a real ``MooncakeStoreCoordinator``, ready for one layout.

    It makes masks of the blocks that it finds, which distinguishes blocks by ``is``, so that no
    states can be merged. For a real model, with more states than can be run one by one, the
    function that finds the blocks is called instead.
    """

    def __init__(
        self, parts: Parts, layout: Layout, hashes: list[bytes], keys: Sequence[Sequence[bytes]]
    ) -> None:
        self.keys = keys
        found = coordinator(parts, layout)
        find = attribute(found, ENTRIES["lookup"])
        self._find: Any = find
        self._hashes = hashes
        self._unit = layout.hash_block_size
        specs = [group.kv_cache_spec for group in found.kv_cache_groups]
        self.inputs = (found, *specs, hashes)
        if layout.model and hasattr(found, INNER):
            self.find_blocks()
        places = _handed_over(layout)
        self._places = None if len(places) == len(layout.groups) else places

    def find_blocks(self) -> "VllmTierLookup":
        """Return the blocks themselves from now on, and no masks."""
        self._find = attribute(self.inputs[0], INNER)
        return self

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        if self._places is not None:
            pool = _OfLayout(pool, self._places)
        returned = self._find(self._hashes[: (max_length + 1) // self._unit], max_length, pool)
        match returned:
            case (tuple() as masks, int() as hit_length):
                return LookupAnswer(hit_length, masks)
        raise CannotJudge(
            f"{_CLASS}.{ENTRIES['lookup']} returned {returned!r:.80}, which hitproof cannot read"
        )


do_not_watch(VllmTierLookup.__call__.__code__, _OfLayout.get_cached_block.__code__)


class VllmTierMasks:
    """The masks of a real ``MooncakeStoreCoordinator``."""

    def __init__(self, parts: Parts, layout: Layout) -> None:
        self._parts = parts
        self._layout = layout
        self._coordinator = coordinator(parts, layout)
        # Since states are handed over block by block, no mask of what is stored has them.
        self._hands_states_over = hasattr(self._coordinator, "mamba_group_ids")

    def stored(self, start: int, end: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`."""
        function = attribute(self._coordinator, ENTRIES["stored"])
        from_start = "start_token" in parameters_of(function)
        told = self._told(
            function,
            {"aligned_token_len": end, "start_token": start, "num_prompt_tokens": None},
            start if from_start else 0,
            end,
        )
        masks: list[Sequence[bool] | None] = []
        for group, mask in zip(self._layout.groups, told, strict=True):
            # Where the mask is always of the whole request, the rest was asked for before.
            first = 0 if from_start else start // group.block_size
            states = group.kind is GroupKind.MAMBA and self._hands_states_over
            if mask is None or (states and not any(mask)):
                masks.append(None)
            else:
                masks.append(mask[first:])
        return masks

    def asked_for(self, length: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`."""
        if not hasattr(self._coordinator, ENTRIES["asked"]):
            self._parts.lacks("masks of what a tier looks up")
        function = attribute(self._coordinator, ENTRIES["asked"])
        return self._told(function, {"aligned_token_len": length}, 0, length)

    def loaded(self, hit: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`."""
        function = attribute(self._coordinator, ENTRIES["loaded"])
        unit = self._layout.hash_block_size
        hashes = stand_in_hashes(hit // unit)
        return self._told(function, {"block_hashes": hashes, "token_len": hit}, 0, hit)

    def _told(
        self, function: Callable[..., Any], values: dict[str, Any], start: int, end: int
    ) -> list[Sequence[bool] | None]:
        """What a mask says of each group; None of it stands for all blocks of a group."""
        keywords = arguments(function, values, f"{_CLASS}.{function.__name__}")
        told, places = function(**spelled(function, keywords)), _handed_over(self._layout)
        if not isinstance(told, tuple) or len(told) != len(places):
            raise CannotJudge(f"{function.__name__} returned {told!r:.80}, not a mask a group")
        masks: list[Sequence[bool] | None] = [None] * len(self._layout.groups)
        for number, mask in zip(places, told, strict=True):
            size = self._layout.groups[number].block_size
            masks[number] = [True] * (end // size - start // size) if mask is None else mask
        return masks

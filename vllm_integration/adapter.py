"""vLLM's managers as a subject, whatever their release.

Entry points are found by inspection: parameters are filled by their name in the target's own
signature, and a required one that is not known ends the check with a sentence that names it.
Imported in the worker process only, where the target is the ``vllm`` that gets imported.
"""

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from conformance.configurations import Configuration
from conformance.subjects import CannotJudge, LookupAnswer
from spec.groups import Group, GroupKind
from spec.retention import LookaheadHorizon
from vllm_integration.groups import NAMES, kv_cache_spec
from vllm_integration.inspection import arguments, attribute, call
from vllm_integration.producer import Producer

_MASKS = ("reachable_block_mask", "_cache_block_mask")


class VllmLookup:
    """``find_longest_cache_hit`` of one manager class, ready for one configuration."""

    def __init__(
        self, function: Callable[..., Any], keywords: dict[str, Any], keys: Sequence[bytes]
    ) -> None:
        self.keys = keys
        self.inputs = (keywords, *keywords.values())
        self._function = function
        self._keywords = keywords
        self._block_size = keywords["kv_cache_spec"].block_size

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subjects.Lookup`."""
        returned = self._function(block_pool=pool, max_length=max_length, **self._keywords)
        # Newer lookups return the hit length beside the tables; before, the tables tell it.
        match returned:
            case (tuple() as tables, int() as hit_length):
                return LookupAnswer(hit_length, tables)
            case (list() as first, *_):
                return LookupAnswer(len(first) * self._block_size, returned)
        raise CannotJudge(
            f"find_longest_cache_hit returned {returned!r:.80}, which hitproof cannot read"
        )


class VllmSubject:
    """The imported vLLM under the checks' protocol, `conformance.subjects.Subject`."""

    def __init__(self, predates_retention: bool) -> None:
        # The whole manager first: imported alone, its parts run into circular imports.
        import vllm.v1.core.kv_cache_manager  # noqa: F401
        from vllm.v1 import kv_cache_interface, request
        from vllm.v1.core import (
            block_pool,
            kv_cache_coordinator,
            kv_cache_utils,
            single_type_kv_cache_manager,
        )

        self._managers: ModuleType = single_type_kv_cache_manager
        self._specs: ModuleType = kv_cache_interface
        self._pools: ModuleType = block_pool
        self._utils: ModuleType = kv_cache_utils
        self._requests: ModuleType = request
        self._request_ids = itertools.count()
        self._predates_retention = predates_retention
        self._producer = Producer(
            kv_cache_coordinator, kv_cache_interface, self._spec, self._request
        )

    def lookup(self, configuration: Configuration) -> VllmLookup:
        """The real ``find_longest_cache_hit`` of the configuration's manager."""
        manager = self._manager_class(configuration.group.kind)
        function = attribute(manager, "find_longest_cache_hit")
        num_tokens = configuration.num_blocks * configuration.group.block_size
        hashes = _stand_in_hashes(num_tokens // configuration.hash_block_size)
        view = self._view(hashes, configuration)
        # Newer lookups make their own view of the hashes; before, the caller did.
        resolves = "resolve_block_hashes" in function.__func__.__code__.co_names
        values = {
            "block_hashes": hashes if resolves else view,
            "kv_cache_group_ids": list(range(configuration.members)),
            "kv_cache_spec": self._spec(configuration.group),
            "drop_eagle_block": configuration.group.eagle,
            "use_eagle": configuration.group.eagle,
            "alignment_tokens": configuration.alignment,
        }
        where = f"{manager.__name__}.find_longest_cache_hit"
        keywords = arguments(function, values, where, given=("block_pool", "max_length"))
        if not {"block_hashes", "kv_cache_spec", "alignment_tokens"} <= keywords.keys() or (
            configuration.group.eagle and not {"drop_eagle_block", "use_eagle"} & keywords.keys()
        ):
            raise CannotJudge(
                f"{where}{inspect.signature(function)} lacks a parameter that hitproof fills: "
                f"{', '.join(sorted(values.keys() - keywords.keys()))}"
            )
        return VllmLookup(function, keywords, [view[i] for i in range(configuration.num_blocks)])

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        """Run the real ``cache_blocks`` on a real pool and read what it registered there."""
        manager_class = self._manager_class(configuration.group.kind)
        self._find_mask(manager_class)
        pool = call(
            self._pools.BlockPool,
            {
                "num_gpu_blocks": configuration.num_blocks + 1,
                "enable_caching": True,
                "hash_block_size": configuration.hash_block_size,
            },
            "BlockPool",
        )
        manager = self._manager(manager_class, configuration, pool)
        num_tokens = configuration.num_blocks * configuration.group.block_size
        request = self._request(num_tokens, configuration.hash_block_size)
        blocks = pool.get_new_blocks(configuration.num_blocks)
        manager.req_to_blocks[request.request_id] = list(blocks)
        for num_tokens in chunks:
            values = {
                "request": request,
                "num_tokens": num_tokens,
                "alignment_tokens": configuration.alignment,
                "retention_interval": None,
                "replay_boundaries": (),
            }
            cache_blocks = attribute(manager, "cache_blocks")
            where = f"{manager_class.__name__}.cache_blocks"
            cache_blocks(**arguments(cache_blocks, values, where))
        return [block.block_hash is not None for block in blocks]

    @cached_property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """See `Producer.lookahead_horizon`."""
        return self._producer.lookahead_horizon()

    def retained(
        self, configuration: Configuration, num_tokens: int, interval: int
    ) -> list[bool] | None:
        """Run the real coordinator's ``cache_blocks`` under a retention interval."""
        cache_blocks = attribute(
            attribute(self._managers, "SingleTypeKVCacheManager"), "cache_blocks"
        )
        if "retention_interval" not in inspect.signature(cache_blocks).parameters:
            if self._predates_retention:
                return None
            raise CannotJudge("cache_blocks takes no retention_interval; retention cannot be found")
        return self._producer.registered(configuration, num_tokens, interval)

    def source(self, entry: str) -> str:
        """file:line of the code behind "lookup <kind>" or "mask <kind>"."""
        what, kind = entry.split()
        manager = self._manager_class(GroupKind(kind))
        if what == "lookup":
            return _location(manager.find_longest_cache_hit)
        return _location(self._find_mask(manager) or manager.cache_blocks)

    def _manager_class(self, kind: GroupKind) -> Any:
        return attribute(self._managers, NAMES[kind][0])

    def _find_mask(self, manager: Any) -> Any:
        """The mask function; None on releases that have none and register every block."""
        for name in _MASKS:
            if hasattr(manager, name):
                return getattr(manager, name)
        cache_full_blocks = attribute(self._pools.BlockPool, "cache_full_blocks")
        if "block_mask" in inspect.signature(cache_full_blocks).parameters:
            raise CannotJudge(
                f"BlockPool.cache_full_blocks takes a block_mask, but {manager.__name__} has "
                f"neither {' nor '.join(_MASKS)}; the mask cannot be found"
            )
        return None

    def _spec(self, group: Group) -> Any:
        return kv_cache_spec(self._specs, group)

    def _manager(self, manager_class: Any, configuration: Configuration, pool: Any) -> Any:
        values = {
            "kv_cache_spec": self._spec(configuration.group),
            "block_pool": pool,
            "enable_caching": True,
            "kv_cache_group_id": 0,
            "scheduler_block_size": configuration.alignment,
        }
        # A subclass may pass the rest on as **kwargs, so the base class is asked as well.
        base = attribute(self._managers, "SingleTypeKVCacheManager")
        keywords = arguments(base.__init__, values, f"{base.__name__}.__init__", given=("self",))
        manager = call(manager_class, keywords, manager_class.__name__)
        if hasattr(manager, "use_eagle"):
            manager.use_eagle = configuration.group.eagle
        return manager

    def _request(self, num_tokens: int, hash_block_size: int) -> Any:
        """A real request with stand-in hashes of its prompt."""
        from vllm.sampling_params import SamplingParams

        request = call(
            self._requests.Request,
            {
                "request_id": str(next(self._request_ids)),
                "prompt_token_ids": list(range(num_tokens)),
                "sampling_params": SamplingParams(max_tokens=1),
                "pooling_params": None,
                "eos_token_id": None,
            },
            "Request",
        )
        request.block_hashes = _stand_in_hashes(num_tokens // hash_block_size)
        return request

    def _view(self, hashes: list[bytes], configuration: Configuration) -> Any:
        if configuration.group.block_size == configuration.hash_block_size:
            return hashes
        view = attribute(self._utils, "BlockHashListWithBlockSize")
        return view(hashes, configuration.hash_block_size, configuration.group.block_size)


def _location(function: Any) -> str:
    function = inspect.unwrap(getattr(function, "__func__", function))
    file = inspect.getsourcefile(function) or "?"
    _, found, tail = file.rpartition("/vllm/v1/")
    return f"{'vllm/v1/' + tail if found else file}:{inspect.getsourcelines(function)[1]}"


def _stand_in_hashes(count: int) -> list[bytes]:
    """One distinct hash for each hash block; 0.22 to 0.24 join them, so they are bytes."""
    return [b"%08d" % i for i in range(count)]

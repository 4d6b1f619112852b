"""vLLM's managers as a subject, whatever their release.

Entry points are found by inspection: parameters are filled by their name in the target's own
signature, and a required one that is not known ends the check with a sentence that names it.
Imported in the worker process only, where the target is the ``vllm`` that gets imported.
"""

import inspect
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any, NoReturn

from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.managers import Allocation
from hitproof.conformance.subject.subjects import Lookup, LookupAnswer, Prompt
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import (
    DefaultRetention,
    EagleGroups,
    Junctions,
    SparseRetention,
)
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.vllm_integration.adapter.blocks import BlockHashes, VllmPool, VllmPools
from hitproof.vllm_integration.adapter.connector import FOR_CONNECTORS, VllmConnectorLookup
from hitproof.vllm_integration.adapter.groups import NAMES, kv_cache_config, kv_cache_spec
from hitproof.vllm_integration.adapter.history import History
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    call,
    definitions,
    probed,
)
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.producer import Producer

_MASKS = ("reachable_block_mask", "_cache_block_mask")
_STORED_END = "final_segment_end_block"


class VllmLookup:
    """``find_longest_cache_hit`` of one manager class, ready for one configuration."""

    def __init__(
        self,
        function: Callable[..., Any],
        keywords: dict[str, Any],
        keys: Sequence[Sequence[bytes]],
        block_size: int,
    ) -> None:
        self.keys = keys
        self.inputs = (keywords, *keywords.values())
        self._function = function
        self._keywords = keywords
        self._block_size = block_size

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.subjects.Lookup`."""
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


class VllmCommonLookup:
    """``find_longest_cache_hit`` of a real coordinator, ready for one layout."""

    def __init__(self, coordinator: Any, hashes: list[bytes], keys: Sequence[Sequence[bytes]]):
        self.keys = keys
        self._owners = (coordinator, *coordinator.single_type_managers)
        self._find = attribute(coordinator, "find_longest_cache_hit")
        self._hashes = hashes
        managers = coordinator.single_type_managers
        specs = [group.kv_cache_spec for group in coordinator.kv_cache_config.kv_cache_groups]
        self.inputs = (coordinator, *managers, *specs, hashes)
        self._hash_block_size = getattr(coordinator, "hash_block_size", managers[0].block_size)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.subjects.Lookup`."""
        for owner in self._owners:
            owner.block_pool = pool
        hashed = self._hashes[: (max_length + 1) // self._hash_block_size]
        returned = self._find(hashed, max_length)
        match returned:
            case (tuple() as tables, int() as hit_length, *_):
                return LookupAnswer(hit_length, tables)
        raise CannotJudge(
            f"find_longest_cache_hit of the coordinator returned {returned!r:.80}, which hitproof "
            f"cannot read"
        )


class VllmSubject:
    """The imported vLLM under the checks' protocol, `conformance.subject.subjects.Subject`."""

    def __init__(self, predates: frozenset[str]) -> None:
        # The whole manager first: imported alone, its parts run into circular imports.
        import vllm.v1.core.kv_cache_manager
        from vllm.v1 import kv_cache_interface, request
        from vllm.v1.core import (
            block_pool,
            kv_cache_coordinator,
            kv_cache_utils,
            single_type_kv_cache_manager,
        )

        self._whole: ModuleType = vllm.v1.core.kv_cache_manager
        self._managers: ModuleType = single_type_kv_cache_manager
        self._specs: ModuleType = kv_cache_interface
        self._pools: ModuleType = block_pool
        self._utils: ModuleType = kv_cache_utils
        self._requests: ModuleType = request
        self._request_ids = itertools.count()
        self._predates = predates
        self._new_pool = VllmPools(block_pool, kv_cache_utils, self._new_request)
        self._block_hashes = BlockHashes(kv_cache_utils, self._new_request)
        self._producer = Producer(kv_cache_coordinator, self._configured, self._request)
        self._history = History(self._whole, self._configured, self._request_of)

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The real ``find_longest_cache_hit``, of a manager or of the coordinator."""
        if isinstance(judged, Layout):
            return self._common_lookup(judged)
        hashes = self._hashes(judged)
        view = self._view(hashes, judged.hash_block_size, judged.group.block_size)
        keys = [view[i] for i in range(judged.num_blocks)]
        return self._group_lookup(judged, judged.alignment, hashes, view, keys)

    def fine_lookup(self, configuration: Configuration) -> VllmLookup:
        """The same function, asked for hits that end on any hash block."""
        if self.hit_granularity is HitGranularity.ALIGNED:
            self._lacks("fine-grained hits")
        return self._fine_lookup(configuration)

    def connector_lookup(self, layout: Layout) -> VllmConnectorLookup:
        """The real ``get_computed_blocks_for_connector`` of a whole manager."""
        if not hasattr(attribute(self._whole, "KVCacheManager"), FOR_CONNECTORS):
            self._lacks("local prefixes for connectors")
        return VllmConnectorLookup(
            self._whole, self._configured, self._request_of, layout, *self._hashes_and_keys(layout)
        )

    def _common_lookup(self, layout: Layout) -> VllmCommonLookup:
        return VllmCommonLookup(
            self._producer.coordinator(layout, None), *self._hashes_and_keys(layout)
        )

    def _hashes_and_keys(self, layout: Layout) -> tuple[list[bytes], list[list[bytes]]]:
        hashes = _stand_in_hashes(layout.num_tokens // layout.hash_block_size)
        views = [
            (self._view(hashes, layout.hash_block_size, size), layout.num_tokens // size)
            for size in (looked_up.group.block_size for looked_up in layout.looked_up)
        ]
        return hashes, [[view[block] for block in range(blocks)] for view, blocks in views]

    def _fine_lookup(self, configuration: Configuration) -> VllmLookup:
        hashes = self._hashes(configuration)
        unit = configuration.hash_block_size
        return self._group_lookup(configuration, unit, hashes, hashes, hashes)

    def _hashes(self, configuration: Configuration) -> list[bytes]:
        num_tokens = configuration.num_blocks * configuration.group.block_size
        return _stand_in_hashes(num_tokens // configuration.hash_block_size)

    def _group_lookup(
        self,
        configuration: Configuration,
        align: int,
        hashes: list[bytes],
        view: Any,
        keys: Sequence[bytes],
    ) -> VllmLookup:
        manager = self._manager_class(configuration.group.kind)
        function = attribute(manager, "find_longest_cache_hit")
        # Newer lookups make their own view of the hashes; before, the caller did.
        resolves = any(
            "resolve_block_hashes" in inspect.unwrap(each).__code__.co_names
            for each in definitions(function)
        )
        values = {
            "block_hashes": hashes if resolves else view,
            "kv_cache_group_ids": list(range(configuration.members)),
            "kv_cache_spec": self._spec(self._on_one_rank(configuration)),
            "drop_eagle_block": configuration.group.eagle,
            "use_eagle": configuration.group.eagle,
            "alignment_tokens": align,
            **_parallel(configuration),
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
        return VllmLookup(function, keywords, [keys], configuration.group.block_size)

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        """Run the real ``cache_blocks`` on a real pool and read what it registered there."""
        manager_class = self._manager_class(configuration.group.kind)
        self._find_mask(manager_class)
        pool = self._pool(configuration)
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

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        """Ask the real ``reachable_block_mask`` as an offloading connector does.

        Where a block has an even number of tokens, as one whose tokens two ranks share.
        """
        manager_class = self._manager_class(configuration.group.kind)
        mask = getattr(manager_class, _MASKS[0], None)
        if mask is None or _STORED_END not in inspect.signature(mask).parameters:
            self._lacks("masks of what is stored")
        ranks, bound = 2 - configuration.group.block_size % 2, configuration.num_blocks
        size = configuration.group.block_size // ranks
        values = {
            "alignment_tokens": configuration.alignment,
            "kv_cache_spec": self._spec(replace(configuration.group, block_size=size)),
            "use_eagle": configuration.group.eagle,
            "dcp_world_size": ranks,
            _STORED_END: end,
        }
        stored: list[bool] = []
        for start, stop in ((0, bound // 3), (bound // 3, bound)):
            places = {"start_block": start, "end_block": stop}
            keywords = arguments(mask, values | places, f"{manager_class.__name__}.{_MASKS[0]}")
            stored += mask(**keywords) or [True] * (stop - start)
        return stored

    def registered_when_final(
        self, configuration: Configuration, num_tokens: int, not_final: int, alone: bool
    ) -> list[bool]:
        """Run the real coordinator's ``cache_blocks`` with draft models that look ahead."""
        if not self._producer.looks_ahead:
            self._lacks("drafts that are computed anew")
        return self._producer.registered_when_final(configuration, num_tokens, not_final, alone)

    @cached_property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """See `Producer.lookahead_horizon`."""
        return probed("lookahead horizon", self._producer.lookahead_horizon)

    @cached_property
    def hit_granularity(self) -> HitGranularity:
        """Enter a Mamba block under the hash of its first half, and see what is hit."""
        states = Configuration(1, 1, 4, Group(GroupKind.MAMBA, 4), hash_block_size=2)
        lookup = self._fine_lookup(states)
        pool = _HalfABlock(lookup.keys[0][0])
        answer = probed("hit granularity", lambda: lookup(pool, 4))
        return HitGranularity.FINE if answer.hit_length == 2 else HitGranularity.ALIGNED

    @cached_property
    def fine_tail(self) -> FineTail:
        """Compute prompts that end on a hash block and past it, and see which is entered there."""
        groups = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
        engine = EngineConfiguration(groups, 10, 2, 8)

        def entered(length: int) -> bool:
            manager = VllmManagers().start(engine)
            manager.add_request("a", RequestInput(tuple(range(length))))
            manager.allocate_slots("a", Allocation(length, manager.get_computed_blocks("a")))
            return (0, manager.unit_keys("a")[-1]) in manager.observe().cached

        if probed("kept end of a prompt", lambda: entered(6)):
            return FineTail.EXTENSION
        # Where hits may end there, an end that is not kept is a fault and no policy.
        fine = self.hit_granularity is HitGranularity.FINE
        resent = fine or probed("kept end of a prompt", lambda: entered(7))
        return FineTail.RESEND if resent else FineTail.NONE

    @cached_property
    def eagle_groups(self) -> EagleGroups:
        """See `Producer.all_groups_drop`."""
        drops = probed("set of groups with EAGLE", self._producer.all_groups_drop)
        return EagleGroups.ALL if drops else EagleGroups.FLAGGED

    def policies(self) -> dict[str, str]:
        """The value that each policy of `spec.releases.policies` has, by how the target behaves."""
        thinned = {kind for kind in SPARSE_KINDS if self._thins_out(kind)}
        if thinned == set(SPARSE_KINDS):
            sparse = SparseRetention.WINDOWS_AND_STATES
        else:
            sparse = SparseRetention.WINDOWS if thinned else SparseRetention.NONE
        return {
            "lookahead_horizon": self.lookahead_horizon,
            "eagle_groups": self.eagle_groups,
            "hit_granularity": self.hit_granularity,
            "fine_tail": self.fine_tail,
            "sparse_retention": sparse,
            "junctions": Junctions.KEPT if self._history.notes_junctions() else Junctions.DROPPED,
            "default_retention": _default_retention(),
        }

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        """Run the real coordinator's ``cache_blocks`` under a retention interval."""
        if not self._thins_out(configuration.group.kind):
            self._lacks(_retention_of(configuration.group.kind))
        return self._producer.registered(configuration, num_tokens, interval)

    def hits(
        self,
        configuration: Configuration,
        prompts: Sequence[Sequence[int]],
        interval: int | None,
    ) -> list[int]:
        """Serve the prompts with the real ``KVCacheManager``."""
        if not self._thins_out(configuration.group.kind):
            self._lacks(_retention_of(configuration.group.kind))
        if not self._history.notes_junctions():
            self._lacks("junctions")
        return self._history.hits(configuration, prompts, interval)

    def _lacks(self, feature: str) -> NoReturn:
        """The target lacks the feature, which is right if its release is older than that."""
        if feature in self._predates:
            raise Predates(f"the target is older than {feature}")
        raise CannotJudge(f"{feature} cannot be found in a target that should have it")

    def _thins_out(self, kind: GroupKind) -> bool:
        """Whether the manager of the kind has a mask that takes a retention interval.

        Before that, a coordinator refuses an interval where no group is thinned out.
        """
        base = attribute(self._managers, "SingleTypeKVCacheManager")
        cache_blocks = attribute(base, "cache_blocks")
        if "retention_interval" not in inspect.signature(cache_blocks).parameters:
            if "retention" in self._predates:
                return False
            self._lacks("retention")
        manager = self._manager_class(kind)
        self._find_mask(manager)
        above = manager.__mro__[: manager.__mro__.index(base)]
        return any(_MASKS[0] in vars(each) for each in above)

    def pool(self, num_blocks: int) -> VllmPool:
        """A real ``BlockPool``."""
        return self._new_pool(num_blocks)

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """The hashes of a real ``Request``, through the view that groups look at them."""
        if hash_lookahead and not self._block_hashes.can_look_ahead():
            self._lacks("hashes that look ahead")
        return self._block_hashes(prompt, hash_block_size, block_size, hash_lookahead)

    def source(self, entry: str) -> str:
        """file:line of the code behind "lookup <kind>", "lookup several" and the like."""
        if entry == "block_pool":
            return _location(self._pools.BlockPool)
        if entry == "block_hash":
            return _location(self._utils.get_request_block_hasher)
        what, kind = entry.split()
        if kind == "connector":
            return _location(attribute(self._whole.KVCacheManager, FOR_CONNECTORS))
        if kind == "several":
            return _location(self._producer.hybrid.find_longest_cache_hit)
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
        if not group.prefix_cacheable and "opting out" in self._predates:
            self._lacks("opting out")
        return kv_cache_spec(self._specs, group)

    def _configured(
        self, groups: Sequence[Group], num_blocks: int, interval: int | None
    ) -> AbstractContextManager[Any]:
        laid_out = [(group, self._spec(group)) for group in groups]
        return kv_cache_config(self._specs, laid_out, num_blocks, interval)

    def _pool(self, configuration: Configuration) -> Any:
        return call(
            self._pools.BlockPool,
            {
                "num_gpu_blocks": configuration.num_blocks + 1,
                "enable_caching": True,
                "hash_block_size": configuration.hash_block_size,
            },
            "BlockPool",
        )

    def _on_one_rank(self, configuration: Configuration) -> Group:
        """The group with the tokens that one rank has of each block, by the target's manager."""
        group, size = configuration.group, configuration.group.block_size
        if configuration.ranks == (1, 1):
            return group
        manager_class = self._manager_class(group.kind)
        pool = self._pool(configuration)
        single = replace(configuration, group=replace(group, block_size=1), ranks=(1, 1))
        parallel = _parallel(configuration)
        sharing = self._new_manager(manager_class, single, pool, parallel).block_size
        return replace(group, block_size=size // sharing)

    def _manager(self, manager_class: Any, configuration: Configuration, pool: Any) -> Any:
        on_one_rank = replace(configuration, group=self._on_one_rank(configuration))
        return self._new_manager(manager_class, on_one_rank, pool, _parallel(configuration))

    def _new_manager(
        self, manager_class: Any, configuration: Configuration, pool: Any, parallel: dict[str, int]
    ) -> Any:
        values = {
            **parallel,
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
        return self._request_of(range(num_tokens), _stand_in_hashes(num_tokens // hash_block_size))

    def _request_of(self, tokens: Sequence[int], hashes: list[bytes]) -> Any:
        request = self._new_request(prompt_token_ids=list(tokens))
        request.block_hashes = hashes
        return request

    def _new_request(self, **values: Any) -> Any:
        from vllm.sampling_params import SamplingParams

        return call(
            self._requests.Request,
            {
                "request_id": str(next(self._request_ids)),
                "sampling_params": SamplingParams(max_tokens=1),
                "pooling_params": None,
                "eos_token_id": None,
                **values,
            },
            "Request",
        )

    def _view(self, hashes: list[bytes], hash_block_size: int, block_size: int) -> Any:
        if block_size == hash_block_size:
            return hashes
        view = attribute(self._utils, "BlockHashListWithBlockSize")
        return view(hashes, hash_block_size, block_size)


class _HalfABlock:
    """A pool with one block, entered under one hash."""

    hash_block_size = 2
    null_block = None

    def __init__(self, key: bytes) -> None:
        self._key = key

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: Sequence[int]) -> Any:
        """The block, if that is the hash."""
        return [object() for _ in kv_cache_group_ids] if block_hash == self._key else None


def _retention_of(kind: GroupKind) -> str:
    """The feature that a kind's retention is, as the driver calls it."""
    return "retention of states" if kind is GroupKind.MAMBA else "retention"


def _default_retention() -> DefaultRetention:
    """What ``CacheConfig`` says; before it had a say, retention was off unless asked for."""
    from vllm.config import CacheConfig

    interval = getattr(CacheConfig(), "prefix_cache_retention_interval", None)
    return DefaultRetention.DENSE if interval is None else DefaultRetention.LATEST


def _location(function: Any) -> str:
    function = inspect.unwrap(getattr(function, "__func__", function))
    file = inspect.getsourcefile(function) or "?"
    root = os.path.dirname(os.path.dirname(sys.modules["vllm"].__file__ or "")) + os.sep
    try:
        line = inspect.getsourcelines(function)[1]
    except OSError:  # the target has deleted it
        line = inspect.unwrap(function).__code__.co_firstlineno
    return f"{file.removeprefix(root)}:{line}"


def _stand_in_hashes(count: int) -> list[bytes]:
    """One distinct hash for each hash block; 0.22 to 0.24 join them, so they are bytes."""
    return [b"%08d" % i for i in range(count)]


def _parallel(configuration: Configuration) -> dict[str, int]:
    """What a manager and its lookup are told of ranks."""
    decode, prefill = configuration.ranks
    return {"dcp_world_size": decode, "pcp_world_size": prefill}

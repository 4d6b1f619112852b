"""vLLM's own objects, set up one by one: managers of one group, pools, specs and requests.

Imported in the worker process only.
"""

import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any, NoReturn

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.groups import NAMES, kv_cache_config, kv_cache_spec
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, call, parameters_of
from hitproof.vllm_integration.adapter.variants import (
    ALONE_STATE,
    REQUEST_STATE,
    REQUEST_VALUES,
    SAMPLING_VALUES,
    SpecClasses,
    choice,
    varied,
    watching,
)

MASK = "reachable_block_mask"
_MORE_BLOCKS = (9, 20, 300)
"""How many blocks pools have to spare; sinks hold some."""

_MASKS = (MASK, "_cache_block_mask")


class Parts:
    """The modules of the imported vLLM, of any release, and the objects set up from them.

    ``predates`` names the features that the release is too old for.
    """

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

        self.whole: ModuleType = vllm.v1.core.kv_cache_manager
        self.coordinators: ModuleType = kv_cache_coordinator
        self.managers: ModuleType = single_type_kv_cache_manager
        self.interface: ModuleType = kv_cache_interface
        self.pools: ModuleType = block_pool
        self.utils: ModuleType = kv_cache_utils
        self.requests: ModuleType = request
        self._request_ids = itertools.count()
        self._predates = predates
        self.spec_classes = SpecClasses(kv_cache_interface, single_type_kv_cache_manager, NAMES)
        self.variant = 0
        self._ranks = (1, 1)

    def vary(self, judged: Configuration | Layout | None) -> None:
        """From now on set up objects in the variant of what is judged; None for the plainest."""
        self.vary_by(0 if judged is None else judged.variant)
        if isinstance(judged, Configuration):
            self._ranks = judged.ranks

    def vary_by(self, number: int) -> None:
        """The same, in a variant of that number."""
        # The values of a request depend on its number, so that equal tasks have equal requests.
        self.variant, self._ranks, self._request_ids = number, (1, 1), itertools.count()

    def manager_class(self, kind: GroupKind) -> Any:
        """The class of the manager of a kind of group."""
        return attribute(self.managers, NAMES[kind][0])

    def varied_manager_class(self, group: Group) -> Any:
        """The class of the manager of a group in the variant that is in force."""
        return self.spec_classes.chosen(group, self.variant, alone=True).manager_class

    def find_mask(self, manager: Any) -> Any:
        """The mask function; None on releases that have none and register every block."""
        for name in _MASKS:
            if hasattr(manager, name):
                return getattr(manager, name)
        cache_full_blocks = attribute(self.pools.BlockPool, "cache_full_blocks")
        if "block_mask" in parameters_of(cache_full_blocks):
            raise CannotJudge(
                f"BlockPool.cache_full_blocks takes a block_mask, but {manager.__name__} has "
                f"neither {' nor '.join(_MASKS)}; the mask cannot be found"
            )
        return None

    def thins_out(self, kind: GroupKind) -> bool:
        """Whether the manager of the kind has a mask that takes a retention interval.

        Before that, a coordinator refuses an interval where no group is thinned out.
        """
        base = attribute(self.managers, "SingleTypeKVCacheManager")
        cache_blocks = attribute(base, "cache_blocks")
        if "retention_interval" not in parameters_of(cache_blocks):
            if "retention" in self._predates:
                return False
            self.lacks("retention")
        manager = self.manager_class(kind)
        self.find_mask(manager)
        above = manager.__mro__[: manager.__mro__.index(base)]
        return any(MASK in vars(each) for each in above)

    def needs(self, feature: str) -> None:
        """Raises `Predates` where the target's release predates the feature."""
        if feature in self._predates:
            self.lacks(feature)

    def lacks(self, feature: str) -> NoReturn:
        """The target lacks the feature, which is correct if its release predates it."""
        if feature in self._predates:
            raise Predates(f"the target predates {feature}")
        raise CannotJudge(f"{feature} cannot be found in a target that should have it")

    def spec(self, group: Group, alone: bool = True) -> Any:
        """A real ``KVCacheSpec``; ``alone`` is whether no coordinator gets it."""
        if not group.prefix_cacheable:
            self.needs("opting out")
        chosen = self.spec_classes.chosen(group, self.variant, alone)
        if self._ranks != (1, 1):
            chosen.values.pop("dcp_sharded", None)
            if "sink_len" in chosen.values:  # of whole blocks of all ranks together
                chosen.values["sink_len"] *= math.prod(self._ranks)
        return kv_cache_spec(self.interface, group, chosen=chosen)

    def configured(
        self, groups: Sequence[Group], num_blocks: int, interval: int | None, retained: int = 0
    ) -> AbstractContextManager[Any]:
        """A real ``KVCacheConfig``; see `vllm_integration.adapter.groups.kv_cache_config`.

        Windows keep ``retained`` tokens more than they attend to. vLLM: ``extra_retained_tokens``.
        Without ``num_blocks`` for requests the pool is as small as it gets in some variants.
        """
        laid_out = [(group, _keeping(self.spec(group, alone=False), retained)) for group in groups]
        if num_blocks:
            more = choice("pool blocks", self.variant, _MORE_BLOCKS)
        else:
            held = [getattr(spec, "sink_len", 0) // group.block_size for group, spec in laid_out]
            more = choice("pool of a lookup", self.variant, (2 + sum(held), 100))
        return kv_cache_config(self.interface, laid_out, num_blocks + more, interval)

    def pool(self, configuration: Configuration) -> Any:
        """A real ``BlockPool`` for one request."""
        more = choice("pool blocks", self.variant, _MORE_BLOCKS)
        return call(
            self.pools.BlockPool,
            {
                **self.watching,
                "num_gpu_blocks": configuration.num_blocks + 1 + more,
                "enable_caching": True,
                "hash_block_size": configuration.hash_block_size,
            },
            "BlockPool",
        )

    @property
    def watching(self) -> dict[str, Any]:
        """Arguments that only watch: statistics, events and metrics."""
        return watching(self.variant)

    def on_one_rank(self, configuration: Configuration) -> Group:
        """The group with the tokens that one rank has of each block, by the target's manager."""
        group, size = configuration.group, configuration.group.block_size
        if configuration.ranks == (1, 1):
            return group
        manager_class = self.manager_class(group.kind)
        pool = self.pool(configuration)
        single = replace(configuration, group=replace(group, block_size=1), ranks=(1, 1))
        ranks = parallel(configuration)
        sharing = self._new_manager(manager_class, single, pool, ranks).block_size
        return replace(group, block_size=size // sharing)

    def manager(self, manager_class: Any, configuration: Configuration, pool: Any) -> Any:
        """A real manager of one group."""
        on_one_rank = replace(configuration, group=self.on_one_rank(configuration))
        return self._new_manager(manager_class, on_one_rank, pool, parallel(configuration))

    def _new_manager(
        self, manager_class: Any, configuration: Configuration, pool: Any, ranks: dict[str, int]
    ) -> Any:
        values = {
            **ranks,
            "kv_cache_spec": self.spec(configuration.group),
            "block_pool": pool,
            "enable_caching": True,
            "kv_cache_group_id": 0,
            "scheduler_block_size": configuration.alignment,
        }
        # A subclass may pass the rest on as **kwargs, so the base class is asked as well.
        base = attribute(self.managers, "SingleTypeKVCacheManager")
        keywords = arguments(base.__init__, values, f"{base.__name__}.__init__", given=("self",))
        manager = call(manager_class, keywords, manager_class.__name__)
        if hasattr(manager, "use_eagle"):
            manager.use_eagle = configuration.group.eagle
        return manager

    def request(self, num_tokens: int, hash_block_size: int) -> Any:
        """A real request with stand-in hashes of its prompt."""
        return self.request_of(range(num_tokens), stand_in_hashes(num_tokens // hash_block_size))

    def request_of(self, tokens: Sequence[int], hashes: list[bytes], num_output: int = 0) -> Any:
        """A real request with these hashes, whose last ``num_output`` tokens are output."""
        num_prompt = len(tokens) - num_output
        request = self.new_request(prompt_token_ids=list(tokens[:num_prompt]))
        if num_output:
            request.append_output_token_ids(list(tokens[num_prompt:]))
        request.block_hashes = hashes
        return request

    def mixes_embeddings(self) -> bool:
        """Whether some of a prompt can come as token ids and some as embeddings."""
        return "prompt_is_token_ids" in parameters_of(self.requests.Request)

    def new_request(self, **values: Any) -> Any:
        """A real ``Request``."""
        from vllm.sampling_params import SamplingParams

        number = next(self._request_ids)
        variant = self.variant and self.variant + number
        sampling = varied(SAMPLING_VALUES, "sampling", variant)
        request = call(
            self.requests.Request,
            {
                "request_id": str(number),
                "sampling_params": SamplingParams(max_tokens=1, **sampling),
                "pooling_params": None,
                **varied(REQUEST_VALUES, "request", variant),
                **values,
            },
            "Request",
        )
        put(request, varied(REQUEST_STATE | ALONE_STATE, "request", variant))
        return request

    def view(self, hashes: list[bytes], hash_block_size: int, block_size: int) -> Any:
        """The hashes as seen by a group of ``block_size`` tokens per block."""
        if block_size == hash_block_size:
            return hashes
        view = attribute(self.utils, "BlockHashListWithBlockSize")
        return view(hashes, hash_block_size, block_size)


def put(request: Any, state: dict[str, Any]) -> None:
    """Give a request those attributes of ``state`` that it has."""
    for name, value in state.items():
        if hasattr(request, name):
            setattr(request, name, value)


def _keeping(spec: Any, retained: int) -> Any:
    """The spec of a window that keeps ``retained`` more tokens, where it can."""
    if not retained or not hasattr(spec, "extra_retained_tokens"):
        return spec
    return replace(spec, extra_retained_tokens=retained)


def stand_in_hashes(count: int) -> list[bytes]:
    """One distinct hash for each hash block; 0.22 to 0.24 join them, so they are bytes."""
    return [b"%08d" % i for i in range(count)]


def parallel(configuration: Configuration) -> dict[str, int]:
    """The arguments of a manager and its lookup that describe ranks."""
    decode, prefill = configuration.ranks
    return {"dcp_world_size": decode, "pcp_world_size": prefill}

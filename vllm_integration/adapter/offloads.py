"""An offloading backend: one that keeps nothing but what it is asked for, or the target's own pool.

vLLM imports it by the name of this module, as any backend out of its tree. Imported in the worker
process only.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.cpu import common
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies import base as policies

from hitproof.conformance.subject.schedulers import ChunkKey, PoolCall

_RESULTS = getattr(base, "LookupResult", None)
_CONTEXT = getattr(base, "RequestOffloadingContext", None)
_METRICS = getattr(common, "CPUOffloadingMetrics", None)
_GAUGES = [
    getattr(_METRICS, f"CPU_CACHE_{name}_PERC", None)
    for name in ("USAGE", "WRITE_USAGE", "READ_USAGE")
]
_ALLOCATED = "_num_allocated_chunks", "_num_allocated_blocks"
_PLACE = "chunk_id" if hasattr(policies, "ChunkStatus") else "block_id"


class Keys(common.CPULoadStoreSpec):  # type: ignore[misc]  # untyped vLLM
    """Where chunks are: under their keys, in this order."""

    def __init__(self, keys: Collection[Any]) -> None:
        super().__init__([*range(len(keys))])
        self.keys = tuple(keys)


class Offloads(base.OffloadingManager):  # type: ignore[misc]  # untyped vLLM
    """The keys of an offloading tier.

    Attributes:
        has: whether a key is stored; set by the caller of the scheduler.
    """

    def __init__(self) -> None:
        self.has: Callable[[Any], bool] = lambda _: False

    def lookup(self, key: Any, req_context: Any) -> Any:
        """Whether the key is stored."""
        del req_context
        found = self.has(key)
        if _RESULTS is None:
            return found
        return _RESULTS.HIT if found else _RESULTS.MISS

    def prepare_load(self, keys: Collection[Any], req_context: Any) -> Any:
        """What is loaded."""
        del req_context
        return Keys(keys)

    def prepare_store(self, keys: Collection[Any], req_context: Any) -> Any:
        """What is stored: all that it is asked for."""
        del req_context
        return base.PrepareStoreOutput(list(keys), Keys(keys), [])

    def on_new_request(self, req_context: Any) -> Any:
        """Nothing is known of it."""
        del req_context
        return None if _CONTEXT is None else _CONTEXT()


class HostMemory(CPUOffloadingManager):  # type: ignore[misc]  # untyped vLLM
    """The target's own pool of host memory; what it is asked is noted, and what it answers.

    ``options`` are those of the target's.
    """

    def __init__(self, num_chunks: int, later: int = 0, **options: Any) -> None:
        super().__init__(num_chunks, enable_events=True, **options)
        self._later = later
        self._asked = Counter[tuple[str, Any]]()
        self._seen: dict[Any, None] = {}
        self.calls: list[PoolCall] = []
        """Calls since the reader has last cleared this."""

    def lookup(self, key: Any, *args: Any) -> Any:
        """Whether the key is stored, which some requests are told when they ask again."""
        asked = _name(args), key
        if self._asked[asked] < self._later:
            self._asked[asked] += 1
            return None if _RESULTS is None else _RESULTS.RETRY
        answer = super().lookup(key, *args)
        found = answer if _RESULTS is None else answer is _RESULTS.HIT
        self._note("lookup", [key], args, found=found)
        return answer

    def prepare_store(self, keys: Collection[Any], *args: Any, **kwargs: Any) -> Any:
        """What is stored."""
        self._seen |= dict.fromkeys(keys)
        taken = super().prepare_store(keys, *args, **kwargs)
        self._note(
            "prepare_store",
            keys,
            args,
            taken=None if taken is None else _named(taken.keys_to_store),
            places=() if taken is None else _places(taken.store_spec),
            evicted=() if taken is None else _named(taken.evicted_keys),
        )
        return taken

    def complete_store(self, keys: Collection[Any], *args: Any, **kwargs: Any) -> None:
        """It is stored, or is not."""
        success = kwargs.get("success", args[1] if len(args) > 1 else True)
        self._note("complete_store", keys, args, found=success)
        super().complete_store(keys, *args, **kwargs)

    def prepare_load(self, keys: Collection[Any], *args: Any) -> Any:
        """From where it is loaded."""
        spec = super().prepare_load(keys, *args)
        self._note("prepare_load", keys, args, places=_places(spec))
        return spec

    def complete_load(self, keys: Collection[Any], *args: Any) -> None:
        """It is loaded."""
        self._note("complete_load", keys, args)
        super().complete_load(keys, *args)

    def on_request_finished(self, *args: Any) -> None:
        """Nothing follows for a request."""
        if "on_request_finished" in vars(CPUOffloadingManager):
            self._note("on_request_finished", (), args)
        super().on_request_finished(*args)

    def reset_cache(self) -> None:
        """All is forgotten."""
        self._note("reset_cache")
        super().reset_cache()

    def take_events(self) -> Any:
        """What has changed."""
        events = list(super().take_events())
        told = [(key, each) for each in events for key in each.keys]
        stored = tuple(not each.removed for _, each in told)
        self._note("take_events", [key for key, _ in told], stored=stored)
        return events

    def get_stats(self) -> Any:
        """What is in use, and more."""
        stats = super().get_stats()
        told = {} if stats is None else stats.data.get("data", stats.data)
        gauges = [told[name] for name in _GAUGES if name in told]
        shares = (next(iter(g.values())) if isinstance(g, dict) else g for g in gauges)
        self._note("get_stats", shares=tuple(map(float, shares)))
        return stats

    def _note(
        self, what: str, keys: Collection[Any] = (), args: tuple[Any, ...] = (), **told: Any
    ) -> None:
        self.calls.append(PoolCall(what, _named(keys), _name(args), **told))

    def stored(self) -> dict[ChunkKey, int]:
        """Where each chunk is that can be loaded."""
        found = {key: self._policy.get(key) for key in self._seen}
        ready = {key: each for key, each in found.items() if each is not None and each.is_ready}
        places = (int(getattr(each, _PLACE)) for each in ready.values())
        return dict(zip(_named(ready), places, strict=True))

    @property
    def in_use(self) -> int:
        """Chunks that are neither free nor can be evicted."""
        kept = [self._policy.get(key) for key in self._seen]
        idle = sum(each is not None and each.ref_cnt == 0 for each in kept)
        allocated = next(v for n in _ALLOCATED if (v := getattr(self, n, None)) is not None)
        return int(allocated - len(self._free_list) - idle)


def _name(args: tuple[Any, ...]) -> str:
    """The request of a call."""
    return getattr(args[0] if args else None, "req_id", "")


def _named(keys: Collection[Any]) -> tuple[ChunkKey, ...]:
    """The groups of chunks and the hashes of their last blocks."""
    return tuple(
        (base.get_offload_group_idx(key), bytes(base.get_offload_block_hash(key))) for key in keys
    )


def _places(spec: Any) -> tuple[int, ...]:
    return tuple(map(int, spec.block_ids))


class OffloadsSpec(base.OffloadingSpec):  # type: ignore[misc]  # untyped vLLM
    """How vLLM makes it."""

    def get_manager(self) -> Any:
        """The scheduler's half."""
        told = self.extra_config
        return HostMemory(told["num_chunks"], **told["pool"]) if told["num_chunks"] else Offloads()

    def get_worker(self, *_: Any) -> Any:
        """There is no worker."""
        raise NotImplementedError

    get_handlers = get_worker

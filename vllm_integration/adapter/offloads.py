"""An offloading backend: one that keeps nothing but what it is asked for, or the target's own pool.

vLLM imports it by the name of this module, as any backend out of its tree. Imported in the worker
process only.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies import base as policies

_RESULTS = getattr(base, "LookupResult", None)
_CONTEXT = getattr(base, "RequestOffloadingContext", None)
_PLACE = "chunk_id" if hasattr(policies, "ChunkStatus") else "block_id"


class Keys(base.LoadStoreSpec):  # type: ignore[misc]  # untyped vLLM
    """Where chunks are: under their keys, in this order."""

    def __init__(self, keys: Collection[Any]) -> None:
        self.keys = tuple(keys)

    @staticmethod
    def medium() -> str:
        """What older releases tell transfers apart by."""
        return "keys"


class Offloads(base.OffloadingManager):  # type: ignore[misc]  # untyped vLLM
    """The keys of an offloading tier.

    Attributes:
        has: whether a key is stored; whoever asks the scheduler decides.
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
    """The target's own pool of host memory; it can be asked for all that it has."""

    def __init__(self, num_chunks: int, later: int = 0) -> None:
        super().__init__(num_chunks)
        self._later = later
        self._asked = Counter[tuple[str, Any]]()
        self._seen: dict[Any, None] = {}
        self.offered: list[tuple[str, Any]] = []
        """What it was offered and did not refuse, with the requests that it is of."""

    def lookup(self, key: Any, *args: Any) -> Any:
        """Whether the key is stored, which some requests are told when they ask again."""
        asked = getattr(args[0] if args else None, "req_id", ""), key
        if self._asked[asked] < self._later:
            self._asked[asked] += 1
            return None if _RESULTS is None else _RESULTS.RETRY
        return super().lookup(key, *args)

    def prepare_store(self, keys: Collection[Any], *args: Any, **kwargs: Any) -> Any:
        """What is stored; its keys are noted."""
        self._seen |= dict.fromkeys(keys)
        taken = super().prepare_store(keys, *args, **kwargs)
        name = getattr(args[0] if args else None, "req_id", None)
        if taken is not None and name is not None:
            self.offered += [(name, key) for key in keys]
        return taken

    def stored(self) -> dict[Any, int]:
        """Where each chunk is that can be loaded."""
        found = {key: self._policy.get(key) for key in self._seen}
        ready = {key: each for key, each in found.items() if each is not None and each.is_ready}
        return {key: int(getattr(each, _PLACE)) for key, each in ready.items()}


class OffloadsSpec(base.OffloadingSpec):  # type: ignore[misc]  # untyped vLLM
    """How vLLM makes it."""

    def get_manager(self) -> Any:
        """The scheduler's half."""
        num_chunks = self.extra_config["num_chunks"]
        return HostMemory(num_chunks, self.extra_config["later"]) if num_chunks else Offloads()

    def get_worker(self, *_: Any) -> Any:
        """There is no worker."""
        raise NotImplementedError

    get_handlers = get_worker

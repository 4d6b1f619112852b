"""An offloading backend that keeps nothing but what it is asked for.

vLLM imports it by the name of this module, as any backend out of its tree. Imported in the worker
process only.
"""

from collections.abc import Callable, Collection
from typing import Any

from vllm.v1.kv_offload import base

_RESULTS = getattr(base, "LookupResult", None)
_CONTEXT = getattr(base, "RequestOffloadingContext", None)


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


class OffloadsSpec(base.OffloadingSpec):  # type: ignore[misc]  # untyped vLLM
    """How vLLM makes it."""

    def get_manager(self) -> Offloads:
        """The scheduler's half."""
        return Offloads()

    def get_worker(self, *_: Any) -> Any:
        """There is no worker."""
        raise NotImplementedError

    get_handlers = get_worker

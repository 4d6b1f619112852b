"""Wrong hits, put into the managers of an engine: its numbers and the shadow must show them.

Imports vLLM when a fault is planted, so that is for the engine's process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from typing import Any
from unittest import mock

from hitproof.vllm_integration.engine.models import Kind


class Planted(StrEnum):
    """A fault of a manager."""

    OTHER_BLOCK = "other-block"
    """The last block of a hit is one of another prefix."""
    NULL_BLOCK = "null-block"
    """The first block of a sliding window that a hit needs is null."""
    KEPT_KEY = "kept-key"
    """An evicted block is still found by its key."""


PLANTED: Mapping[Kind, Sequence[Planted]] = {
    Kind.FULL: (Planted.OTHER_BLOCK, Planted.KEPT_KEY),
    Kind.WINDOW: (Planted.OTHER_BLOCK, Planted.NULL_BLOCK),
    Kind.MIXED: (Planted.NULL_BLOCK,),
    Kind.HYBRID: (Planted.OTHER_BLOCK,),
    Kind.ADAPTERS: (),
}
"""The faults that each kind of model shows."""


@contextmanager
def planted(fault: Planted | None) -> Iterator[None]:
    """The managers have the fault as long as this is open; none where it is None."""
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    if fault is None:
        yield
        return
    if fault is Planted.KEPT_KEY:
        changed: Any = mock.patch.object(BlockPool, "_maybe_evict_cached_block", _keep_key)
    else:
        name = "get_computed_blocks"
        wrapper = _spoiled(getattr(KVCacheManager, name), _spoiler(fault))
        changed = mock.patch.object(KVCacheManager, name, wrapper)
    with changed:
        yield


_Tables = list[list[Any]]
_Spoil = Callable[[Any, _Tables], None]


def _spoiler(fault: Planted) -> _Spoil:
    """What changes the block tables of a hit."""
    return _OtherBlock() if fault is Planted.OTHER_BLOCK else _null_block


def _spoiled(lookup: Callable[..., Any], spoil: _Spoil) -> Callable[..., Any]:
    """The lookup, with its hit changed by ``spoil``."""

    @wraps(lookup)
    def wrapper(manager: Any, *arguments: Any, **keywords: Any) -> Any:
        blocks, hit, *rest = lookup(manager, *arguments, **keywords)
        if hit:
            tables = [list(table) for table in blocks.blocks]
            spoil(manager, tables)
            blocks = type(blocks)(tuple(tables))
        return (blocks, hit, *rest)

    return wrapper


class _OtherBlock:
    """Serves what was served last for another prefix, as long as it has that content."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Any, Any]] = {}

    def __call__(self, manager: Any, tables: _Tables) -> None:
        del manager
        for group, table in enumerate(tables):
            if not table:
                continue
            block = table[-1]
            other, key = self._last.get(group, (None, None))
            self._last[group] = block, block.block_hash
            if other is not None and other.block_hash == key and other not in table:
                table[-1] = other


def _null_block(manager: Any, tables: _Tables) -> None:
    for single, table in zip(manager.coordinator.single_type_managers, tables, strict=True):
        held = [place for place, block in enumerate(table) if not block.is_null]
        if type(single).__name__ == "SlidingWindowManager" and held:
            table[held[0]] = manager.block_pool.null_block


def _keep_key(pool: Any, block: Any) -> bool:
    del pool
    if block.block_hash is None:
        return False
    block.reset_hash()
    return True

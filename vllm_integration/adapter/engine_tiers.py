"""The second tier of an engine: its KV connector, with what it keeps in memory of ours.

Scheduler and connector are the target's own. Workers copy nothing: they report each copy with the
step that asks for it. Imported in the worker process only.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hitproof.conformance.histories.workloads import Connector
from hitproof.conformance.subject.schedulers import HostResult
from hitproof.vllm_integration.adapter import chunks, mooncake
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.transfers import (
    SIMPLE,
    RunningConnector,
    RunningOffload,
    note_lookups,
)

PLAYED = (chunks.CONNECTOR, SIMPLE, mooncake.CONNECTOR)
"""The connectors whose transfers are played; others copy to other engines or to servers."""
_SPEC, _CPU = "spec_name", "CPUOffloadingSpec"
_LAZY = "lazy_offload"
_KNOWN = {
    *(_SPEC, "cpu_bytes_to_use", "cpu_bytes_to_use_per_rank", "num_cpu_blocks", "block_size"),
    *("blocks_per_chunk", "offload_prompt_only"),
}
"""The settings by which it is known what a tier stores."""


def why_not_played(config: Any) -> str:
    """Why the connector of a ``VllmConfig`` is not played; "" where it is, or where there is none.

    What the target does not have it refuses itself.
    """
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    transfer: Any = getattr(config, "kv_transfer_config", None)
    name = _name(config)
    known = name in attribute(KVConnectorFactory, "_registry")
    if name is None or not (known or getattr(transfer, "kv_connector_module_path", None)):
        return ""
    extra = transfer.kv_connector_extra_config or {}
    spec = extra.get(_SPEC, _CPU)
    if name == chunks.CONNECTOR and spec != _CPU:
        return f"the transfers of {spec} are not played; leave out {_SPEC}, or name {_CPU}"
    if extra.get(_LAZY):
        return f"what {_LAZY} stores depends on what is evicted meanwhile; leave it out"
    if name in PLAYED:
        return ""
    return (
        f"the transfers of {name} are not played, those of {', '.join(PLAYED)} are; name one of "
        "these with --kv-transfer-config, or leave the connector out"
    )


def prepare(asked: Any) -> None:
    """Import the connector that is asked for, where that takes packages which it does not use."""
    if _name(asked) == mooncake.CONNECTOR and mooncake.has_store():
        mooncake.importable()


def starting(config: Any) -> AbstractContextManager[None]:
    """While an engine is made whose connector asks a process of its own."""
    return mooncake.starting() if _name(config) == mooncake.CONNECTOR else nullcontext()


def _name(config: Any) -> str | None:
    name: str | None = getattr(getattr(config, "kv_transfer_config", None), "kv_connector", None)
    return name


def offloaded_blocks(config: Any, kv_cache_config: Any) -> int:
    """The blocks of host memory of SimpleCPUOffload, by its own scheduler's half."""
    from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
    from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
        SimpleCPUOffloadConnector,
    )

    made = SimpleCPUOffloadConnector(config, KVConnectorRole.SCHEDULER, kv_cache_config)
    return int(attribute(made.scheduler_manager, "num_cpu_blocks"))


class EngineTier:
    """The tier of one engine.

    Attributes:
        name: the class of its connector.
        chunk: blocks of a chunk; 0 where blocks are kept one by one.
        room: chunks or blocks that it has room for; None where another process has it.
        settled: whether its settings leave no doubt of what it stores.
        loaded: how many tokens it was asked to load for each request.
    """

    def __init__(self, config: Any, scheduler: Any) -> None:
        self._connector = connector = attribute(scheduler, "connector")
        self.name = type(connector).__name__
        self.chunk = 0
        self.room: int | None = None
        self._running: RunningConnector
        self._has: Callable[[int, bytes], bool] | None = None
        if self.name == mooncake.CONNECTOR:
            self._running = mooncake.RunningStore(scheduler, config, Connector(store=True))
        elif self.name == SIMPLE:
            self._running = RunningOffload(scheduler)
            manager = attribute(connector, "scheduler_manager")
            pool = attribute(manager, "cpu_block_pool")
            self.room = int(attribute(manager, "num_cpu_blocks"))
            self._has = lambda group, key: pool.get_cached_block(key, [group]) is not None
        else:
            self._running = offloading = chunks.RunningChunks(scheduler)
            self.chunk, self.room = offloading.chunk, offloading.room
            self._has = offloading.has_key
        extra = config.kv_transfer_config.kv_connector_extra_config or {}
        self.settled = extra.keys() <= _KNOWN
        self.loaded: dict[str, int] = {}
        self._reports: list[Any] = []

        def note(name: str, _: int, more: int | None) -> None:
            if more is not None:
                self.loaded[name] = more

        note_lookups(connector, note)

    def step(self, output: Any) -> bool:
        """Copy what a step asks for; whether there is anything."""
        told = self._running.step(output)
        loads = [each for each in told.copies if each.loads is not None]
        stores = [each for each in told.copies if each.loads is None]
        result = HostResult(
            done=tuple(each.number for each in stores),
            read=tuple(each.number for each in loads),
            loaded=tuple(name for each in loads for name in each.loads or ()),
        )
        self._reports.append(self._running.report(result))
        return bool(told.copies) or told.more

    def report(self) -> Any:
        """What workers report with the results of the first step whose report was not taken."""
        return self._reports.pop(0)

    def stored(self, group: int, keys: Sequence[bytes]) -> set[int]:
        """The places of the keys of a group that it can load."""
        has = self._has
        if has is None:
            cached = self._running.cached()
            return {place for place, key in enumerate(keys) if (group, bytes(key)) in cached}
        return {place for place, key in enumerate(keys) if has(group, key)}


def tier_of(config: Any, scheduler: Any) -> EngineTier | None:
    """The tier of an engine; None without a connector, or where that has turned itself off."""
    connector = getattr(scheduler, "connector", None)
    off = getattr(connector, "scheduler_manager", connector) is None
    return None if off else EngineTier(config, scheduler)

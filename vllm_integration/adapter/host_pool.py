"""The target's second pool, in host memory: HiSparse's groups, coordinator and connector.

Imported in the worker process only.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Deployment, HostPool
from hitproof.conformance.judge.event_descriptions import DEVICE, HOST
from hitproof.conformance.subject.managers import Cleared, Event, Tables
from hitproof.conformance.subject.schedulers import (
    HostResult,
    HostState,
    HostStep,
    Loading,
    Rows,
    Transfer,
)
from hitproof.vllm_integration.adapter.cache import VllmCache
from hitproof.vllm_integration.adapter.groups import kv_cache_spec
from hitproof.vllm_integration.adapter.inspection import attribute, call, must
from hitproof.vllm_integration.adapter.transfers import LOADING, set_connector

_SOURCE, INDEXER, _FIRST = 0, 1, 2
"""Groups by number: that of the host's pool, the indexer's, and the first of those with pages on
the device, which the hot ones follow."""
_POOLS: Mapping[int | None, str] = {_SOURCE: HOST, INDEXER: DEVICE}
_PACKAGE = "vllm.v1.hisparse"
_CONNECTOR = "HiSparseConnector"


def has_host_pools() -> bool:
    """Whether the target has them, and tells its workers which pages are resident."""
    if find_spec(_PACKAGE) is None:
        return False
    from vllm.distributed.kv_transfer.kv_connector.v1.hisparse import connector

    told = attribute(connector, "HiSparseConnectorMetadata").__annotations__
    return "residency_updates" in told


def connect(vllm_config: Any, host: HostPool) -> None:
    """Put the connectors of a host's pool into a configuration."""
    must(has_host_pools(), "has no host pool", "host")
    from vllm import config

    # Its size in bytes is not asked for where groups are given.
    own = {"kv_connector": _CONNECTOR, "kv_connector_extra_config": {"host_pool_gib": 1}}
    several = [each | {"kv_role": "kv_both"} for each in (own, LOADING)]
    made = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": several}}
    values = (made if host.loads else own) | {
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
    }
    set_connector(vllm_config, values)
    # Its publisher is found by the scheduler, and sends nothing.
    events = {"enable_kv_cache_events": True, "publisher": "null"}
    vllm_config.kv_events_config = call(
        attribute(config, "KVEventsConfig"), events, "KVEventsConfig"
    )
    vllm_config.attention_config = copy.copy(vllm_config.attention_config)
    hisparse = attribute(config.attention, "HiSparseConfig")
    vllm_config.attention_config.hisparse_config = hisparse(eager_host_mirror=host.writes_through)


def config_of(interface: ModuleType, deployment: Deployment, interval: int | None) -> Any:
    """The ``KVCacheConfig`` with the groups that the target lays out for a host's pool."""
    host = deployment.host
    assert host is not None
    group = deployment.groups[0]
    spec = kv_cache_spec(interface, group)
    roles = attribute(interface, "KVCacheGroupRole")
    made = attribute(interface, "KVCacheGroupSpec")
    sizes = {"block_size": group.block_size, "page_size": spec.page_size_bytes}
    resident = attribute(interface, "HiSparseResidentSpec")(**sizes)
    hot = attribute(interface, "HiSparseHotSpec")(**sizes, blocks_per_request=host.hot_blocks)
    groups = [
        made(["source"], spec, role=roles.HISPARSE_SOURCE, host_resident=True),
        made(["indexer"], spec, role=roles.HISPARSE_INDEXER),
    ]
    for name, its in (("resident", resident), ("hot", hot)):
        groups += [
            made([f"{name} {number}"], its, enable_kv_transfer=False)
            for number in range(host.resident_groups)
        ]
    values = {
        "num_blocks": deployment.num_gpu_blocks,
        "kv_cache_tensors": [],
        "kv_cache_groups": groups,
        "hisparse_host_num_blocks": host.num_blocks,
        "prefix_cache_retention_interval": interval,
    }
    return call(attribute(interface, "KVCacheConfig"), values, "KVCacheConfig")


class RunningHostPool:
    """The host's pool of one scheduler: what its workers are told, and what it holds."""

    def __init__(self, scheduler: Any, host: HostPool) -> None:
        self._host = host
        self._connector = attribute(scheduler, "connector")
        self._inner = getattr(self._connector, "_connectors", [self._connector])
        self._coordinator = attribute(self._inner[0], "connector_scheduler").coordinator
        self._pool = self._coordinator.get_host_block_pool()
        self._gpu = attribute(scheduler.kv_cache_manager, "block_pool")
        self._cache: VllmCache | None = None
        self._requests: Mapping[str, Any] = {}
        self._published: list[Any] = []
        attribute(scheduler, "kv_event_publisher").publish = self._publish

    def _publish(self, batch: Any) -> None:
        self._published += batch.events

    def bind(
        self, utils: ModuleType, engine: EngineConfiguration, requests: Mapping[str, Any]
    ) -> None:
        """Name the keys of the pool as those of ``requests``."""
        self._cache = VllmCache(utils, engine, self._pool, requests, False)
        self._requests = requests

    def has(self, name: str, tokens: int) -> None:
        """A KV connector has ``tokens`` tokens of a request."""
        if tokens:
            self._inner[1].tokens[name] = tokens

    def step(
        self, output: Any, tables: Mapping[str, Tables], name_of: Callable[[str], str]
    ) -> HostStep:
        """What workers are told for a step, in which requests have these new ``tables``.

        ``name_of`` has the name of a request of the target, for a session that of its input.
        """
        metadata = output.kv_connector_metadata
        metadata = getattr(metadata, "metadata", [metadata])[0]
        command = metadata.command
        groups = self._host.resident_groups
        asked: dict[str, tuple[int, int, Any]] = {}
        if self._host.loads:
            asked, self._inner[1].asked = self._inner[1].asked, {}
        return HostStep(
            {name_of(name): each[_SOURCE] for name, each in tables.items()},
            {name_of(name): each[_FIRST + groups :] for name, each in tables.items()},
            tuple((each.src_block_id, each.dst_block_id) for each in metadata.host_block_copies),
            tuple(
                Transfer(
                    each.transfer_id,
                    each.host_block_id,
                    tuple(each.resident_block_ids),
                    each.restore,
                )
                for each in (command.page_transfers if command is not None else ())
            ),
            tuple(
                Rows(tuple(each.source_starts), each.destination_start, each.num_rows)
                for of_request in metadata.row_mirrors.values()
                for each in of_request
            ),
            {
                name_of(name): dict(zip(each.pages, zip(*each.block_ids, strict=True), strict=True))
                for name, each in metadata.residency_updates.items()
            },
            metadata.all_context_pages_resident,
            {
                name: Loading(start, end, (tuple(ids[INDEXER]),), tuple(ids[_SOURCE]))
                for name, (start, end, ids) in asked.items()
            },
        )

    def report(self, result: HostResult) -> Any:
        """The target's form of what workers report; None where that is nothing."""
        from vllm.distributed.kv_transfer.kv_connector.v1.hisparse import connector
        from vllm.v1.outputs import KVConnectorOutput

        counts = dict.fromkeys(result.done, 1)
        own = connector.HiSparseConnectorWorkerMetadata(counts, dict(counts), result.copied)
        if self._host.loads:
            from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
                MultiKVConnectorWorkerMetadata,
            )

            own = MultiKVConnectorWorkerMetadata((own, None))
        return KVConnectorOutput(
            finished_recving=set(result.loaded) or None,
            failed_recving=set(result.failed),
            kv_connector_worker_meta=own,
        )

    def events(self) -> list[tuple[str, Event]]:
        """What was published since this was asked last, by the medium of its group's pool."""
        assert self._cache is not None
        for name in self._requests:
            self._cache.unit_keys(name)
        taken, self._published = self._cache.events(self._published), []
        return [
            (HOST, event)
            if isinstance(event, Cleared)
            else (_POOLS.get(event.group, HOST), replace(event, group=0))
            for event in taken
        ]

    @property
    def _room(self) -> int:
        each = 1 + self._host.resident_groups * (1 + self._host.hot_blocks)
        return int(min(self._gpu.get_num_free_blocks() // each, self._pool.get_num_free_blocks()))

    def state(self) -> HostState:
        """What the pool holds."""
        assert self._cache is not None
        return HostState(
            {key: ids for (_, key), ids in self._cache.cached().items()},
            frozenset(
                block.block_id for block in self._pool.blocks if block.ref_cnt and not block.is_null
            ),
            self._room,
        )

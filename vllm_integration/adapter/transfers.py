"""A KV connector of vLLM's own kind beside one scheduler, which does what a history says.

Imported in the worker process only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Connector, Reset
from hitproof.conformance.subject.schedulers import (
    HostAnswer,
    HostCopy,
    HostResult,
    Loading,
    Told,
    Transfers,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.cache import VllmCache
from hitproof.vllm_integration.adapter.inspection import attribute, call, must

LOADING = {
    "kv_connector": "LoadingConnector",
    "kv_connector_module_path": "hitproof.vllm_integration.adapter.loading",
}
"""Where vLLM finds the connector."""
LOOKUP = "get_num_new_matched_tokens"
_ARRIVAL = "on_new_request"
SIMPLE = "SimpleCPUOffloadConnector"
"""vLLM's connector that keeps single blocks in host memory."""
_NUM_OFFLOADED = "simple_cpu_offload_num_blocks"
_MULTI = "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector"


def set_connector(vllm_config: Any, values: dict[str, Any]) -> None:
    """Put a connector into a configuration, with its fields of ``KVTransferConfig``."""
    from vllm import config

    vllm_config.kv_transfer_config = call(
        attribute(config, "KVTransferConfig"), values, "KVTransferConfig"
    )


def connect_several(vllm_config: Any, made: Sequence[Any], load_failure: str) -> None:
    """Put several connectors into a configuration, of which ``made`` are the configurations."""
    must(tells_several_back(), "has several connectors whose workers report nothing", "beside")
    names = "kv_connector", "kv_role", "kv_connector_extra_config", "kv_connector_module_path"
    connectors = [
        {name: value for name in names if (value := getattr(each, name)) is not None}
        for each in made
    ]
    set_connector(
        vllm_config,
        {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"connectors": connectors},
            "kv_load_failure_policy": load_failure,
        },
    )


def tells_several_back() -> bool:
    """Whether what workers report gets to each of several connectors."""
    return hasattr(import_module(_MULTI), "MultiKVConnectorWorkerMetadata")


def connect(vllm_config: Any, connector: Connector, one_table: bool = False) -> None:
    """Put the connector into a configuration; it may be one that is given ``one_table`` alone."""
    if connector.offloads:
        must(offloads(), "keeps nothing in host memory that is judged", "offloads")
        sizes = {"num_cpu_blocks": connector.offloads, "cpu_bytes_to_use": 1 << 40}
        sizes["lazy_offload"] = connector.lazy
        made = {"kv_connector_extra_config": sizes, "kv_role": "kv_both"}
        set_connector(vllm_config, {"kv_connector": SIMPLE, **made})
        return
    # What a consumer has to send outlives no preemption: it need not be delivered.
    values = {
        **LOADING,
        **({"kv_connector": "OneTableConnector"} if one_table else {}),
        "kv_role": "kv_producer" if connector.produces else "kv_consumer",
        "kv_load_failure_policy": connector.load_failure,
    }
    set_connector(vllm_config, values)


def offloads() -> bool:
    """Whether a connector keeps blocks in host memory, of which start-up is told the number."""
    from vllm import config

    return hasattr(config.CacheConfig, _NUM_OFFLOADED)


def num_offloaded(vllm_config: Any) -> int | None:
    """The blocks of host memory in a configuration, as workers report them."""
    extra = getattr(vllm_config.kv_transfer_config, "kv_connector_extra_config", None) or {}
    of_each = [each.get("kv_connector_extra_config", {}) for each in extra.get("connectors", ())]
    found = (each.get("num_cpu_blocks") for each in (extra, *of_each))
    return next((int(each) for each in found if each is not None), None)


def reports_failed_loads() -> bool:
    """Whether a connector can report that a load has failed as a whole."""
    from vllm.v1.outputs import KVConnectorOutput

    return "failed_recving" in KVConnectorOutput.__dataclass_fields__


def connectable(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups without those that the release does not serve beside a connector, as it says."""
    from vllm.v1.core.sched.scheduler import Scheduler

    split = getattr(Scheduler, "_mamba_block_aligned_split", None)
    said = split.__code__.co_consts if split is not None else ()
    if any(isinstance(each, str) and "not verified" in each for each in said):
        groups = tuple(group for group in groups if group.kind is not GroupKind.MAMBA)
    # Up to 0.17 it takes the one table that there is.
    one = "block_ids" in Scheduler._update_waiting_for_remote_kv.__code__.co_varnames
    return groups[:1] if one else groups


def note_lookups(connector: Any, note: Callable[[str, int, int | None], None]) -> None:
    """From now on ``note`` is told of each lookup: request, local tokens, and what is answered.

    The answer is how many tokens more the connector has; None where it wants to be asked again.
    """
    real = attribute(connector, LOOKUP)

    def noted(request: Any, num_computed_tokens: int, *args: Any) -> tuple[int | None, bool]:
        answer: tuple[int | None, bool] = real(request, num_computed_tokens, *args)
        note(request.request_id, num_computed_tokens, answer[0])
        return answer

    setattr(connector, LOOKUP, noted)


class ToldConnector:
    """Follows what a scheduler tells its connector."""

    def __init__(self, connector: Any) -> None:
        self._told: list[Told] = []
        # Up to 0.21 it hears of a request when it is asked for it.
        self._heard: set[str] | None = None if hasattr(connector, _ARRIVAL) else set()
        for name, read in _CALLS.items():
            if hasattr(connector, name):
                self._follow(connector, name, read)

    def _follow(self, connector: Any, name: str, read: Callable[..., Told]) -> None:
        own = getattr(connector, name)

        def followed(*args: Any, **keywords: Any) -> Any:
            # The scheduler names some arguments, and calls others by place.
            told = read(*args, *keywords.values())
            if name == LOOKUP and self._heard is not None and told.request not in self._heard:
                self._heard.add(told.request)
                self._told.append(Told("arrival", told.request))
            place = len(self._told)
            self._told.append(told)
            answer = own(*args, **keywords)
            if name == LOOKUP:
                self._told[place] = replace(told, tokens=answer[0] or 0)
            return answer

        setattr(connector, name, followed)

    def taken(self) -> tuple[Told, ...]:
        """What it was told since this was asked last."""
        told, self._told = tuple(self._told), []
        return told


_CALLS: Mapping[str, Callable[..., Told]] = {
    _ARRIVAL: lambda request: Told("arrival", request.request_id),
    LOOKUP: lambda request, *_: Told("lookup", request.request_id),
    "update_state_after_alloc": lambda request, _, tokens: Told(
        "blocks", request.request_id, tokens
    ),
    "build_connector_meta": lambda _: Told("step"),
    "request_finished": lambda request, ids: Told("end", request.request_id, 0, (tuple(ids),)),
    "request_finished_all_groups": lambda request, ids: Told(
        "end", request.request_id, 0, tuple(map(tuple, ids))
    ),
}
"""What each call of a connector tells it."""


class RunningConnector:
    """The connector of one scheduler: what it is asked for, and what its workers report.

    Attributes:
        put_off: requests of which it could not say in the last step what it has.
    """

    def __init__(self, scheduler: Any) -> None:
        self._connector = attribute(scheduler, "connector")
        self.put_off: frozenset[str] = frozenset()

    def has(self, name: str, arrival: Arrival) -> None:
        """What it loads and sends of a request."""
        if arrival.load_fails:
            what = "reports no load that has failed as a whole"
            must(reports_failed_loads(), what, "load_fails")
        if arrival.loads:
            self._connector.tokens[name] = arrival.loads
        if arrival.load_steps is None:
            self._connector.at_once.add(name)
        if arrival.send_steps is not None:
            self._connector.sends.add(name)

    def step(self, output: Any) -> Transfers:
        """What it was asked for since the last step, whose ``output`` a scheduler gives."""
        del output
        connector = self._connector
        asked, connector.asked = connector.asked, {}
        ended, connector.ended = connector.ended, {}
        return Transfers(
            {
                name: Loading(start, end, tuple(map(tuple, tables)))
                for name, (start, end, tables) in asked.items()
            },
            {name: tuple(map(tuple, tables)) for name, tables in ended.items()},
        )

    def report(self, result: HostResult) -> Any:
        """The target's form of what its workers report."""
        from vllm.v1.outputs import KVConnectorOutput

        failed = {"failed_recving": set(result.failed)} if result.failed else {}
        return KVConnectorOutput(
            finished_sending=set(result.sent) or None,
            finished_recving=set(result.loaded) or None,
            invalid_block_ids=set(result.invalid),
            **failed,
        )

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """What it keeps in host memory, by its keys."""
        return {}

    @property
    def in_use(self) -> int:
        """Places in host memory that can be neither handed out nor evicted."""
        return 0

    @contextmanager
    def resetting(self, wanted: Reset) -> Iterator[list[bool | None]]:
        """While the cache is reset; what it answers when it is asked to forget what it has."""
        answers: list[bool | None] = []
        real = self._connector.reset_cache

        def recorded() -> bool | None:
            answers.append(real())
            return answers[-1]

        self._connector.refuses = wanted.connector_refuses
        self._connector.reset_cache = recorded
        try:
            yield answers
        finally:
            del self._connector.reset_cache


class RunningOffload(RunningConnector):
    """A connector of the target's own that keeps blocks in host memory."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._manager = attribute(self._connector, "scheduler_manager")
        self._cache: VllmCache | None = None
        self._answers: dict[str, HostAnswer] = {}

        def note(name: str, local: int, more: int | None) -> None:
            self._answers[name] = HostAnswer(local, more)

        note_lookups(self._connector, note)

    def bind(
        self, utils: ModuleType, engine: EngineConfiguration, requests: Mapping[str, Any]
    ) -> None:
        """Name the keys of its pool as those of ``requests``."""
        pool = attribute(self._manager, "cpu_block_pool")
        self._cache = VllmCache(utils, engine, pool, requests, True)

    def has(self, name: str, arrival: Arrival) -> None:
        """It has what it stored."""

    def step(self, output: Any) -> Transfers:
        """See `RunningConnector`."""
        told = output.kv_connector_metadata
        copies = []
        if told.load_event >= 0:
            blocks, host = tuple(told.load_gpu_blocks), tuple(told.load_cpu_blocks)
            names = tuple(told.load_event_to_reqs[told.load_event])
            copies.append(HostCopy(told.load_event, blocks, host, names))
        if told.store_event >= 0:
            blocks, host = tuple(told.store_gpu_blocks), tuple(told.store_cpu_blocks)
            copies.append(HostCopy(told.store_event, blocks, host))
        answers, self._answers = self._answers, {}
        return Transfers({}, {}, tuple(copies), bool(told.need_flush), answers=answers)

    def report(self, result: HostResult) -> Any:
        """See `RunningConnector`."""
        from vllm.v1.outputs import KVConnectorOutput
        from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

        own = SimpleCPUOffloadWorkerMetadata(dict.fromkeys(result.done, 1)) if result.done else None
        return KVConnectorOutput(
            finished_recving=set(result.loaded) or None, kv_connector_worker_meta=own
        )

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """See `RunningConnector`."""
        assert self._cache is not None
        return self._cache.cached()

    @property
    def in_use(self) -> int:
        """See `RunningConnector`. The null block is in use."""
        pool = attribute(self._manager, "cpu_block_pool")
        return int(pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())

"""vLLM's Mooncake connector beside one scheduler: its real worker, over a dictionary of values.

The native store has no part in what is judged: it keeps values under keys. The worker's threads are
not started. What is queued for them is done in the step in which workers report it, so that blocks
which are taken meanwhile show. Imported in the worker process only.
"""

import copy
import re
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import compress
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.subject.schedulers import HostCopy, HostResult, Transfers
from hitproof.vllm_integration.adapter.inspection import attribute, must
from hitproof.vllm_integration.adapter.transfers import (
    RunningConnector,
    note_lookups,
    reports_failed_loads,
    set_connector,
)

CONNECTOR = "MooncakeStoreConnector"
_STORE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
_PAGE = 64
"""Bytes of a block; any number would do."""
_RANK = re.compile(r"pp_rank:\d+")


def has_store() -> bool:
    """Whether the connector is there, with a coordinator of its own: from 0.22 on."""
    try:
        return find_spec(f"{_STORE}.coordinator") is not None
    except ModuleNotFoundError:
        return False


def connect_store(vllm_config: Any, connector: Connector) -> None:
    """Put the connector into a configuration."""
    importable()
    set_connector(
        vllm_config,
        {
            "kv_connector": CONNECTOR,
            "kv_role": "kv_both",
            "kv_load_failure_policy": connector.load_failure,
            "kv_connector_extra_config": {"save_decode_cache": connector.outputs},
        },
    )


def importable() -> None:
    """Import the worker: up to 0.27 with what serves over HTTP, which is not used."""
    with _modules({"uvicorn": ModuleType("uvicorn")}):
        import_module(f"{_STORE}.worker")


@contextmanager
def _modules(empty: Mapping[str, ModuleType]) -> Iterator[None]:
    """While modules that are not installed can be imported; what imports them stays imported."""
    absent = empty.keys() - sys.modules.keys()
    sys.modules.update({name: empty[name] for name in absent})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


class _Values:
    """The native store: which keys it has, and what is copied to and from them."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.copied: list[tuple[str, int]] = []
        self.unread: set[int] = set()
        """Blocks on the device for which no value can be read now."""
        self.failed: list[int] = []
        """Those of them for which one was asked for, and those of which a value is not kept."""
        self.write_failures = 0
        """How many more writes fail in part."""
        self.base = 0

    def register_buffer(self, base: int, length: int) -> int:
        """The memory of the device."""
        del length
        self.base = base
        return 0

    def setup(self, *_: Any, **__: Any) -> int:
        """It starts."""
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        """Which keys it has."""
        # What one pipeline rank has, each of the others has of its layers.
        return [int(_RANK.sub("pp_rank:0", key) in self.places) for key in keys]

    def batch_put_from_multi_buffers(
        self, keys: Sequence[str], addrs: Sequence[Sequence[int]], *_: Any
    ) -> list[int]:
        """Keep values."""
        fails = bool(self.write_failures)
        self.write_failures -= fails
        for key in keys[: len(keys) - fails]:
            self.places.setdefault(key, len(self.places) + 1)
        done = self._copy(keys, addrs)
        if fails:
            self.failed.append((addrs[-1][0] - self.base) // _PAGE)
        return done

    def batch_get_into_multi_buffers(
        self, keys: Sequence[str], addrs: Sequence[Sequence[int]], *_: Any
    ) -> list[int]:
        """Read values; -1 where there is none."""
        return self._copy(keys, addrs, self.unread)

    def _copy(
        self, keys: Sequence[str], addrs: Sequence[Sequence[int]], unread: Set[int] = frozenset()
    ) -> list[int]:
        blocks = [(places[0] - self.base) // _PAGE for places in addrs]
        done = [
            key in self.places and block not in unread
            for key, block in zip(keys, blocks, strict=True)
        ]
        self.copied += compress(zip(keys, blocks, strict=True), done)
        self.failed += [block for block in blocks if block in unread]
        return [1 if each else -1 for each in done]

    def remove_all(self, *_: Any, **__: Any) -> int:
        """Forget everything."""
        self.places = {}
        return 0


class _Replicate:
    """How values are replicated: not."""


class _Client:
    """What asks the worker for hits, without a socket in between."""

    worker: Any = None
    later = 0

    def __init__(self, *_: Any) -> None:
        """It is given a worker later."""
        self._asked = Counter[str]()

    def lookup(self, *args: Any, **_: Any) -> Any:
        """The worker's answer, which may not be there yet. Up to 0.23 the request is not named."""
        tokens, hashes = [each for each in args if not isinstance(each, str)][:2]
        name = next((each for each in args if isinstance(each, str)), None)
        if name is not None and self._asked[name] < self.later:
            self._asked[name] += 1
            return None
        return self.worker.lookup(tokens, hashes)

    def discard(self, name: str) -> None:
        """Nothing is on its way."""

    def reset(self) -> bool:
        """All values go."""
        self.worker.store.remove_all()
        return True

    def close(self) -> None:
        """There is nothing to close."""


@contextmanager
def starting() -> Iterator[None]:
    """While a scheduler is made with the connector, whose client has no server to ask yet."""
    with patch.object(import_module(f"{_STORE}.scheduler"), "LookupKeyClient", _Client):
        yield


class _Event:
    """A point in the order of the device's work, which is here that of the calls."""

    def record(self, *_: Any) -> None:
        """It is reached."""

    def synchronize(self) -> None:
        """It was."""


def _worker(vllm_config: Any, kv_cache_config: Any) -> Any:
    """The real worker of one rank, whose threads are not started."""
    module = import_module(f"{_STORE}.worker")
    native = ModuleType("mooncake.store")
    vars(native).update(MooncakeDistributedStore=_Values, ReplicateConfig=_Replicate)
    facts = SimpleNamespace(world_size=1, rank_in_group=0)
    settings = defaultdict[str, Any](int, mode="embedded", enable_offload=False, tenant_id="")
    one = SimpleNamespace(**dict.fromkeys(_SETTINGS, 0) | settings)
    stand_ins: dict[str, Any] = {
        "get_tensor_model_parallel_rank": lambda: 0,
        "get_tensor_model_parallel_world_size": lambda: 1,
        "get_pcp_group": lambda: facts,
        "get_dcp_group": lambda: facts,
        "get_ip": lambda: "",
        "setup_mooncake_store": lambda *_: None,
        "rdma_utils": SimpleNamespace(
            get_requester_local_hostname=lambda _: "",
            get_configured_preferred_segment=lambda _: None,
            get_configured_worker_rnic=lambda **_: "",
        ),
        "LookupKeyServer": lambda *_: None,
        "MooncakeStoreConfig": SimpleNamespace(
            load_from_config=lambda: one, load_from_env=lambda: one
        ),
    }
    with ExitStack() as stack:
        modules = {"mooncake": ModuleType("mooncake"), "mooncake.store": native}
        stack.enter_context(_modules(modules))
        for name, value in stand_ins.items():
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, value))
        thread = attribute(module, "KVTransferThread")
        stack.enter_context(patch.object(thread, "start", lambda self: self.ready_event.set()))
        model = vllm_config.model_config
        for name, value in {"get_num_layers": lambda _: 1, "model": "m"}.items():
            vars(model).setdefault(name, value)
        made = attribute(module, "MooncakeStoreWorker")(vllm_config, kv_cache_config)
        import torch

        memory = torch.zeros(vllm_config.cache_config.num_gpu_blocks, _PAGE, dtype=torch.int8)
        layers = [name for each in kv_cache_config.kv_cache_groups for name in each.layer_names]
        made.register_kv_caches(dict.fromkeys(layers, memory))
    return made


_SETTINGS = (
    *("protocol", "device_name", "metadata_server", "global_segment_size", "local_buffer_size"),
    *("master_server_address", "local_hostname"),
)


class RunningStore(RunningConnector):
    """The Mooncake connector beside one scheduler, with its real worker.

    What a step queues is done ``delay`` steps later.
    """

    def __init__(self, scheduler: Any, vllm_config: Any, connector: Connector) -> None:
        super().__init__(scheduler)
        config = scheduler.kv_cache_config
        self._worker = _worker(vllm_config, config)
        self._values: _Values = self._worker.store
        self._values.write_failures = connector.write_failures
        half = attribute(self._connector, "connector_scheduler")
        self._client = attribute(half, "client")
        self._client.worker = self._worker
        # Releases that wait for the answer have no such setting.
        self._client.later = connector.later if hasattr(half, "lookup_async") else 0
        self._fails: dict[str, tuple[int, ...]] = {}
        self._delay, self._step, self._numbers = connector.delay, 0, 0
        self._put_off = set[str]()

        def note(name: str, _: int, more: int | None) -> None:
            if more is None:
                self._put_off.add(name)

        note_lookups(self._connector, note)
        self._queued: deque[tuple[int, Any, Any]] = deque()
        self._reports: deque[Any] = deque()
        self._groups = [
            number
            for number, group in enumerate(config.kv_cache_groups)
            if getattr(group.kv_cache_spec, "prefix_cacheable", True)
        ]

    def has(self, name: str, arrival: Arrival) -> None:
        """It has what it stored, of which some cannot be read once."""
        if arrival.invalid_blocks:
            what = "reports no load that has failed as a whole"
            must(len(self._groups) == 1 or reports_failed_loads(), what, "invalid_blocks")
            self._fails[name] = arrival.invalid_blocks

    def step(self, output: Any) -> Transfers:
        """See `RunningConnector`. The queue is processed in order, for all requests."""
        import torch

        told, worker = output.kv_connector_metadata, self._worker
        self._step += 1
        with patch.object(torch.cuda, "Event", _Event):
            worker.start_load_kv(told)
            worker.wait_for_save(told)
            first = worker.get_finished(set(output.finished_req_ids), told)
        for thread in self._threads():
            while not thread.request_queue.empty():
                item = thread.request_queue.get()
                self._queued.append((self._step, thread, item))
        copies = []
        while self._queued and self._queued[0][0] <= self._step - self._delay:
            _, thread, item = self._queued.popleft()
            loads = "Recv" in type(thread).__name__
            fails = self._fails.pop(item.req_id, ()) if loads else ()
            unread = {t[place] for t in item.block_ids for place in fails if place < len(t)}
            self._values.unread = unread
            with suppress(Exception):  # a thread logs them, and goes on
                thread._handle_request(item)
            copies.append(self._copy(item.req_id, loads))
        nothing = copy.copy(told)
        nothing.requests, nothing.preempted_req_ids = [], set()
        failed: dict[str, set[str]] = {}
        if hasattr(worker, "get_transfer_results"):
            told = worker.get_transfer_results(set(), nothing)
            then = told.finished_sending, told.finished_recving
            failed = {"failed_recving": told.failed_recving}
        else:
            then = worker.get_finished(set(), nothing)
        self._reports.append(replace(self._report(first, then), **failed))
        self.put_off, self._put_off = frozenset(self._put_off), set()
        return Transfers({}, {}, tuple(copies), more=bool(self._queued))

    def _threads(self) -> list[Any]:
        """Those that would work beside the engine."""
        held = vars(self._worker)
        receiving = held.get("kv_recv_threads") or [held.get("kv_recv_thread")]
        return [each for each in (held.get("kv_send_thread"), *receiving) if each is not None]

    def _copy(self, name: str, loads: bool) -> HostCopy:
        copied, self._values.copied = self._values.copied, []
        failed, self._values.failed = tuple(self._values.failed), []
        self._numbers += 1
        blocks = tuple(block for _, block in copied)
        places = tuple(self._values.places[key] for key, _ in copied)
        whose = (name,) if loads else None
        return HostCopy(self._numbers, blocks, places, whose, failed, name)

    def _report(self, *finished: tuple[set[str] | None, set[str] | None]) -> Any:
        from vllm.v1.outputs import KVConnectorOutput

        worker = self._worker
        sent = set[str]().union(*(each[0] or () for each in finished))
        loaded = set[str]().union(*(each[1] or () for each in finished))
        values: dict[str, Any] = {
            "finished_sending": sent or None,
            "finished_recving": loaded or None,
            "invalid_block_ids": worker.get_block_ids_with_load_errors(),
        }
        if hasattr(worker, "build_connector_worker_meta"):
            values["kv_connector_worker_meta"] = worker.build_connector_worker_meta()
        return KVConnectorOutput(**values)

    def report(self, result: HostResult) -> Any:
        """See `RunningConnector`. What workers report is their own."""
        del result
        return self._reports.popleft()

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """See `RunningConnector`."""
        found: dict[tuple[int, Any], tuple[int, ...]] = {}
        for key, place in self._values.places.items():
            *_, group, digest = key.split("@")
            number = self._groups[int(group.removeprefix("group:"))]
            found[number, bytes.fromhex(digest)] = (place,)
        return found

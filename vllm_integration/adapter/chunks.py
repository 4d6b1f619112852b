"""The jobs of vLLM's offloading connector, which copies chunks of several blocks.

Imported in the worker process only.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.subject.schedulers import HostAnswer, HostCopy, HostResult, Transfers
from hitproof.spec.groups import Group
from hitproof.vllm_integration.adapter.inspection import attribute, must
from hitproof.vllm_integration.adapter.transfers import (
    RunningConnector,
    note_lookups,
    set_connector,
)

CONNECTOR = "OffloadingConnector"
_CHUNK_NAMES = ("blocks_per_chunk", "block_size_factor")
_ROOM = ("_num_chunks", "_num_blocks")
_MANAGER = "vllm.v1.kv_offload.cpu.manager"
_PAGE, _HOST = 9, 1 << 40
"""Bytes of a block: a number that all copy in the same way; and where host memory starts."""


def offloads_chunks() -> bool:
    """Whether the connector and its pool are there as they are judged: from 0.22 on."""
    try:
        return find_spec(_MANAGER) is not None and find_spec(f"{_MANAGER[:-7]}common") is not None
    except ModuleNotFoundError:
        return False


def connect_chunks(
    vllm_config: Any,
    groups: Sequence[Group],
    chunk: int,
    num_chunks: int = 0,
    outputs: bool = False,
    ranks: int = 1,
    **pool: Any,
) -> None:
    """Put the connector into a configuration, for chunks of ``chunk`` blocks.

    Blocks are shared by ``ranks`` ranks of context parallelism.

    Without ``num_chunks`` its backend has what it is asked for
    (`vllm_integration.adapter.offloads`), with it vLLM's own pool of host memory. With ``outputs``
    not only prompts are offloaded. ``pool`` has options of that pool.
    """
    sizes = {group.block_size for group in groups}
    # Releases without chunks of blocks of several sizes take tokens.
    one = {"block_size": chunk * min(sizes) * ranks}
    extra = {
        "spec_name": "OffloadsSpec",
        "spec_module_path": "hitproof.vllm_integration.adapter.offloads",
        "num_chunks": num_chunks,
        "pool": pool,
        "offload_prompt_only": not outputs,
        **(one if len(sizes) == 1 else {"blocks_per_chunk": chunk}),
    }
    set_connector(
        vllm_config,
        {"kv_connector": CONNECTOR, "kv_role": "kv_both", "kv_connector_extra_config": extra},
    )


def eviction_of(connector: Connector) -> dict[str, Any]:
    """The options of the target's pool that say what is stored, and what makes room."""
    options: dict[str, Any] = {}
    if connector.eviction != "lru":
        options["cache_policy"] = connector.eviction
    if connector.threshold:
        must(counts_offers(), "does not count how often chunks are offered", "threshold")
        options["store_threshold"] = connector.threshold
    return options


def counts_offers() -> bool:
    """Whether chunks are stored when they were offered often enough: from 0.29 on."""
    manager = import_module(_MANAGER).CPUOffloadingManager
    return any(hasattr(manager, name) for name in ("_record_access", "_record_accesses"))


def chunk_of(half: Any) -> int:
    """The blocks of a chunk, as the scheduler's half of the connector has it."""
    told: int = next(value for n in _CHUNK_NAMES if (value := getattr(half.config, n, None)))
    return told


def ends_of(job: Any) -> tuple[Any, Any]:
    """The source and the target of a job's copies."""
    if hasattr(job, "transfer_spec"):
        source, target = job.transfer_spec
        return source, target
    return job.src_spec, job.dst_spec


class _Memory:
    """Rows of pages of the device, or of the host, as what copies them knows them."""

    is_cuda, ndim, device = True, 2, SimpleNamespace(type="cpu")

    def __init__(self, pages: int, start: int) -> None:
        import torch

        self.dtype, self.shape, self._start = torch.int8, (0, pages * _PAGE), start

    def data_ptr(self) -> int:
        """Where the first row is."""
        return self._start

    def stride(self, _: int) -> int:
        """Bytes of a row."""
        return self.shape[1]


class _Order:
    """Streams, events and what has them: the device's work is in the order of the calls."""

    def __getattr__(self, _: str) -> "_Order":
        return self

    def __call__(self, *_: Any, **__: Any) -> "_Order":
        return self

    def __enter__(self) -> "_Order":
        return self

    def __exit__(self, *_: object) -> None:
        """It is the device that there is."""

    def __bool__(self) -> bool:
        return False


class Copies:
    """The target's own copying between blocks and chunks, up to the addresses."""

    def __init__(self, chunk: int, groups: int) -> None:
        self._module = import_module("vllm.v1.kv_offload.cpu.gpu_worker")
        made = attribute(self._module, "SingleDirectionOffloadingHandler")
        page = SimpleNamespace(tensor_idx=0, page_size_bytes=_PAGE, mapping=None)
        memory = [_Memory(1, 0)], [_Memory(chunk, _HOST)]
        with self._patched():
            self._handlers = [made(*memory, chunk, [[page]] * groups, s) for s in (False, True)]
        self._copied: list[tuple[int, int]] = []

    def of(self, job: Any, *, stores: bool) -> list[tuple[int, int]]:
        """For each block that a job copies: its number, and its place in host memory, from 0."""
        real: Any = self._handlers[stores]
        real._stream_pool, real._event_pool = [_Order()], [_Order(), _Order()]
        with self._patched():
            whole = hasattr(job, "transfer_spec")
            real.transfer_async(0, *((job.transfer_spec,) if whole else ends_of(job)))
        real._transfers.clear()
        copied, self._copied = self._copied, []
        return copied if stores else [(block, place) for place, block in copied]

    def _swap(self, sources: Any, targets: Any, *_: Any, **__: Any) -> None:
        ends = zip(sources.tolist(), targets.tolist(), strict=True)
        self._copied = [(source % _HOST // _PAGE, to % _HOST // _PAGE) for source, to in ends]

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """While there are streams, and what is copied is noted."""
        import torch

        with (
            patch.object(self._module.ops, "swap_blocks_batch", self._swap, create=True),
            patch.object(self._module, "current_platform", _Order(), create=True),
            patch.object(self._module, "PIN_MEMORY", False, create=True),
            patch.object(self._module, "is_pin_memory_available", lambda: False, create=True),
            patch.object(torch, "cuda", _Order()),
        ):
            yield


def reported(jobs: Sequence[int], loaded: Sequence[str]) -> Any:
    """What workers report: jobs that are done, and the requests whose loads are."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
        OffloadingWorkerMetadata,
    )
    from vllm.v1.outputs import KVConnectorOutput

    done = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(jobs, 1))
    return KVConnectorOutput(finished_recving={*loaded} or None, kv_connector_worker_meta=done)


class _Worker:
    """The target's own worker of the offloading connector, over a backend that copies nothing."""

    def __init__(self) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading import worker

        own = attribute(worker, "OffloadingConnectorWorker")
        self._real = object.__new__(own)
        vars(self._real).update(worker=self, _unsubmitted_store_jobs=[], _is_store_writer=True)
        self._submitted = set[int]()
        self._awaited = set[int]()

    def flushed(self, told: Any) -> frozenset[int]:
        """The stores that a step with this metadata has made before it computes."""
        self._awaited.clear()
        step = replace(told, store_jobs=dict(told.store_jobs))
        self._real.handle_preemptions(step)
        self._real.prepare_store_kv(step)
        return frozenset(self._awaited)

    def submit_store(self, number: int, *_: Any) -> bool:
        """A store begins."""
        self._submitted.add(number)
        return True

    transfer_async = submit_store

    def wait(self, numbers: Iterable[int]) -> None:
        """Await the stores among them that have begun."""
        self._awaited |= self._submitted.intersection(numbers)


class RunningChunks(RunningConnector):
    """The offloading connector beside one scheduler, over the target's own pool of host memory.

    Attributes:
        chunk: blocks of a chunk.
    """

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._half = attribute(self._connector, "connector_scheduler")
        self.chunk = chunk_of(self._half)
        self._worker = _Worker()
        self._copies = Copies(self.chunk, len(self._half.config.kv_group_configs))
        self._answers: dict[str, HostAnswer] = {}

        def note(name: str, local: int, more: int | None) -> None:
            self._answers[name] = HostAnswer(local, more)

        note_lookups(self._connector, note)

    def has(self, name: str, arrival: Arrival) -> None:
        """It has what it stored."""

    def step(self, output: Any) -> Transfers:
        """See `RunningConnector`."""
        answers, self._answers = self._answers, {}
        self.put_off = frozenset(name for name, each in answers.items() if each.more is None)
        told = output.kv_connector_metadata
        copies = [self._copy(number, job, loads=True) for number, job in told.load_jobs.items()]
        copies += [self._copy(number, job, loads=False) for number, job in told.store_jobs.items()]
        flushed = self._worker.flushed(told)
        calls = getattr(attribute(self._half, "manager"), "calls", [])  # a deployment's has none
        pool = tuple(calls)
        calls.clear()
        return Transfers({}, {}, tuple(copies), flushed=flushed, answers=answers, pool=pool)

    @property
    def room(self) -> int:
        """The chunks that host memory has room for."""
        manager = attribute(self._half, "manager")
        return int(next(value for n in _ROOM if (value := getattr(manager, n, None)) is not None))

    @property
    def in_use(self) -> int:
        """See `RunningConnector`."""
        return int(attribute(self._half, "manager").in_use)

    def has_key(self, group: int, key: bytes) -> bool:
        """Whether a chunk whose last block has that hash can be loaded."""
        from vllm.v1.kv_offload import base

        policy = attribute(attribute(self._half, "manager"), "_policy")
        found = policy.get(attribute(base, "make_offload_key")(key, group))
        return found is not None and bool(found.is_ready)

    def _copy(self, number: int, job: Any, *, loads: bool) -> HostCopy:
        copied = self._copies.of(job, stores=not loads)
        blocks, places = [block for block, _ in copied], [1 + place for _, place in copied]
        return HostCopy(number, (*blocks,), (*places,), (job.req_id,) if loads else None)

    def report(self, result: HostResult) -> Any:
        """See `RunningConnector`."""
        return reported([*result.done, *result.read], result.loaded)

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """See `RunningConnector`. The key of a chunk is that of its last block."""
        last = self.chunk - 1
        return {
            key: (1 + place * self.chunk + last,)
            for key, place in attribute(self._half, "manager").stored().items()
        }

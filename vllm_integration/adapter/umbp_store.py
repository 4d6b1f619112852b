"""vLLM's UMBP connector beside one scheduler: its real worker, over a dictionary of values.

The native store has no part in what is judged: it keeps values under keys. What a step asks for is
copied when workers see that it is done, so that blocks which are taken meanwhile show. Imported in
the worker process only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.subject.schedulers import HostCopy, HostResult, Transfers
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.transfers import RunningConnector, set_connector

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.umbp"
"""Where vLLM has the connector."""
CONNECTOR = "UMBPStoreConnector"


def has_umbp() -> bool:
    """Whether the connector is there: from 0.33 on."""
    return find_spec(PACKAGE) is not None


def connect_umbp(vllm_config: Any, connector: Connector) -> None:
    """Put the connector into a configuration."""
    set_connector(
        vllm_config,
        {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": f"{PACKAGE}.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": connector.load_failure,
            "kv_connector_extra_config": {
                "key_namespace": "judged",
                "save_decode_cache": connector.outputs,
                "enable_partial_hash_hits": True,
            },
        },
    )


def named(key: str) -> tuple[int, bytes]:
    """The group that a key names, and the hash of the block."""
    *_, group, digest = key.split(":")
    return int(group.removeprefix("g")), bytes.fromhex(digest)


@contextmanager
def starting() -> Iterator[None]:
    """While a scheduler is made with the connector, whose store is here a dictionary."""
    factory = attribute(import_module(f"{PACKAGE}.runtime"), "UMBPRuntimeFactory")
    with patch.object(factory, "build", lambda *_: _Values()):
        yield


class _Values:
    """The native store, for scheduler and worker: which keys it has, and what is under way.

    Attributes:
        places: where it keeps the value of each key.
        delay: after how many more steps what a step begins is done.
        fails: for requests, which values of a load cannot be read, once.
    """

    def __init__(self) -> None:
        data = import_module(f"{PACKAGE}.data")
        self._job: Any = attribute(data, "TransferJobState")
        self.places: dict[str, int] = {}
        self.delay = 0
        self.fails: dict[str, tuple[int, ...]] = {}
        self._begun: dict[int, tuple[int, bool]] = {}
        self._copied: list[HostCopy] = []
        self._made: dict[str, int] = {}
        self._step = self._numbers = 0

    def create_scheduler_handle(self, *_: Any) -> "_Values":
        """What the scheduler asks."""
        return self

    def new_step_starts(self) -> None:
        """From now on another step is run."""
        self._step += 1

    @property
    def is_busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._begun)

    def copied(self) -> tuple[HostCopy, ...]:
        """What was copied since this was last asked."""
        found, self._copied = self._copied, []
        return tuple(found)

    def lookup(self, keys: Sequence[str]) -> list[bool]:
        """Whether it has each key."""
        return [key in self.places for key in keys]

    def clear(self) -> bool:
        """Forget everything."""
        self.places = {}
        return True

    def store(self, plans: Sequence[Any], loads: bool = False) -> Any:
        """Begin to write values."""
        job = self._job(tuple(plans))
        job.start()
        self._begun[id(job)] = self._step, loads
        return job

    def load(self, plans: Sequence[Any]) -> Any:
        """Begin to read values."""
        return self.store(plans, loads=True)

    def poll(self, job: Any) -> Any:
        """The job if it is done by now."""
        begun, _ = self._begun.get(id(job), (0, False))
        return self.wait(job) if begun <= self._step - self.delay else None

    def wait(self, job: Any) -> Any:
        """The job once it is done."""
        if id(job) not in self._begun:
            return job
        _, loads = self._begun.pop(id(job))
        names = tuple({plan.request_id: None for plan in job.plans})
        unread = self.fails.pop(names[0], ()) if loads else ()
        failed = [
            plan
            for number, plan in enumerate(job.plans)
            if loads and (number in unread or plan.key not in self.places)
        ]
        done = [plan for plan in job.plans if plan not in failed]
        for plan in done:
            self._made.setdefault(plan.key, len(self._made) + 1)
        self._numbers += 1
        blocks, places = [plan.block_id for plan in done], [self._made[p.key] for p in done]
        spoilt = tuple(plan.block_id for plan in failed)
        self._copied.append(
            HostCopy(self._numbers, (*blocks,), (*places,), names if loads else None, spoilt)
        )
        if failed:
            job.fail([plan.key for plan in failed], "they cannot be read")
        if done:
            job.complete([plan.key for plan in done])
        return job

    def cancel(self, job: Any) -> Any:
        """The job, of which nothing is copied any more."""
        if self._begun.pop(id(job), None) is not None:
            job.cancel()
        return job

    def publish(self, job: Any) -> None:
        """From now on it has what was written."""
        self.places |= {plan.key: self._made[plan.key] for plan in job.plans}


class RunningUmbp(RunningConnector):
    """The UMBP connector beside one scheduler, with its real worker."""

    def __init__(self, scheduler: Any, connector: Connector) -> None:
        super().__init__(scheduler)
        half = attribute(self._connector, "connector_scheduler")
        half.enable_kv_cache_events = False  # a thread of its own looks for what they tell
        self._values: _Values = half.runtime
        self._values.delay = connector.delay
        groups = scheduler.kv_cache_config.kv_cache_groups
        self._worker = attribute(import_module(f"{PACKAGE}.worker"), "UMBPStoreConnectorWorker")(
            self._values, codec=half.codec, report_failed_requests=len(groups) > 1
        )

    def has(self, name: str, arrival: Arrival) -> None:
        """It has what it stored, of which some cannot be read once."""
        if arrival.invalid_blocks:
            self._values.fails[name] = arrival.invalid_blocks

    def step(self, output: Any) -> Transfers:
        """See `RunningConnector`."""
        told, worker = output.kv_connector_metadata, self._worker
        self._values.new_step_starts()
        worker.handle_preemptions(told)
        worker.start_load_kv(None, told)
        worker.enqueue_stores(told)
        worker.wait_for_save()
        _, self._loaded = worker.get_finished(set(output.finished_req_ids))
        return Transfers({}, {}, self._values.copied(), more=self._values.is_busy)

    def report(self, result: HostResult) -> Any:
        """See `RunningConnector`. What workers report is their own."""
        from vllm.v1.outputs import KVConnectorOutput

        del result
        worker = self._worker
        return KVConnectorOutput(
            finished_recving=self._loaded,
            failed_recving=worker.get_failed_recving(),
            invalid_block_ids=worker.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=worker.build_connector_worker_meta(),
        )

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """See `RunningConnector`."""
        return {named(key): (place,) for key, place in self._values.places.items()}

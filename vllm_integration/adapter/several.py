"""Several connectors beside one scheduler: vLLM's own, which asks each in turn.

Imported in the worker process only.
"""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.subject.schedulers import HostResult, Transfers
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.transfers import RunningConnector, note_lookups


class RunningSeveral(RunningConnector):
    """vLLM's ``MultiConnector``: the half of the scheduler, and that of its workers."""

    def __init__(
        self, scheduler: Any, num_groups: int, one: Callable[[int, Any], RunningConnector]
    ) -> None:
        super().__init__(scheduler)
        self._groups = num_groups
        config = scheduler.kv_cache_config
        self._each = [
            one(place, SimpleNamespace(connector=inner, kv_cache_config=config))
            for place, inner in enumerate(attribute(self._connector, "_connectors"))
        ]
        self._first: dict[str, int] = {}
        for place, inner in enumerate(self._connector._connectors):
            note_lookups(inner, partial(self._asked, place))
        # What it gathers of its workers is its own; these only say what theirs report.
        self._told = [_Worker() for _ in self._each]
        self._workers: Any = object.__new__(type(self._connector))
        self._workers._connectors = self._told
        self._workers._extra_async_saves = {}

    def _asked(self, place: int, name: str, _: int, more: int | None) -> None:
        if place == 0:
            self._first.pop(name, None)
        if more:
            self._first.setdefault(name, place)

    def has(self, name: str, arrival: Arrival) -> None:
        """See `RunningConnector`."""
        for each in self._each:
            each.has(name, arrival)

    def step(self, output: Any) -> Transfers:
        """See `RunningConnector`."""
        told = output.kv_connector_metadata
        self._workers.bind_connector_metadata(told)
        asked = []
        for each, of_it in zip(self._each, told.metadata, strict=True):
            seen = copy.copy(output)
            seen.kv_connector_metadata = of_it
            asked.append(each.step(seen))
        self.put_off = frozenset[str]().union(*(each.put_off for each in self._each))
        loads = {name: load for each in asked for name, load in each.loads.items()}
        sends = {name: sent for each in asked for name, sent in each.sends.items()}
        return Transfers(loads, sends, several=tuple(asked), first=dict(self._first))

    def report(self, result: HostResult) -> Any:
        """See `RunningConnector`."""
        from vllm.v1.outputs import KVConnectorOutput

        for worker, each, of_it in zip(self._told, self._each, result.several, strict=True):
            worker.says = each.report(of_it)
        found: dict[str, Any] = {}
        if hasattr(self._workers, "get_transfer_results"):
            done = self._workers.get_transfer_results(set())
            found["failed_recving"] = done.failed_recving
            sent, loaded = done.finished_sending, done.finished_recving
        else:
            sent, loaded = self._workers.get_finished(set())
        return KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving=loaded or None,
            invalid_block_ids=self._workers.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=self._workers.build_connector_worker_meta(),
            **found,
        )

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """What each keeps; the groups of the second follow those of the first, and so on."""
        return {
            (place * self._groups + group, key): ids
            for place, each in enumerate(self._each)
            for (group, key), ids in each.cached().items()
        }

    @property
    def in_use(self) -> int:
        """See `RunningConnector`."""
        return sum(each.in_use for each in self._each)


class _Worker:
    """The worker's half of one of them, which has reported."""

    says: Any = None

    def bind_connector_metadata(self, told: Any) -> None:
        """It was told."""

    def get_finished(self, finished: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """What is sent, and loaded."""
        del finished
        return self.says.finished_sending, self.says.finished_recving

    def get_transfer_results(self, finished: set[str]) -> Any:
        """What is sent, and loaded, and what of that has failed."""
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults

        sent, loaded = self.get_finished(finished)
        return KVConnectorTransferResults(
            sent or set(), loaded or set(), set(self.says.failed_recving)
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks whose load has failed."""
        return set(self.says.invalid_block_ids)

    def build_connector_worker_meta(self) -> Any:
        """What else it reports."""
        return self.says.kv_connector_worker_meta

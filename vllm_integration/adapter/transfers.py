"""A KV connector of vLLM's own kind beside one scheduler, which does what a history says.

Imported in the worker process only.
"""

from typing import Any

from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.schedulers import HostResult, Loading, Transfers
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, call

LOADING = {
    "kv_connector": "LoadingConnector",
    "kv_connector_module_path": "hitproof.vllm_integration.adapter.loading",
}
"""Where vLLM finds the connector."""


def connect(vllm_config: Any, connector: Connector) -> None:
    """Put the connector into a configuration."""
    from vllm import config

    # What it has to send outlives no preemption: it need not be delivered.
    values = {
        **LOADING,
        "kv_role": "kv_consumer",
        "kv_load_failure_policy": connector.load_failure,
    }
    vllm_config.kv_transfer_config = call(
        attribute(config, "KVTransferConfig"), values, "KVTransferConfig"
    )


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


class RunningConnector:
    """The connector of one scheduler: what it is asked for, and what its workers report."""

    def __init__(self, scheduler: Any) -> None:
        self._connector = attribute(scheduler, "connector")

    def has(self, name: str, arrival: Arrival) -> None:
        """What it loads and sends of a request."""
        if arrival.load_fails and not reports_failed_loads():
            raise CannotJudge(
                "this release reports no load that has failed as a whole; leave load_fails out, or "
                "name a later release"
            )
        if arrival.loads:
            self._connector.tokens[name] = arrival.loads
        if arrival.load_steps is None:
            self._connector.at_once.add(name)
        if arrival.send_steps is not None:
            self._connector.sends.add(name)

    def step(self) -> Transfers:
        """What it was asked for since the last step."""
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

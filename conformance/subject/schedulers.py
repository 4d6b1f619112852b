"""Schedulers as subjects: what one is asked, and what each of its steps tells a model runner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Deployment
from hitproof.conformance.subject.managers import Tables


class StartupRefused(Exception):
    """The target's own start-up validation refuses the deployment; the message is its reason."""


@dataclass(frozen=True)
class Scheduled:
    """One request in a step.

    Attributes:
        request: its name.
        start: how many of its tokens the scheduler takes for computed.
        num_tokens: how many tokens are computed, drafts included.
        num_drafts: how many of these are drafts.
        blocks: for each group the blocks that are new in its table, or the whole table.
        whole: whether ``blocks`` is the whole table, as when a request is admitted or resumed.
        first: whether the request is scheduled for the first time.
    """

    request: str
    start: int
    num_tokens: int
    num_drafts: int
    blocks: Tables
    whole: bool
    first: bool


@dataclass(frozen=True)
class Plan:
    """One step as a model runner is told it. vLLM: ``SchedulerOutput``.

    Attributes:
        scheduled: the requests that are computed.
        finished: requests whose state the model runner forgets.
        preempted: those that were preempted since the last step, where that is said.
        copies: blocks to copy before the step computes, as pairs of source and target.
        handle: what the target needs to take the step's result up.
    """

    scheduled: tuple[Scheduled, ...]
    finished: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    handle: Any = field(default=None, compare=False, repr=False)

    @property
    def num_tokens(self) -> int:
        """All tokens of the step."""
        return sum(each.num_tokens for each in self.scheduled)


@dataclass(frozen=True)
class PoolState:
    """What a scheduler's manager holds.

    Attributes:
        cached: the blocks that each key of a group finds.
        free: how many blocks are free, the null block not counted.
        held: the blocks with references.
    """

    cached: Mapping[tuple[int, Any], tuple[int, ...]]
    free: int
    held: frozenset[int]


class RunningScheduler(Protocol):
    """A scheduler that was started.

    Attributes:
        engine: the configuration that the target has derived from the deployment.
        batches: how many steps are in flight at most.
        drafting_slots: tokens of a step's input that each of its requests takes for drafting.
        derived: what start-up derived from layers, a `conformance.explain.derivation.Derived`; None
            where it was given groups.
    """

    engine: EngineConfiguration
    batches: int
    drafting_slots: int
    derived: Any

    def add_request(self, name: str, arrival: Arrival) -> None:
        """A request arrives."""

    def abort(self, name: str) -> None:
        """A request's user gives up."""

    def has_requests(self) -> bool:
        """Whether the scheduler has anything to schedule, or to report to the model runner."""

    def schedule(self) -> Plan:
        """Decide the next step."""

    def update(
        self, plan: Plan, sampled: Mapping[str, Sequence[int]], drafts: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Sequence[int]]:
        """Take up what a step sampled and drafted; returns the tokens that users get.

        Both are of the step's requests: those that sample nothing have no tokens.
        """

    def unfinished(self) -> frozenset[str]:
        """The requests that are not finished."""

    def running(self) -> Sequence[str]:
        """The requests that run: admitted, not preempted, not finished; in their order."""

    def pool(self) -> PoolState:
        """What the manager holds now."""

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """The keys of a request's blocks in a group."""

    def unit_keys(self, name: str) -> Sequence[Any]:
        """The keys of a request's hash units."""


class SchedulerSubject(Protocol):
    """What starts schedulers."""

    def start(self, deployment: Deployment) -> RunningScheduler:
        """A scheduler. Raises `StartupRefused`, and `CannotJudge` where the target cannot."""

"""Schedulers as subjects: what one is asked, and what each of its steps tells a model runner."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hitproof.conformance.histories.schema import EngineConfiguration, Image
from hitproof.conformance.histories.workloads import Arrival, Deployment, Pause, Reset
from hitproof.conformance.subject.managers import Event, Tables


class StartupRefused(Exception):
    """The target's own start-up validation refuses the deployment; the message is its reason."""


COUNTED = (
    *("requests", "queries", "hits"),
    *("preempted_requests", "preempted_queries", "preempted_hits"),
)
"""What statistics count of lookups; see `RunningScheduler.counted`."""


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
        prompt: the prompt that the model runner is told when an input of a session begins; None
            else.
        images: the images in it that the model runner is told then.
        replay_start: the first token of a hit that is computed again for a window outside the
            prefix cache, as the model runner is told; 0 where none is.
        new: whether the model runner is told all of the request, and not only what is added.
        tokens: all of its tokens, where the model runner is told these.
        num_outputs: how many output tokens it has, as the model runner is told.
    """

    request: str
    start: int
    num_tokens: int
    num_drafts: int
    blocks: Tables
    whole: bool
    first: bool
    prompt: tuple[int, ...] | None = None
    images: tuple[Image, ...] = ()
    replay_start: int = 0
    new: bool = True
    tokens: tuple[int, ...] | None = None
    num_outputs: int | None = None


@dataclass(frozen=True)
class Transfer:
    """A page that is copied between the device and the host's pool.

    Attributes:
        number: what it is reported as done by.
        host: the block of the host's pool.
        resident: the block on the device, of each group that has pages there.
        restore: whether it is copied to the device, before the step; else from it, after.
    """

    number: int
    host: int
    resident: tuple[int, ...]
    restore: bool


@dataclass(frozen=True)
class Rows:
    """Rows that are written through to the host. Both places count rows from the pool's start."""

    sources: tuple[int, ...]
    target: int
    count: int


@dataclass(frozen=True)
class Loading:
    """What a KV connector loads for a request: tokens from ``start`` to ``end``, into tables.

    Attributes:
        tables: those of the engine's groups.
        host: that of the host's pool, if there is one.
    """

    start: int
    end: int
    tables: Tables
    host: tuple[int, ...] = ()


@dataclass(frozen=True)
class Transfers:
    """What a KV connector is asked to transfer from now on, by request.

    Attributes:
        loads: what it loads.
        sends: the tables of what it sends.
        copies: what is copied to or from host memory.
        waits: whether workers wait for all earlier copies before the step.
        flushed: the copies to host memory, these or earlier ones, that they make before the step.
        more: whether workers have more to copy, of which they have not said what it is.
        answers: what it answered the scheduler that has planned the step, where that is known.
        pool: what a tier of chunks has asked its pool since the step before.
        several: where there are several connectors, what each is asked.
        first: where there are several, the place of the first that has tokens of a request.
    """

    loads: Mapping[str, Loading]
    sends: Mapping[str, Tables]
    copies: tuple["HostCopy", ...] = ()
    waits: bool = False
    flushed: frozenset[int] = frozenset()
    more: bool = False
    answers: Mapping[str, "HostAnswer"] = field(default_factory=dict)
    pool: tuple["PoolCall", ...] = ()
    several: tuple["Transfers", ...] = ()
    first: Mapping[str, int] = field(default_factory=dict)

    @property
    def begun(self) -> frozenset[str]:
        """The requests for which a load begins."""
        copied = (name for each in self.copies for name in each.loads or ())
        return frozenset(self.loads).union(copied, *(each.begun for each in self.several))


ChunkKey = tuple[int, Any]
"""A chunk of a tier: its group, and the key of its last block."""


@dataclass(frozen=True)
class PoolCall:
    """What the pool of a tier of chunks was asked, and its answer. vLLM: ``OffloadingManager``.

    Attributes:
        what: its method.
        keys: the chunks, in order.
        request: the request for which it was asked.
        found: for a lookup, whether it can be loaded; for the end of a store, whether it succeeded.
        taken: for an offer, the chunks to store; None where it is refused.
        places: where those are that are to be stored, or loaded.
        evicted: for an offer, the chunks that make room.
        stored: for events, whether each chunk is said to be stored or not.
        shares: for statistics, the shares of its room that are in use, written and read.
    """

    what: str
    keys: tuple[ChunkKey, ...] = ()
    request: str = ""
    found: bool | None = None
    taken: tuple[ChunkKey, ...] | None = ()
    places: tuple[int, ...] = ()
    evicted: tuple[ChunkKey, ...] = ()
    stored: tuple[bool, ...] = ()
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class HostAnswer:
    """What a KV connector answers a lookup. vLLM: ``get_num_new_matched_tokens``.

    Attributes:
        local: how many tokens of the request the prefix cache has.
        more: how many tokens it has after those; None if it is to be asked again later.
    """

    local: int
    more: int | None


@dataclass(frozen=True)
class HostCopy:
    """Blocks that are copied to host memory, or from there to the device.

    Attributes:
        number: the number by which workers report it, among those of its direction.
        blocks: those on the device.
        host: those in host memory, one for each.
        loads: the requests that wait for it; None where it stores.
        failed: blocks on the device that it should have filled, or stored, and has not.
        of: the request for which a store copies it.
    """

    number: int
    blocks: tuple[int, ...]
    host: tuple[int, ...]
    loads: tuple[str, ...] | None = None
    failed: tuple[int, ...] = ()
    of: str = ""


@dataclass(frozen=True)
class HostStep:
    """What the workers of a host's pool are told for one step.

    Attributes:
        tables: for each request in the step its blocks in the host's pool, as in ``blocks``.
        hot: the same of the blocks on the device into which it fetches from the host, by group.
        copies: blocks of the host's pool to copy before all else, as pairs of source and target.
        transfers: pages to copy.
        rows: rows to write through after the step.
        residency: the blocks on the device that a page is read from, by request, page and group;
            0 where it is read from the host. Those that are not named stay.
        all_resident: whether no request reads from the host.
        loads: what a KV connector is asked to load from now on, by request.
    """

    tables: Mapping[str, tuple[int, ...]]
    hot: Mapping[str, Tables]
    copies: tuple[tuple[int, int], ...]
    transfers: tuple[Transfer, ...]
    rows: tuple[Rows, ...]
    residency: Mapping[str, Mapping[int, tuple[int, ...]]]
    all_resident: bool
    loads: Mapping[str, Loading]


@dataclass(frozen=True)
class HostResult:
    """What workers report of a host's pool, or of a KV connector, with the results of a step.

    Attributes:
        done: transfers.
        copied: targets of the copies in the pool.
        loaded: requests whose load is over.
        failed: those of them whose load has failed.
        invalid: blocks whose load has failed.
        sent: requests that have been sent.
        read: copies from host memory.
        several: where there are several connectors, what the workers of each report.
    """

    done: tuple[int, ...] = ()
    copied: tuple[int, ...] = ()
    loaded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    invalid: tuple[int, ...] = ()
    sent: tuple[str, ...] = ()
    read: tuple[int, ...] = ()
    several: tuple["HostResult", ...] = ()


@dataclass(frozen=True)
class HostState:
    """What the host's pool holds.

    Attributes:
        cached: the blocks that each key finds.
        held: the blocks with references.
        room: blocks of one group that are surely free in both pools, with what belongs to each.
    """

    cached: Mapping[Any, tuple[int, ...]]
    held: frozenset[int]
    room: int


@dataclass(frozen=True)
class Told:
    """What a scheduler tells, or asks, its KV connector. vLLM: a call of ``KVConnectorBase_V1``.

    Attributes:
        what: ``arrival``, ``lookup``, ``blocks``, ``end``, or ``step`` when one is prepared.
        request: the id of the request, which the inputs of a session share.
        tokens: how many tokens it answers that it has, or is to load.
        tables: the blocks that it is given at an end.
    """

    what: str
    request: str = ""
    tokens: int = 0
    tables: Tables = ()


@dataclass(frozen=True)
class Plan:
    """One step as a model runner is told it. vLLM: ``SchedulerOutput``.

    Attributes:
        scheduled: the requests that are computed.
        finished: requests whose state the model runner forgets.
        preempted: those that were preempted since the last step, where that is said.
        copies: blocks to copy before the step computes, as pairs of source and target.
        handle: what the target needs to process the step's result.
        host: what workers of a host's pool are told; None without one.
        skips_drafts: whether no drafts are proposed after the step; None where the scheduler leaves
            that to the model runner.
        transfers: what a KV connector is asked for; None without one, and where it is that of a
            host's pool.
        stray_drafts: drafts that the model runner is given of requests that are not computed, and
            how many.
        encoded: the images that are encoded before the step computes, by request and place.
        freed: identifiers of images whose encoded outputs are forgotten before that.
        zeroed: the blocks that are zeroed before all else; None where releases do not report it.
        awaits_tokens: whether its grammars need the tokens of steps in flight, so that the oldest
            is processed before this one samples. vLLM: ``pending_structured_output_tokens``.
        state_columns: the place in its tables at which the model runner finds the recurrent state
            of a request, where that is known.
        told: what a KV connector was told since the step before; None without one.
    """

    scheduled: tuple[Scheduled, ...]
    finished: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    handle: Any = field(default=None, compare=False, repr=False)
    host: HostStep | None = None
    skips_drafts: bool | None = None
    transfers: Transfers | None = None
    stray_drafts: tuple[tuple[str, int], ...] = ()
    encoded: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    freed: tuple[str, ...] = ()
    zeroed: tuple[int, ...] | None = None
    awaits_tokens: bool = False
    state_columns: Mapping[str, int] = field(default_factory=dict)
    told: tuple[Told, ...] | None = None

    @property
    def num_tokens(self) -> int:
        """All tokens of the step."""
        return sum(each.num_tokens for each in self.scheduled)


@dataclass(frozen=True)
class Masks:
    """Which tokens the grammar of a request allows in a step. vLLM: ``GrammarOutput``.

    Attributes:
        states: for the token after all that is known, and after each draft, how many output tokens
            the grammar had accepted by then; None where every token is allowed.
        acceptable: how many drafts can be accepted at most, whatever is allowed.
    """

    states: tuple[int | None, ...]
    acceptable: int


@dataclass(frozen=True)
class PoolState:
    """What a scheduler's manager holds.

    Attributes:
        cached: the blocks that each key of a group finds.
        free: how many blocks are free, the null block not counted.
        held: the blocks with references.
        host: what the host's pool holds; None without one.
        encoded: the requests that hold the encoded output of each image, by its identifier.
        offloaded: the same as ``cached`` of what a connector keeps in host memory.
        in_use: places in host memory that a connector can neither hand out nor evict.
    """

    cached: Mapping[tuple[int, Any], tuple[int, ...]]
    free: int
    held: frozenset[int]
    host: HostState | None = None
    encoded: Mapping[str, Collection[str]] = field(default_factory=dict)
    offloaded: Mapping[tuple[int, Any], tuple[int, ...]] = field(default_factory=dict)
    in_use: int = 0

    @property
    def room(self) -> int:
        """Blocks of one group that are surely free, with what belongs to each."""
        return self.free if self.host is None else self.host.room


@dataclass(frozen=True)
class WasReset:
    """What came of a reset.

    Attributes:
        done: whether it was answered as done.
        connector: what the KV connector has answered, as often as it was asked to forget what it
            has; None where it does not say.
    """

    done: bool
    connector: tuple[bool | None, ...] = ()


class RunningScheduler(Protocol):
    """A scheduler that was started.

    Attributes:
        engine: the configuration that the target has derived from the deployment.
        batches: how many steps are in flight at most.
        drafting_slots: tokens of a step's input that each of its requests takes for drafting.
        spares_lone_prompts: whether long_prefill_token_threshold is no limit for a request that is
            alone.
        reserves_blocks: whether a load begins only if blocks are left for the prompts that are
            computed or loaded.
        fences_steps: whether blocks that a step in flight uses are held until its results are
            processed, as a KV connector may load into what is free.
        derived: what start-up derived from layers, a `conformance.explain.derivation.Derived`; None
            where it was given groups.
    """

    engine: EngineConfiguration
    batches: int
    drafting_slots: int
    spares_lone_prompts: bool
    reserves_blocks: bool
    fences_steps: bool
    derived: Any

    def add_request(self, name: str, arrival: Arrival) -> None:
        """A request arrives.

        An input of a session may do so before the one before it has ended, and then waits for that.
        In plans and answers it stands for its session from then on.
        """

    def close(self, session: str) -> None:
        """The user of a streaming session says that there is no more input.

        vLLM: an input that is not resumable.
        """

    def grammar_is_ready(self, name: str) -> None:
        """The grammar that a request waits for is compiled."""

    def check_drafts(self, plan: Plan, drafts: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        """Check the drafts of a step that has awaited tokens, before it samples.

        Returns how many of them are left, by request. vLLM: ``update_draft_token_ids_in_output``.
        """

    def masks(self, plan: Plan) -> Mapping[str, Masks]:
        """What the grammars of the requests in a step allow, as it samples."""

    def abort(self, name: str) -> None:
        """A request's user gives up; of a session, all of it."""

    def reset(self, wanted: Reset) -> WasReset:
        """Reset the prefix cache as is ``wanted``."""

    def pause(self, pause: Pause | None) -> None:
        """The engine is paused in that way, or goes on."""

    def reset_encoder(self) -> None:
        """The encoder's cache is reset, whatever runs."""

    def may_encode(self, length: int) -> bool:
        """Whether an image of ``length`` tokens has room in the encoder's cache, if need be by
        evicting others. Asked last, when all requests have ended.
        """

    def has_requests(self) -> bool:
        """Whether the scheduler has anything to schedule, or to report to the model runner."""

    def schedule(self) -> Plan:
        """Decide the next step."""

    def update(
        self,
        plan: Plan,
        sampled: Mapping[str, Sequence[int]],
        drafts: Mapping[str, Sequence[int]],
        host: HostResult | None = None,
    ) -> Mapping[str, Sequence[int]]:
        """Take up what a step sampled and drafted; returns the tokens that users get.

        Both are of the step's requests: those that sample nothing have no tokens. ``host`` is what
        the workers of a host's pool, or of a KV connector, report.
        """

    def unfinished(self) -> frozenset[str]:
        """The requests that are not finished."""

    def loading(self) -> frozenset[str]:
        """The requests that wait for a KV connector."""

    def running(self) -> Sequence[str]:
        """The requests that run: admitted, not preempted, not finished; in their order."""

    def pool(self) -> PoolState:
        """What the manager holds now."""

    def counted(self) -> Mapping[str, int] | None:
        """What statistics count of lookups since the start, of each admission once.

        ``requests``, ``queries`` (the tokens of these) and ``hits`` (those that were found), and
        the same with ``preempted_`` of requests that start again. None where nothing is counted.
        """

    def told_ends(self) -> Mapping[str, str]:
        """Why each request has ended, as its user is told. vLLM: ``FinishReason``, in words."""

    def told_cached(self) -> Mapping[str, int]:
        """How many tokens of a request were not computed for it, as its user is told at first."""

    def counted_loads(self) -> Mapping[str, int] | None:
        """The same as `counted` of what a KV connector was asked for, and gave.

        ``queries`` are tokens that are not found on the device. None without a connector.
        """

    def verified(self) -> tuple[int, int] | None:
        """How many drafts, without those that grammars reject, and how many of them accepted.

        As statistics count them since the start; None where they do not.
        """

    def kept(self) -> Collection[str]:
        """Where it keeps something under the id of a request, as ``class.attribute``.

        Asked last, when all requests have ended.
        """

    def events(self) -> Sequence[tuple[str, Event]] | None:
        """What was published since this was asked last, each with the medium of its group's pool.

        Groups are numbered in each pool. None where nothing is published. vLLM: ``EventPublisher``.
        """

    def reported(self) -> tuple[int, ...] | None:
        """How many requests run, wait, and are passed over, as statistics say after the last step.

        Then how many are in each stage of a load. None where they say nothing.
        """

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """The keys of a request's blocks in a group."""

    def unit_keys(self, name: str) -> Sequence[Any]:
        """The keys of a request's hash units."""

    def hits_per_group(self, name: str, cap: int) -> Sequence[int] | None:
        """The longest hits of a request, of at most ``cap`` tokens, of each group alone.

        None where there are no such lookups. vLLM: ``find_longest_cache_hit_per_group``.
        """


class SchedulerSubject(Protocol):
    """What starts schedulers."""

    def start(self, deployment: Deployment) -> RunningScheduler:
        """A scheduler. Raises `StartupRefused`, and `CannotJudge` where the target cannot."""

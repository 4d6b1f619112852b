"""Whole managers as subjects: what a player asks of them, and what is observable after a call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.subject.failures import CannotJudge

Tables = tuple[tuple[int, ...], ...]
"""Block ids, one table per group; the null block is 0."""


@dataclass(frozen=True)
class Hit:
    """What a lookup found.

    Attributes:
        length: tokens served from the cache.
        tables: each group's blocks up to the hit.
        shared_prefix_boundary: the longest hit that one group alone could serve, in tokens, if it
            is longer and the manager reports it; else 0.
    """

    length: int
    tables: Tables
    shared_prefix_boundary: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Allocation:
    """The arguments of ``allocate_slots``, by vLLM's names.

    Attributes:
        num_new_tokens: tokens to compute, drafts included.
        hit: the lookup's answer for a request that is admitted, else None.
        num_lookahead_tokens: further slots, for drafts to come.
        num_external_computed_tokens: tokens beyond the hit that a KV connector has.
        delay_cache_blocks: whether blocks are registered later, by ``cache_blocks``.
        full_sequence_must_fit: whether blocks for the whole request must be free.
        reserved_blocks: free blocks that must be left.
        has_scheduled_reqs: whether other requests run.
        replay: beside the new tokens, the last ones of the hit that are computed again from now on,
            for windows outside the prefix cache; no argument.
        num_replayed_tokens: how many of them this step computes; no argument.
    """

    num_new_tokens: int
    hit: Hit | None = None
    num_lookahead_tokens: int = 0
    num_external_computed_tokens: int = 0
    delay_cache_blocks: bool = False
    full_sequence_must_fit: bool = False
    reserved_blocks: int = 0
    has_scheduled_reqs: bool = True
    replay: range = range(0)
    num_replayed_tokens: int = 0


@dataclass(frozen=True)
class Progress:
    """What the scheduler writes into a request.

    Attributes:
        num_computed_tokens: tokens whose KV is in the request's blocks, or will be once the steps
            in flight are done. Their drafts count as if all were right.
        num_preemptions: how often it was preempted.
        running: whether it is scheduled, not waiting.
        num_in_flight_tokens: tokens of its steps in flight.
        num_output_placeholders: tokens that its steps in flight sample, if all drafts are right.
        num_rejected: drafts in flight among its computed tokens that turn out wrong. No manager
            knows them; the judge does.
        num_sampled: tokens that its steps in flight sample, which no manager knows either.
    """

    num_computed_tokens: int
    num_preemptions: int
    running: bool
    num_in_flight_tokens: int = 0
    num_output_placeholders: int = 0
    num_rejected: int = 0
    num_sampled: int = 0

    @property
    def num_written_tokens(self) -> int:
        """Tokens whose KV is in the request's blocks once the steps in flight are done."""
        return self.num_computed_tokens - self.num_rejected


@dataclass(frozen=True)
class Stored:
    """Blocks were registered. vLLM: ``BlockStored``.

    Attributes:
        group: the group.
        keys: the keys of the blocks, without the group.
        parent: the key of the block before them, None at the start.
        token_ids: the tokens that the event spans.
        block_size: tokens in a block.
        lora_name: the LoRA adapter.
        extra_keys: what else went into each block's hash.
        kind: the kind of the group, None where events do not say it, "" where this one does not.
        window: the group's window in tokens, for sliding windows whose kind is said.
        ahead: for each block the tokens after it that its hash covers, None where events do not
            say them; without any, where hashes do not look ahead.
        medium: where the blocks are, None where events do not say it.
        lora_id: the number of the LoRA adapter.
        says_numbers: whether events have numbers of adapters.
    """

    group: int | None
    keys: tuple[Any, ...]
    parent: Any
    token_ids: tuple[int, ...]
    block_size: int
    lora_name: str | None
    extra_keys: tuple[Any, ...] | None
    # Releases and the reference differ in whether they say these, and agree all the same.
    kind: str | None = field(default=None, compare=False, repr=False)
    window: int | None = field(default=None, compare=False, repr=False)
    ahead: tuple[tuple[int, ...], ...] | None = field(default=None, compare=False, repr=False)
    medium: str | None = field(default=None, compare=False, repr=False)
    lora_id: int | None = field(default=None, compare=False, repr=False)
    says_numbers: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Removed:
    """Blocks were unregistered. vLLM: ``BlockRemoved``.

    ``medium`` is where the blocks were, None where events do not say it.
    """

    group: int | None
    keys: tuple[Any, ...]
    medium: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Cleared:
    """All blocks were unregistered. vLLM: ``AllBlocksCleared``."""


Event = Stored | Removed | Cleared


def named_stored(event: Stored, name: Callable[[Any], str]) -> Stored:
    """The same of what is stored."""
    parent = None if event.parent is None else name(event.parent)
    return replace(event, keys=tuple(map(name, event.keys)), parent=parent)


def named_event(event: Event, name: Callable[[Any], str]) -> Event:
    """The event with names for its keys."""
    match event:
        case Cleared():
            return event
        case Stored():
            return named_stored(event, name)
        case _:
            return replace(event, keys=tuple(map(name, event.keys)))


@dataclass(frozen=True)
class Observation:
    """Everything observable about a manager.

    Keys are as the manager makes them; `conformance.histories.naming` replaces them by names that
    managers with other hash functions share. A field that the manager does not have is None.

    Attributes:
        tables: the block tables of each request that holds blocks.
        ref_counts: the reference count of each block that has one above zero, the null block
            apart.
        cached: the blocks registered under each key (group, key), in the order of preference.
        free_queue: free blocks in the order of reuse.
        num_free_blocks: the manager's own count.
        usage: from 0 to 1.
        common_prefix: for each request that holds blocks, the blocks of each group that all
            requests share.
        events: events since they were taken last, None also where they are not taken.
        stats: prefix-cache statistics since the last observation, by vLLM's names.
        held_outside: the blocks that something outside has taken or holds, once for each time.
    """

    tables: Mapping[str, Tables]
    ref_counts: Mapping[int, int]
    cached: Mapping[tuple[int, Any], tuple[int, ...]]
    free_queue: tuple[int, ...]
    num_free_blocks: int
    usage: float
    common_prefix: Mapping[str, tuple[int, ...]] | None
    events: tuple[Event, ...] | None
    stats: Mapping[str, int]
    held_outside: tuple[int, ...] = ()


class Manager(Protocol):
    """A running manager, with the methods of vLLM's ``KVCacheManager``; requests go by name.

    An exception that it raises is a crash of the subject.
    """

    def add_request(self, name: str, request: RequestInput) -> None:
        """A request arrives."""

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        """The model sampled tokens."""

    def set_progress(self, name: str, progress: Progress) -> None:
        """The scheduler's bookkeeping changed."""

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """The key of each full block of the request so far, at the group's block size."""

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        """The blocks that are registered under a key."""

    def get_computed_blocks(self, name: str) -> Hit:
        """Look a request up."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        """Allocate; the new blocks of each group, or None when too few are free."""

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        """Register the request's full blocks up to ``num_computed_tokens``."""

    def free(self, name: str) -> None:
        """Free the request's blocks."""

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """Unregister blocks."""

    def reset_prefix_cache(self) -> bool:
        """Unregister all blocks; False when some are in use."""

    def new_step_starts(self) -> None:
        """The engine's next step starts."""

    def observe(self) -> Observation:
        """What is observable now; takes the events and the statistics."""


@runtime_checkable
class FineManager(Manager, Protocol):
    """A manager whose hits may end inside blocks; see `spec.releases.fine`.

    `observe` also shows entries at prefixes that end inside blocks.
    """

    def unit_keys(self, name: str) -> Sequence[Any]:
        """The key of each full hash unit of the request so far: of the prefix that it ends."""

    def take_block_copies(self) -> Sequence[tuple[int, int]]:
        """Copies, from block to block, that the worker makes before the next step computes.

        Blocks that the manager holds back for them become available again.
        """


@runtime_checkable
class CappedManager(Manager, Protocol):
    """A manager whose lookups can be given a cap of their own."""

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit | None:
        """As ``get_computed_blocks``, of at most ``cap`` tokens; None where there are no caps."""


@runtime_checkable
class ConnectorManager(Manager, Protocol):
    """A manager that supports KV connectors which load Mamba states; see `spec.connector`."""

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        """The local prefix of a request, of at most ``cap`` tokens, and whether it is flagged.

        None where there are no such lookups, or none with a cap.
        """


@runtime_checkable
class SharingManager(Manager, Protocol):
    """A manager whose blocks something outside can hold, such as a KV connector."""

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        """Free what a request does not read after ``num_computed_tokens`` tokens.

        A scheduler calls it before a connector gets the blocks of a request that has ended.
        """

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        """Take ``count`` free blocks, all if there are fewer or none is given; which ones."""

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        """Hold blocks, free or in use, once more."""

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        """Give back blocks that were taken or held, the last one first."""


def sharing(manager: Manager) -> SharingManager:
    """The manager, whose blocks something outside can hold. Raises `CannotJudge` where none can."""
    if isinstance(manager, SharingManager):
        return manager
    raise CannotJudge(
        "blocks of this subject cannot be held from outside; leave out the steps hold, take and "
        "release, and finish with sending"
    )


@runtime_checkable
class HandingManager(Manager, Protocol):
    """A manager that hands blocks of a number of tokens to KV connectors."""

    def block_ids_for_computed_tokens(self, name: str, num_tokens: int) -> Tables | None:
        """The blocks of a request's first tokens; None where it hands out none."""

    def truncated(self, name: str, num_tokens: int) -> Tables | None:
        """The tables of the request's last hit, cut at a boundary of all groups' blocks.

        None where it cuts none.
        """

    def to_load(self, name: str) -> Tables | None:
        """The blocks of a request that a load writes, as long as it lasts; None without that.

        vLLM: ``KVCacheBlocks.get_unhashed_block_ids_all_groups``.
        """


@runtime_checkable
class GroupwiseManager(Manager, Protocol):
    """A manager that looks up each group by itself, as KV connectors ask for it."""

    def hits_per_group(self, name: str, cap: int) -> tuple[tuple[int, ...], Tables] | None:
        """The longest hit of each group alone, of at most ``cap`` tokens, and its blocks.

        None where there are no such lookups. vLLM: ``find_longest_cache_hit_per_group``.
        """


@runtime_checkable
class ZeroingManager(Manager, Protocol):
    """A manager that says which blocks a worker zeroes before the next step."""

    @property
    def skips_zeroing(self) -> bool:
        """Whether it can leave out those that a load writes meanwhile."""

    def take_new_block_ids(self) -> Sequence[int] | None:
        """Blocks to zero since the last call; None where workers zero none."""

    def zeroed_again(self, name: str, start: int) -> Sequence[int] | None:
        """A request's blocks that are zeroed again, as what a load left out, from a token on.

        That is a boundary of all groups' blocks. None where workers zero none, or none again.
        """


@runtime_checkable
class QueueingManager(Manager, Protocol):
    """A manager whose events wait until they are taken, as a scheduler takes them once a step."""

    def hold_events(self, held: bool) -> None:
        """Whether `observe` leaves the events where they are from now on, and shows None."""


@dataclass(frozen=True)
class OfferedState:
    """A Mamba state that a KV connector may store. vLLM: ``take_boundary_state_offloads``.

    Attributes:
        request: the request whose state it is.
        group: the group.
        block: the block that holds it.
        end: the number of tokens whose state it is.
    """

    request: str
    group: int
    block: int
    end: int


@runtime_checkable
class AccountableManager(Manager, Protocol):
    """A manager that accounts for what it keeps and offers of each request."""

    def kept_of(self, name: str) -> Sequence[str]:
        """Where it keeps something under the request's id, as ``class.attribute``."""

    def estimated_cached_tokens(self, name: str) -> int | None:
        """How many tokens of the request it says are cached; None where it does not say.

        vLLM: ``estimate_cached_tokens``.
        """

    def reported_hit(self, name: str) -> Sequence[Stored] | None:
        """Look the request up once more, for events about the blocks of its hit.

        None where there are no such events. vLLM: ``kv_cache_report_mode``.
        """

    def take_offered_states(self) -> Sequence[OfferedState] | None:
        """The Mamba states that it offered since the last call; None where it offers none."""

    def final_states(self, name: str) -> Sequence[OfferedState]:
        """The Mamba states that it offers of a request that is about to give its blocks back.

        vLLM: ``finalize_partial_tail_offloads``.
        """


class AdmissionSubject(Protocol):
    """Has whole managers, which admit requests."""

    @property
    def fits_whole(self) -> bool:
        """Whether a request can be admitted only as a whole. vLLM: ``full_sequence_must_fit``."""

    def manager(self, engine: EngineConfiguration) -> Manager:
        """A whole manager with an empty cache."""


class ManagerSubject(Protocol):
    """A factory of managers: a vLLM target, the reference, or a broken one in a test."""

    def start(self, engine: EngineConfiguration) -> Manager:
        """A manager with an empty cache.

        Raises `conformance.subject.failures.CannotJudge` when the subject lacks an entry point.
        """

"""Recorded plays: all that can be observed of a manager, step by step.

Two managers that answer alike need not use the same physical blocks, so blocks go by labels: the
request, group and position that a block was allocated for, and the call. Keys go by names
(`conformance.histories.naming`). Then two managers are the same to their users exactly when their
records are equal, and records are compared by a digest for each step.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hitproof.conformance.comparison.facts import raised
from hitproof.conformance.comparison.records import (
    NULL,
    Amounts,
    Label,
    Observable,
    Record,
    StepRecord,
    digest,
    in_json,
)
from hitproof.conformance.histories.json_format import write
from hitproof.conformance.histories.naming import Name, Names, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, History, RequestInput
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.managers import (
    Allocation,
    CappedManager,
    Cleared,
    ConnectorManager,
    Event,
    FineManager,
    Hit,
    Manager,
    ManagerSubject,
    Observation,
    Progress,
    Stored,
    Tables,
    sharing,
)


class Recorder:
    """A `ManagerSubject` that records how the one it wraps plays one history.

    Call ``step_ends`` after every step. ``values`` has what was observed of the step ``kept``, an
    index.
    """

    def __init__(self, subject: ManagerSubject, history: History, kept: int | None = None) -> None:
        self._subject = subject
        self._history = history
        self._kept = kept
        self.record = Record(digest(write(history)))
        self.values: StepRecord = {}
        self._step: StepRecord = {}
        self._manager: Recorded | None = None

    def start(self, engine: EngineConfiguration) -> Manager:
        """See `ManagerSubject`."""
        manager = self._subject.start(engine)
        recorded = RecordedFine if isinstance(manager, FineManager) else Recorded
        self._manager = recorded(manager, self._history, self._note)
        return self._manager

    def _note(self, observable: Observable, value: Any) -> None:
        self._step.setdefault(observable, []).append(value)

    def step_ends(self) -> None:
        """A step was played, to its end or to a crash."""
        assert self._manager is not None
        step, self._step = self._step, {}
        self.record.steps.append({name: digest(values) for name, values in step.items()})
        self.record.amounts.append(self._manager.take_amounts())
        if len(self.record.steps) - 1 == self._kept:
            self.values = json.loads(in_json(step))


class Recorded:
    """A manager that reports its answers and what changed; see `Manager` for the methods."""

    def __init__(
        self, manager: Manager, history: History, note: Callable[[Observable, Any], None]
    ) -> None:
        self.unrecorded = self._manager = manager
        self._note = note
        self._engine = engine = history.engine
        self._names = Names(
            Prefixes(history.requests, engine.hash_block_size, engine.num_hash_lookahead_tokens)
        )
        self._calls = 0
        # What the last observation showed, raw and as it was recorded.
        self._seen: Observation | None = None
        self._shown: dict[Observable, Any] = {}
        self._labels: dict[int, Label] = {}
        self._held: frozenset[int] = frozenset()
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._allocated: frozenset[int] = frozenset()
        self._admitted = self._refused = 0

    def take_amounts(self) -> Amounts:
        """The figures since the last time."""
        seen, admitted, refused = self._seen, self._admitted, self._refused
        self._admitted = self._refused = 0
        if seen is None:
            return Amounts(admitted, refused)
        registered = sum(map(len, seen.cached.values()))
        return Amounts(admitted, refused, seen.num_free_blocks, registered)

    # --- calls ---------------------------------------------------------------------------------

    def _ask(self, method: str, *arguments: Any, call: str = "", shown: Any = None) -> Any:
        """Call a method; the record may name it otherwise, and its arguments."""
        self._calls += 1
        self._note(Observable.CALLS, [call or method, *(arguments if shown is None else shown)])
        return self._run(method, *arguments, call=call)

    def _run(self, method: str, *arguments: Any, call: str = "") -> Any:
        try:
            return getattr(self._manager, method)(*arguments)
        except Exception as error:
            self._note(Observable.CRASHES, [call or method, raised(crash_of(error))])
            raise

    def add_request(self, name: str, request: RequestInput) -> None:
        """The content of the request is the history's."""
        self._run("add_request", name, request)

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        """The tokens are the history's, too."""
        self._run("append_output", name, token_ids)

    def set_progress(self, name: str, progress: Progress) -> None:
        """The scheduler's bookkeeping shows in its other calls."""
        self._run("set_progress", name, progress)

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """Keys are learned on the way."""
        keys = self._manager.block_keys(name, group)
        self._names.learn(name, self._engine.groups[group].block_size, keys)
        return keys

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        """Not recorded: the observation has them."""
        return self._manager.cached_blocks(group, key)

    def get_computed_blocks(self, name: str) -> Hit:
        """The hit, its blocks and the shared prefix."""
        hit: Hit = self._ask("get_computed_blocks", name)
        self._note(Observable.HITS, [name, hit.length])
        self._note(Observable.HIT_TABLES, [name, self._labelled(hit.tables)])
        if hit.shared_prefix_boundary:
            self._note(Observable.SHARED, [name, hit.shared_prefix_boundary])
        return hit

    def get_computed_blocks_up_to(self, name: str, cap: int) -> Hit | None:
        """The hit under a cap, and its blocks."""
        if not isinstance(self._manager, CappedManager):
            return None
        method, call = "get_computed_blocks_up_to", "get_computed_blocks"
        hit: Hit | None = self._run(method, name, cap, call=call)
        if hit is not None:
            answer = [name, cap, hit.length, self._labelled(hit.tables)]
            self._note(Observable.CAPPED_HITS, answer)
        return hit

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        """The local prefix, whether it is flagged, and its blocks."""
        if not isinstance(self._manager, ConnectorManager):
            return None
        found: tuple[Hit, bool] | None = self._run("get_computed_blocks_for_connector", name, cap)
        if found is not None:
            prefix, flagged = found
            answer = [name, cap, prefix.length, flagged, self._labelled(prefix.tables)]
            self._note(Observable.LOCAL_PREFIXES, answer)
        return found

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        """Whether there was space; the blocks show in the tables."""
        asked = dict(vars(allocation))
        asked["hit"] = None if allocation.hit is None else allocation.hit.length
        if not allocation.reserved_blocks:
            del asked["reserved_blocks"]
        new: Tables | None = self._ask("allocate_slots", name, allocation, shown=[name, asked])
        self._answered(Observable.ADMISSION, name, new is not None)
        if new is not None:
            self._allocated = frozenset(block for table in new for block in table if block)
        return new

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        """What it registers shows in the cache."""
        self._ask("cache_blocks", name, num_computed_tokens)

    def free(self, name: str) -> None:
        """What it frees shows in the tables and in the free queue."""
        self._ask("free", name)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """What it evicts shows in the cache."""
        ids = sorted(block_ids)
        known = sorted(self._label(block) for block in ids)
        self._ask("evict_blocks", ids, shown=[known])

    def reset_prefix_cache(self) -> bool:
        """Whether it was done."""
        done: bool = self._ask("reset_prefix_cache")
        self._answered(Observable.RESETS, "reset", done)
        return done

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        """What it frees shows in the tables and in the free queue."""
        sharing(self._manager)
        self._ask("remove_skipped_blocks", name, num_computed_tokens)

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        """How many; which ones shows in the free queue."""
        sharing(self._manager)
        taken: Sequence[int] = self._ask("take_free_blocks", count, call="get_new_blocks")
        self._answered(Observable.ADMISSION, "outside", bool(taken))
        return taken

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        """What it holds shows in the free queue."""
        sharing(self._manager)
        known = sorted(map(self._label, block_ids))
        self._ask("hold_blocks", block_ids, call="touch", shown=[known])

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        """What it frees shows in the free queue."""
        sharing(self._manager)
        known = sorted(map(self._label, block_ids))
        self._ask("release_blocks", block_ids, call="free_blocks", shown=[known])

    def new_step_starts(self) -> None:
        """The engine's step, not the history's."""
        self._run("new_step_starts")

    def _answered(self, observable: Observable, name: str, done: bool) -> None:
        self._note(observable, [name, done])
        if done:
            self._admitted += 1
        else:
            self._refused += 1

    # --- what is observed ----------------------------------------------------------------------

    def observe(self) -> Observation:
        """Record what changed since the last observation."""
        seen, last = self._manager.observe(), self._seen
        self._seen = seen
        moved = last is None or seen.tables != last.tables or seen.cached != last.cached
        if moved:
            self._relabel(seen)
        for observable, value in self._recorded(seen, last, moved):
            if last is None or self._shown.get(observable) != value:
                self._note(observable, value)
                self._shown[observable] = value
        if seen.events:
            self._note(Observable.EVENTS, [self._named(event) for event in seen.events])
        if stats := {name: number for name, number in sorted(seen.stats.items()) if number}:
            self._note(Observable.STATISTICS, stats)
        return seen

    def _recorded(
        self, seen: Observation, last: Observation | None, moved: bool
    ) -> Iterator[tuple[Observable, Any]]:
        label, name = self._label, self._name
        if moved:
            tables = {request: self._labelled(t) for request, t in sorted(seen.tables.items())}
            yield Observable.TABLES, tables
            cached = [
                [group, name(key), list(map(label, ids))]
                for (group, key), ids in seen.cached.items()
            ]
            yield Observable.CACHED, sorted(cached)
        if moved or last is None or seen.ref_counts != last.ref_counts:
            counts = [[label(block), number] for block, number in seen.ref_counts.items()]
            yield Observable.REF_COUNTS, sorted(counts)
        if moved or last is None or seen.free_queue != last.free_queue:
            yield Observable.POOL_ORDER, list(_runs(map(label, seen.free_queue)))
        yield Observable.FREE_BLOCKS, seen.num_free_blocks
        yield Observable.USAGE, round(seen.usage, 9)
        if seen.common_prefix is not None:
            shared = {request: list(n) for request, n in sorted(seen.common_prefix.items())}
            yield Observable.COMMON_PREFIX, shared

    def _name(self, key: Any) -> Name:
        """The key's name. Keys that no request has are alike: they may differ with each process."""
        found = self._names.name(key)
        return "unknown" if found.startswith("unknown key") else found

    def _label(self, block: int) -> Label:
        """The block's label; blocks without a holder and a key are all alike."""
        return self._labels.get(block, "") if block else NULL

    def _labelled(self, tables: Tables) -> list[list[Label]]:
        return [list(map(self._label, table)) for table in tables]

    def _relabel(self, seen: Observation) -> None:
        """Label the blocks that were allocated since the last observation."""
        keys: dict[int, tuple[Any, ...]] = {}
        for key, ids in seen.cached.items():
            for block in ids:
                keys[block] = (*keys.get(block, ()), key)
        labels: dict[int, Label] = {}
        for request, tables in sorted(seen.tables.items()):
            for group, table in enumerate(tables):
                for position, block in enumerate(table):
                    if block and block not in labels:
                        known = self._labels.get(block)
                        if known is None or self._is_reused(block, keys):
                            known = f"{request}/{group}/{position}@{self._calls}"
                        labels[block] = known
        self._held = frozenset(labels)
        for block in keys:
            if block not in labels:
                labels[block] = self._labels.get(block, f"?@{self._calls}")
        self._labels, self._keys, self._allocated = labels, keys, frozenset()

    def _is_reused(self, block: int, keys: Mapping[int, tuple[Any, ...]]) -> bool:
        """Whether a block that is held now was evicted before, and is a new one."""
        if block in self._allocated:
            return True
        kept = set(self._keys.get(block, ())) <= set(keys.get(block, ()))
        return block not in self._held and not kept

    def _named(self, event: Event) -> list[Any]:
        name = self._name
        match event:
            case Cleared():
                return ["cleared"]
            case Stored():
                parent = None if event.parent is None else name(event.parent)
                about = [event.token_ids, event.block_size, event.lora_name, repr(event.extra_keys)]
                return ["stored", event.group, list(map(name, event.keys)), parent, *about]
            case _:
                return ["removed", event.group, list(map(name, event.keys))]


class RecordedFine(Recorded):
    """The same, of a manager whose hits may end inside blocks."""

    _manager: FineManager

    def unit_keys(self, name: str) -> Sequence[Any]:
        """See `FineManager`; keys are learned on the way."""
        keys = self._manager.unit_keys(name)
        self._names.learn(name, self._engine.hash_block_size, keys)
        return keys

    def take_block_copies(self) -> Sequence[tuple[int, int]]:
        """See `FineManager`; blocks that are copied from may be gone from the tables."""
        copies = self._manager.take_block_copies()
        if copies:
            labels = [[self._label(source), self._label(target)] for source, target in copies]
            self._note(Observable.COPIES, labels)
        return copies


def _runs(labels: Iterable[Label]) -> Iterator[Label | int]:
    """The labels, with a number in place of a run of blocks without one."""
    blank = 0
    for label in labels:
        if label:
            if blank:
                yield blank
            blank = 0
            yield label
        else:
            blank += 1
    if blank:
        yield blank

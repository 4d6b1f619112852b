"""The shadow of one manager: what somebody asks of it, judged call by call.

The judge is the spec, asked about the manager's own cache after the call. What the reference does
for speed: its lookup and its mask, both proved, run on the real cache, and only where the manager
differs from them is the spec asked clause by clause, which says what is wrong, or that nothing is.
So the work after a call is in proportion to what the call was about, not to the pool.

With `thorough` the whole pool is judged after every call and compared before the next one: what
somebody changed in between, past the manager, ends what it makes impossible to judge.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from time import perf_counter
from types import ModuleType
from typing import Any

from conformance.histories import RequestInput
from conformance.judging import Judge, Violation
from conformance.managers import Hit, Tables
from conformance.promises import NOTHING_SHARED, JudgedPolicies, Shared
from conformance.transcript import Asked
from reference.groups import num_skipped_tokens
from reference.policies import Policies
from reference.registration import Mask, Registration
from reference.spec_groups import find_hit, spec_groups
from spec.groups import Group, GroupKind, share_eagle
from spec.policies import EagleGroups, Junctions
from spec.retention import SPARSE_KINDS, LookaheadHorizon, horizon
from spec.terms import INTEGERS
from vllm_integration.replay_rendering import describe
from vllm_integration.shadow.real import (
    CachedPrefixes,
    LookupPool,
    Prefix,
    RealCache,
    State,
    named,
    observation_of,
    state_of,
    tables_of,
)
from vllm_integration.shadow.recorder import Recorder
from vllm_integration.shadow.report import Report
from vllm_integration.shadow.scope import Scope

_FOUND = 256
"""Lookups whose answers are remembered until the request is admitted."""
_AUDIT_SHARE, _AUDIT_BLOCKS = 0.1, 10_000
"""When not thorough: the share of the manager's own time that audits of the whole pool may take, and
the largest pool, in blocks, that is audited at all: an audit looks at every block at once."""


@dataclass
class _Life:
    """What is known of a request that holds blocks.

    Attributes:
        frontier: for each group, the blocks that are settled: hit, registered or passed over.
        waiting: for each group, blocks before it that are not registered yet and not due.
        shared: the prefix that its lookup showed to be shared.
    """

    frontier: list[int]
    waiting: list[set[int]]
    shared: Shared = NOTHING_SHARED


@dataclass(frozen=True)
class Call:
    """A call of a manager.

    Attributes:
        method: its name.
        values: its arguments by name, those left out by their defaults.
    """

    method: str
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """An argument that is a number; 0 on releases that do not have it."""
        return int(self.values.get(name) or 0)

    def describe(self) -> str:
        """The call in words."""
        told = []
        for name, value in self.values.items():
            if name == "request":
                told.append(f"request {value.request_id} of {value.num_tokens} tokens")
            elif isinstance(value, (int, str)) and value:
                told.append(f"{name}={value}")
        return f"at {self.method}({', '.join(told)})"


@dataclass
class Shadow:
    """See the module. ``label`` names the manager in findings."""

    manager: Any
    scope: Scope
    policies: JudgedPolicies
    utils: ModuleType
    report: Report
    thorough: bool = True
    judges: Callable[[str], bool] = lambda request_id: True
    label: str = "a manager"
    recorder: Recorder | None = None
    _asked: Asked | None = None
    _lives: dict[str, _Life] = field(default_factory=dict)
    _found: "OrderedDict[str, tuple[Any, int, Shared]]" = field(default_factory=OrderedDict)
    _requests: dict[str, RequestInput] = field(default_factory=dict)
    _real: dict[str, Any] = field(default_factory=dict)
    _state: State | None = None
    _books: str = ""
    _spent: float = 0.0
    _audited: float = 0.0

    def __post_init__(self) -> None:
        engine, coordinator = self.scope.engine, self.manager.coordinator
        self._managers = coordinator.single_type_managers
        self._cache = RealCache(
            coordinator.block_pool,
            self.utils,
            [group.block_size for group in engine.groups],
            engine.hash_block_size,
        )
        self._cached = CachedPrefixes(self._cache)
        policies = self.policies
        if len(engine.groups) == 1:  # its coordinator never peeks past the cap
            policies = replace(policies, horizon=LookaheadHorizon.CAPPED)
        self._horizon = policies.horizon
        self._names = _Names(self._real, engine.hash_block_size)
        self._judge = Judge(engine, self._requests, self._names, self.policies)
        flagged = engine.groups
        if policies.eagle_groups is EagleGroups.ALL:
            flagged = tuple(replace(group, eagle=False) for group in flagged)
        self._groups = share_eagle(flagged, engine.use_eagle)
        self._spec_groups = spec_groups(self._groups, engine.alignment)
        self._registration = Registration(
            self._groups,
            engine.alignment,
            engine.retention_interval,
            Policies(
                horizon=policies.horizon,
                sparse_kinds=frozenset(k for k in SPARSE_KINDS if policies.thins_out(k)),
                junctions=policies.junctions is Junctions.KEPT,
            ),
        )
        self._given = describe(engine)
        self._known_blocks: dict[tuple[int, int, bool], Violation | None] = {}
        self.learn()

    # --- around a call ---------------------------------------------------------------------

    def learn(self) -> None:
        """Take the manager's state for what it is."""
        if self.thorough:
            self._state = state_of(self._cache, self._managers)

    def before(self, call: Call) -> None:
        """A call begins; find out whether somebody changed what only calls should."""
        if self.thorough:
            self._compare()
        if self.recorder is not None and call.method in KNOWN_METHODS:
            self._asked = self.recorder.before(call.method, call.values, self._managers)

    def _compare(self) -> None:
        now, known = state_of(self._cache, self._managers), self._state
        if now == known:
            return
        assert known is not None
        if self.recorder is not None:
            self.recorder.end("somebody changed the cache past the manager")
        if (now.ref_counts, now.free, now.tables) != (known.ref_counts, known.free, known.tables):
            self.not_judged_from_here("somebody changed blocks or tables past the manager")
        self._state = now

    def not_judged_from_here(self, why: str) -> None:
        """Note that what blocks hold and who holds them cannot be judged of this manager any more.

        Hits still are: they are judged on the cache as it is.
        """
        if self._books:
            return
        self._books = why
        self._lives.clear()
        self.report.not_judged[f"from there on, blocks of a manager, but its hits are: {why}"] += 1

    def after(self, call: Call, result: Any, seconds: float) -> None:
        """Judge what a call has done and returned; it took so long."""
        self._spent += seconds
        handler = _HANDLERS.get(call.method)
        if handler is None:
            self._unknown(call)
            return
        self.report.operations += 1
        if self._asked is not None and self.recorder is not None:
            self.recorder.after(self._asked, result)
        handler(self, call, result)
        if call.method not in _READS:
            self._audit(call)
        self.learn()

    def raised(self, call: Call, error: BaseException) -> None:
        """A call raised: whoever made it sees that; how far it got is not known."""
        why = f"{call.method} raised {type(error).__name__}"
        if self.recorder is not None:
            self.recorder.end(why)
        self.not_judged_from_here(why)
        self.learn()

    def _unknown(self, call: Call) -> None:
        """A method that the shadow does not know, or that only tells."""
        if not self.thorough:
            return
        before = self._state
        self.learn()
        if before != self._state:
            why = f"{call.method} is not known to hitproof"
            self.not_judged_from_here(why)
            if self.recorder is not None:
                self.recorder.end(why)

    # --- the calls -------------------------------------------------------------------------

    def _looked_up(self, call: Call, result: Any) -> None:
        request = call.values["request"]
        if not self.judges(request.request_id):
            return
        blocks, length = result[0], result[1]
        asked = call.values.get("max_cache_hit_length")
        if asked is not None and asked != request.num_tokens - 1:
            self.report.not_judged["a lookup with a cap of its own"] += 1
            return
        self._take_up(request)
        self.report.lookups += 1
        self.report.hits += bool(length)
        tables = blocks.blocks
        if not self._as_reference(request, tables, length):
            hit = Hit(length, self._numbers(tables))
            name, tokens = request.request_id, request.num_tokens
            self._add(self._judge.hit(name, tokens, hit, self._cached), call)
        shared = NOTHING_SHARED
        if self.scope.engine.retention_interval is not None and self.scope.caches:
            hit = Hit(length, ())
            name, tokens = request.request_id, request.num_tokens
            shared = self._judge.shared(name, tokens, hit, self._cached)
        self._found[request.request_id] = blocks, length, shared
        self._found.move_to_end(request.request_id)
        if len(self._found) > _FOUND:
            self._found.popitem(last=False)

    def _as_reference(self, request: Any, tables: Sequence[Sequence[Any]], length: int) -> bool:
        """Whether the hit is what the reference's lookup finds in the real cache."""
        if not self.scope.caches or request.skip_reading_prefix_cache:
            return length == 0
        if self._horizon is LookaheadHorizon.CANDIDATE:
            return False
        num_tokens, engine = request.num_tokens, self.scope.engine
        hashes = request.block_hashes
        hashed = min(num_tokens, len(hashes) * engine.hash_block_size)
        units: Any = range(len(hashes))
        pool: Any = LookupPool(self._cache, hashes)
        due = find_hit(
            self._spec_groups,
            len(self._groups),
            units,
            engine.hash_block_size,
            min(num_tokens - 1, hashed),
            min(horizon(self._horizon, num_tokens), hashed),
            pool,
        )
        return due.length == length and all(
            list(mine) == theirs for mine, theirs in zip(tables, due.blocks, strict=True)
        )

    def _allocated(self, call: Call, result: Any) -> None:
        request = call.values["request"]
        name = request.request_id
        found = self._found.pop(name, None) if result is not None else None
        if result is None or self._books or not self.judges(name):
            return
        self._take_up(request)
        local = request.num_computed_tokens + call.number("num_new_computed_tokens")
        start = local + call.number("num_external_computed_tokens")
        end = min(start + call.number("num_new_tokens"), self.scope.engine.max_model_len)
        tables = tables_of(self._managers, name)
        if name not in self._lives:
            self._admitted(call, request, found, local, tables)
        self._judge_tables(call, name, tables, start, end)
        if not call.values.get("delay_cache_blocks"):
            self._registered(call, request, min(end, request.num_tokens), end)

    def _admitted(
        self,
        call: Call,
        request: Any,
        found: tuple[Any, int, Shared] | None,
        local: int,
        tables: Sequence[Sequence[Any]],
    ) -> None:
        blocks = call.values.get("new_computed_blocks")
        shared = NOTHING_SHARED
        if found is not None:
            shared = found[2]
            if not getattr(request, "shared_prefix_boundary", 0):
                shared = shared._replace(kept=0)  # whoever looked up did not pass it on
        served = blocks is not None and any(map(len, blocks.blocks))
        if served and (found is None or found[0] is not blocks or found[1] != local):
            self.report.not_judged["a hit that no lookup of the manager returned"] += 1
        null = self._cache.null_block
        for number in range(len(self._groups)):
            hit = blocks.blocks[number] if blocks is not None and served else ()
            table = tables[number]
            if list(table[: len(hit)]) != list(hit) and any(
                mine is not theirs and mine is not null
                for mine, theirs in zip(table, hit, strict=False)
            ):
                self._add(
                    self._judge.pool_claim(
                        "hit_has_every_block_attention_reads",
                        "block table holds another block",
                        f"group {number}: the table begins with the hit {self._numbers([hit])[0]}",
                        f"group {number}: it is {self._numbers([table])[0]}",
                    ),
                    call,
                )
        self._lives[request.request_id] = _Life(
            [local // group.block_size for group in self._groups],
            [set() for _ in self._groups],
            shared,
        )

    def _judge_tables(
        self, call: Call, name: str, tables: Sequence[Sequence[Any]], start: int, end: int
    ) -> None:
        """The step that computes from ``start`` to ``end`` has every block that it needs."""
        null = self._cache.null_block
        for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
            if not group.prefix_cacheable:
                continue
            size = group.block_size
            last = INTEGERS.ceil_div(end, size)
            first = max(num_skipped_tokens(group, start), 0) // size
            if group.kind is GroupKind.MAMBA:
                first = last - 1
            if end > start and (
                len(table) < last or any(block is null for block in table[first:last])
            ):
                shown = self._numbers([table])[0]
                self._add(self._judge.freed(name, number, first, shown), call)

    def _cache_blocks(self, call: Call, result: Any) -> None:
        del result
        request, computed = call.values["request"], call.number("num_computed_tokens")
        if request.request_id in self._lives:
            self._registered(call, request, computed, computed)

    def _registered(self, call: Call, request: Any, computed: int, end: int) -> None:
        """Judge what is registered of a request's blocks up to ``computed`` tokens."""
        if not self.scope.caches:
            return
        if self.scope.registrations:
            reason = self.scope.registrations
            self.report.not_judged[f"registered blocks: {reason}"] += 1
            return
        life = self._lives[request.request_id]
        for number, group in enumerate(self._groups):
            if group.prefix_cacheable:
                self._judge_group(call, request, life, number, group, computed, end)

    def _judge_group(
        self,
        call: Call,
        request: Any,
        life: _Life,
        number: int,
        group: Group,
        computed: int,
        end: int,
    ) -> None:
        size = group.block_size
        hashes = self._cache.hashes(request.block_hashes, number)
        first = life.frontier[number]
        last = min(self._registration.num_tokens(group, computed) // size, len(hashes))
        table = self._managers[number].req_to_blocks.get(request.request_id, ())
        judged = [*sorted(life.waiting[number])]
        if last > first:
            life.frontier[number] = last
            mask: Mask = self._registration.mask(group, request)
            new, suffix = table[first:last], self._cache.suffix(number)
            self.report.blocks += len(new)
            judged += [
                position
                for position, block, due, block_hash in zip(
                    count(first), new, mask(first, last), hashes[first:last], strict=False
                )
                if block.block_hash != (block_hash + suffix if due else None)
            ]
        ahead = max(first, last)
        judged += [p for p, b in enumerate(table[ahead:], ahead) if b.block_hash is not None]
        for position in judged:
            self._judge_block(call, request, life, number, position, computed, end)

    def _judge_block(
        self,
        call: Call,
        request: Any,
        life: _Life,
        number: int,
        position: int,
        computed: int,
        end: int,
    ) -> None:
        """One block that is not as the reference would have it."""
        group, name = self._groups[number], request.request_id
        size, block = group.block_size, self._managers[number].req_to_blocks[name][position]
        ids = self._cache.ids(number, named(request, (position + 1) * size, self._unit))
        life.waiting[number].discard(position)
        if block.is_null:
            return
        is_registered = block.block_id in ids
        if not is_registered and block.block_hash is not None:
            self._add(
                self._judge.pool_claim(
                    "cached_key_names_its_content",
                    "a key is registered over other content",
                    f"group {number}: block {block.block_id} is registered under the prefix that "
                    f"its request {name} has up to token {(position + 1) * size}",
                    "it is registered under another key",
                ),
                call,
            )
            return
        if not is_registered and group.kind is GroupKind.MAMBA and self.scope.states_at_ends:
            # A step leaves one state, that of its end.
            if computed != end or computed != (position + 1) * size:
                return
        promised = self._judge.promises.promised(name, number, position, life.shared)
        reach = self._judge.promises.lookahead_tokens
        if not is_registered and not any(b * size + reach <= computed for b in promised.values()):
            life.waiting[number].add(position)
            return
        dense = self.scope.engine.retention_interval is None
        place = number, position, is_registered
        if dense and place in self._known_blocks:
            violation = self._known_blocks[place]
        else:
            violation = self._judge.registered(name, number, position, is_registered, life.shared)
            if dense:
                self._known_blocks[place] = violation
        self._add(violation, call)

    def _freed(self, call: Call, result: Any) -> None:
        del result
        name = call.values["request"].request_id
        self._lives.pop(name, None)
        self._found.pop(name, None)
        left = self._numbers(tables_of(self._managers, name))
        if any(map(any, left)):
            wrong = "a freed request still holds blocks"
            self._add(
                self._judge.pool_claim(
                    "free_count_is_free_queue_length", wrong, "its tables are gone", f"{left}"
                ),
                call,
            )
        self._requests.pop(name, None)
        self._real.pop(name, None)

    def _evicted(self, call: Call, result: Any) -> None:
        del result
        self._must_be_forgotten(call, set(call.values.get("block_ids", ())))

    def _reset(self, call: Call, result: Any) -> None:
        if not result:
            return
        held = sorted(
            {
                name
                for manager in self._managers
                for name, table in manager.req_to_blocks.items()
                if any(not block.is_null for block in table)
            }
        )
        if held:
            self._add(
                self._judge.pool_claim(
                    "block_in_use_is_never_evicted",
                    "the cache is reset while blocks are in use",
                    "a reset is refused while blocks are in use",
                    f"it is done while {', '.join(held)} hold blocks",
                ),
                call,
            )
        self._must_be_forgotten(call, None)

    def _must_be_forgotten(self, call: Call, gone: set[int] | None) -> None:
        found = {
            block
            for held in self._cache.entries.values()
            for block in (held if isinstance(held, dict) else (held.block_id,))
            if gone is None or block in gone
        }
        if found:
            self._add(
                self._judge.pool_claim(
                    "cached_key_names_its_content",
                    f"a key finds a block after {call.method}",
                    f"no key finds a block after {call.method}",
                    f"keys find blocks {sorted(found)}",
                ),
                call,
            )

    def _popped(self, call: Call, result: Any) -> None:
        del result
        self._lives.pop(call.values["request"].request_id, None)
        self.not_judged_from_here("blocks were taken out of tables to be freed later")

    def _passed(self, call: Call, result: Any) -> None:
        """A call with nothing to judge but what it leaves behind."""

    # --- the whole pool --------------------------------------------------------------------

    def _audit(self, call: Call) -> None:
        """Judge the pool's books."""
        if self._books:
            return
        if not self.thorough:
            if self.scope.engine.num_gpu_blocks > _AUDIT_BLOCKS:
                self.report.not_judged[f"the books of a pool of over {_AUDIT_BLOCKS} blocks"] += 1
                return
            if self._audited > _AUDIT_SHARE * self._spent:
                return
        began = perf_counter()
        state = state_of(self._cache, self._managers)
        holders = {name for tables in state.tables for name, held in tables.items() if held}
        if holders - self._real.keys():
            self.not_judged_from_here("a request holds blocks that the manager was not asked for")
            return
        self.report.audits += 1
        seen = observation_of(state, self._cache, self.manager.usage)
        engine = self.scope.engine
        hashed: dict[str, RequestInput] = {
            name: _Sized(max(1, len(self._real[name].block_hashes) * self._unit))
            for name in seen.tables
        }
        self._add(Judge(engine, hashed, self._names, self.policies).pool(seen), call)
        self._audited += perf_counter() - began

    # --- the means -------------------------------------------------------------------------

    @property
    def _unit(self) -> int:
        return self.scope.engine.hash_block_size

    def _take_up(self, request: Any) -> None:
        """Have the judge know a request: what counts is how many tokens it has."""
        name, total = request.request_id, request.num_tokens
        self._real[name] = request
        known = self._requests.get(name)
        if known is None or len(known.prompt) + len(known.output) != total:
            prompt = request.num_prompt_tokens
            skips = not self.scope.caches or request.skip_reading_prefix_cache
            self._requests[name] = _Sized(max(1, prompt), max(0, total - prompt), bool(skips))

    @staticmethod
    def _numbers(tables: Sequence[Sequence[Any]]) -> Tables:
        return tuple(
            tuple(0 if block.is_null else block.block_id for block in table) for table in tables
        )

    def _add(self, violation: Violation | None, call: Call) -> None:
        if violation is not None:
            self.report.add(violation, self._given, f"{self.label}, {call.describe()}")


class _Sized(RequestInput):
    """A request of which the judge need not know the tokens, only how many there are."""

    def __init__(self, prompt: int, output: int = 0, skips: bool = False) -> None:
        sized: Any = {"prompt": range(prompt), "output": range(output)}
        super().__init__(**sized, skip_reading_prefix_cache=skips)

    @property
    def token_ids(self) -> Any:
        """As many as there are."""
        return range(len(self.prompt) + len(self.output))


class _Names:
    """Names the prefixes of real requests; see `conformance.naming.Naming`."""

    def __init__(self, requests: Mapping[str, Any], unit: int) -> None:
        self._requests = requests
        self._unit = unit

    def name(self, request: str, end: int) -> Prefix:
        """See `conformance.naming.Naming`."""
        return named(self._requests[request], end, self._unit)


_HANDLERS: Mapping[str, Callable[[Shadow, Call, Any], None]] = {
    "get_computed_blocks": Shadow._looked_up,
    "allocate_slots": Shadow._allocated,
    "cache_blocks": Shadow._cache_blocks,
    "free": Shadow._freed,
    "evict_blocks": Shadow._evicted,
    "reset_prefix_cache": Shadow._reset,
    "remove_skipped_blocks": Shadow._passed,
    "new_step_starts": Shadow._passed,
    "take_events": Shadow._passed,
    "pop_blocks_for_free": Shadow._popped,
}
"""What is judged of each method; others only tell, or are not known."""

KNOWN_METHODS = frozenset(_HANDLERS)

_READS = ("get_computed_blocks", "take_events", "new_step_starts")
"""Those that leave the pool as it is."""

"""The shadow of one manager: the calls that it gets, judged one by one.

The judge is the spec, asked about the manager's own cache after the call. What the reference does
for speed: its lookup and its mask, both proved, run on the real cache, and only where the manager
differs from them is the spec asked clause by clause, which says what is wrong, or that nothing is.
So the work after a call is in proportion to what the call was about, not to the pool.

With `thorough` the whole pool is judged after every call and compared before the next one: a change
in between, past the manager, ends what it makes impossible to judge.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.schema import RequestInput
from hitproof.conformance.judge.promises import NOTHING_SHARED
from hitproof.conformance.playing.transcript import Asked
from hitproof.conformance.subject.managers import Hit
from hitproof.reference.spec_groups import find_hit, spec_groups
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.vllm_integration.shadow.beside_reference import Lockstep
from hitproof.vllm_integration.shadow.judged import Call, Judged, Sized, numbers
from hitproof.vllm_integration.shadow.lives import Found, Lives
from hitproof.vllm_integration.shadow.real import (
    LookupPool,
    State,
    observation_of,
    state_of,
    tables_of,
)
from hitproof.vllm_integration.shadow.recorder import Recorder

_FOUND = 256
"""Lookups whose answers are remembered until the request is admitted."""
_AUDIT_SHARE, _AUDIT_BLOCKS = 0.1, 10_000
"""When not thorough: the share of the manager's own time that audits of the whole pool may take,
and the largest pool, in blocks, that is audited at all: an audit looks at every block at once."""


class Shadow:
    """See the module. ``judges`` says which requests are judged, by their ids."""

    def __init__(
        self,
        judged: Judged,
        thorough: bool,
        judges: Callable[[str], bool],
        recorder: Recorder | None = None,
        lockstep: Lockstep | None = None,
    ) -> None:
        self._judged = judged
        self._thorough = thorough
        self._judges = judges
        self._recorder = recorder
        self._lockstep = lockstep
        self._lives = Lives(judged)
        engine = judged.scope.engine
        self._spec_groups = spec_groups(judged.groups, engine.alignment, engine.hash_block_size)
        self._found: OrderedDict[str, Found] = OrderedDict()
        self._asked: Asked | None = None
        self._state: State | None = None
        # Whether what requests hold is no longer judged, nor the pool's invariants.
        self._lost = self._lost_pool = False
        # Whether keys were put into the cache, or taken out, past the manager.
        self._edited = False
        # Seconds in the manager, and in audits of it.
        self._spent = self._audited = 0.0
        self._learn()

    # --- around a call ---------------------------------------------------------------------

    def _learn(self) -> None:
        """Take the manager's state for what it is."""
        if self._thorough:
            self._state = state_of(self._judged.cache, self._judged.managers)

    def before(self, call: Call) -> None:
        """A call begins; find out whether state changed that only calls should change."""
        if self._thorough:
            self._compare()
        if self._recorder is not None and call.method in KNOWN_METHODS:
            self._asked = self._recorder.before(call.method, call.values, self._judged.managers)

    def _compare(self) -> None:
        now, known = state_of(self._judged.cache, self._judged.managers), self._state
        if now == known:
            return
        assert known is not None
        if self._recorder is not None:
            self._recorder.end("the cache was changed past the manager")
        self._leave("the cache was changed past the manager")
        self._edited = self._edited or now.cached != known.cached
        pool_changed = (now.ref_counts, now.free) != (known.ref_counts, known.free)
        if now.tables != known.tables or (pool_changed and not self._lost_pool):
            self._give_up("blocks or tables were changed past the manager")
        self._state = now

    def _give_up(self, why: str) -> None:
        """Note that the contents and holders of this manager's blocks can no longer be judged.

        Hits still are: they are judged on the cache as it is.
        """
        self._leave(why)
        if self._lost:
            return
        self._lost = self._lost_pool = True
        self._lives.clear()
        self._judged.report.not_judged[
            f"from there on, blocks of a manager, but its hits are: {why}"
        ] += 1

    def after(self, call: Call, result: Any, seconds: float) -> None:
        """Judge what a call has done and returned; it took so long."""
        self._spent += seconds
        handler = _HANDLERS.get(call.method)
        if handler is None:
            self._unknown(call)
            return
        self._judged.report.operations += 1
        if self._asked is not None and self._recorder is not None:
            self._recorder.after(self._asked, result)
        found = self._judged.report.times.total()
        handler(self, call, result)
        if call.method not in _READS:
            self._audit(call)
        self._learn()
        if self._lockstep is None or self._state is None:
            return
        if self._judged.report.times.total() > found:
            self._leave("after a finding")
            return
        # An error of ours would leave the two apart.
        lockstep, self._lockstep = self._lockstep, None
        if lockstep.follow(call, result, self._state):
            self._lockstep = lockstep

    def _leave(self, why: str) -> None:
        """The lockstep ends."""
        if self._lockstep is not None:
            self._judged.report.not_judged[f"from there on, lockstep: {why}"] += 1
            self._lockstep = None

    def raised(self, call: Call, error: BaseException) -> None:
        """A call raised: its caller sees that; how far it got is not known."""
        why = f"{call.method} raised {type(error).__name__}"
        if self._recorder is not None:
            self._recorder.end(why)
        # A test may mean to be refused; an engine dies of it.
        if isinstance(error, Exception) and not self._thorough:
            self._judged.add(self._judged.judge.crash(call.method, error), call)
        self._give_up(why)
        self._learn()

    def _unknown(self, call: Call) -> None:
        """A method that the shadow does not know, or that only tells."""
        if not self._thorough:
            return
        before = self._state
        self._learn()
        if before != self._state:
            why = f"{call.method} is not known to hitproof"
            self._give_up(why)
            if self._recorder is not None:
                self._recorder.end(why)

    # --- the calls -------------------------------------------------------------------------

    def _looked_up(self, call: Call, result: Any) -> None:
        request = call.values["request"]
        if not self._judges(request.request_id):
            return
        blocks, length = result[0], result[1]
        asked = call.values.get("max_cache_hit_length")
        if asked is not None and asked != request.num_tokens - 1:
            self._judged.report.not_judged["a lookup with a cap of its own"] += 1
            return
        self._judged.take_up(request)
        self._judged.report.lookups += 1
        self._judged.report.hits += bool(length)
        tables = blocks.blocks
        if not self._as_reference(request, tables, length):
            hit = Hit(length, numbers(tables))
            name, tokens = request.request_id, request.num_tokens
            self._judged.add(self._judged.judge.hit(name, tokens, hit, self._judged.cached), call)
        shared = NOTHING_SHARED
        if self._judged.scope.engine.retention_interval is not None and self._judged.scope.caches:
            hit = Hit(length, ())
            name, tokens = request.request_id, request.num_tokens
            shared = self._judged.judge.shared(name, tokens, hit, self._judged.cached)
        self._found[request.request_id] = Found(blocks, length, shared)
        self._found.move_to_end(request.request_id)
        if len(self._found) > _FOUND:
            self._found.popitem(last=False)

    def _as_reference(self, request: Any, tables: Sequence[Sequence[Any]], length: int) -> bool:
        """Whether the hit is what the reference's lookup finds in the real cache."""
        if not self._judged.scope.caches or request.skip_reading_prefix_cache:
            return length == 0
        if self._judged.policies.horizon is LookaheadHorizon.CANDIDATE:
            return False
        num_tokens, engine = request.num_tokens, self._judged.scope.engine
        hashes = request.block_hashes
        hashed = min(num_tokens, len(hashes) * engine.hash_block_size)
        units: Any = range(len(hashes))
        pool: Any = LookupPool(self._judged.cache, hashes)
        due = find_hit(
            self._spec_groups,
            len(self._judged.groups),
            units,
            min(num_tokens - 1, hashed),
            min(horizon(self._judged.policies.horizon, num_tokens), hashed),
            pool,
        )
        return due.length == length and all(
            list(mine) == list(theirs) for mine, theirs in zip(tables, due.blocks, strict=True)
        )

    def _allocated(self, call: Call, result: Any) -> None:
        request = call.values["request"]
        if result is None:
            return
        self._judged.take_up(request)
        found = self._found.pop(request.request_id, None)
        if self._judges(request.request_id) and not self._lost:
            self._lives.allocated(call, found)

    def _cache_blocks(self, call: Call, result: Any) -> None:
        del result
        self._lives.cached(call)

    def _freed(self, call: Call, result: Any) -> None:
        del result
        name = call.values["request"].request_id
        self._lives.end(name)
        self._found.pop(name, None)
        left = numbers(tables_of(self._judged.managers, name))
        if any(map(any, left)):
            self._judged.wrong(
                call, Defect(Code.FREED_REQUEST_HOLDS_BLOCKS), "its tables are gone", f"{left}"
            )
        self._judged.forget(name)

    def _evicted(self, call: Call, result: Any) -> None:
        del result
        self._must_be_forgotten(call, set(call.values.get("block_ids", ())))

    def _reset(self, call: Call, result: Any) -> None:
        if not result:
            return
        held = sorted(
            {
                name
                for manager in self._judged.managers
                for name, table in manager.req_to_blocks.items()
                if any(not block.is_null for block in table)
            }
        )
        if held:
            self._judged.wrong(
                call,
                Defect(Code.RESET_WHILE_IN_USE),
                "a reset is refused while blocks are in use",
                f"it is done while {', '.join(held)} hold blocks",
            )
        self._must_be_forgotten(call, None)

    def _must_be_forgotten(self, call: Call, gone: set[int] | None) -> None:
        found = {
            block
            for held in self._judged.cache.entries.values()
            for block in (held if isinstance(held, dict) else (held.block_id,))
            if gone is None or block in gone
        }
        if found:
            self._judged.wrong(
                call,
                Defect.of(Code.KEY_NOT_REMOVED, method=call.method),
                f"no key finds a block after {call.method}",
                f"keys find blocks {sorted(found)}",
            )

    def _popped(self, call: Call, result: Any) -> None:
        del result
        name = call.values["request"].request_id
        self._lives.end(name)
        self._judged.forget(name)
        why = "blocks are taken out of tables, to be freed later"
        self._leave(why)
        if not self._lost_pool:
            self._lost_pool = True
            self._judged.report.not_judged[f"from there on, the invariants of a pool: {why}"] += 1

    def _passed(self, call: Call, result: Any) -> None:
        """A call with nothing to judge but what it leaves behind."""

    # --- the whole pool --------------------------------------------------------------------

    def _judge_keys(self, call: Call, state: State) -> None:
        """The keys that blocks carry are those that find them."""
        pool = self._judged.cache.pool
        further = getattr(pool, "cached_block_hashes_by_block", {})
        carried = {
            (key, block.block_id)
            for block in pool.blocks
            if block.block_hash is not None
            for key in (block.block_hash, *further.get(block.block_id, ()))
        }
        finding = {(key, block) for key, blocks in state.cached.items() for block in blocks}
        for wrong, code in (
            (finding - carried, Code.KEY_FINDS_BLOCK_WITHOUT_IT),
            (carried - finding, Code.KEY_FINDS_NOTHING),
        ):
            if wrong:
                blocks = f"blocks {sorted({block for _, block in wrong})}"
                spec = "keys find the blocks that carry them"
                self._judged.wrong(call, Defect(code), spec, blocks)

    def _audit(self, call: Call) -> None:
        """Judge the pool's invariants."""
        if self._lost_pool:
            return
        if not self._thorough:
            if self._judged.scope.engine.num_gpu_blocks > _AUDIT_BLOCKS:
                self._judged.report.not_judged[
                    f"the invariants of a pool of over {_AUDIT_BLOCKS} blocks"
                ] += 1
                return
            if self._audited > _AUDIT_SHARE * self._spent:
                return
        began = perf_counter()
        state = state_of(self._judged.cache, self._judged.managers)
        holders = {name for tables in state.tables for name, held in tables.items() if held}
        if holders - self._judged.real.keys():
            self._give_up("a request holds blocks that the manager was not asked for")
            return
        self._judged.report.audits += 1
        seen = observation_of(state, self._judged.cache, self._judged.manager.usage)
        engine = self._judged.scope.engine
        hashed: dict[str, RequestInput] = {
            name: Sized(max(1, len(self._judged.real[name].block_hashes) * engine.hash_block_size))
            for name in seen.tables
        }
        self._judged.add(next(self._judged.judge_of(hashed).pool(seen), None), call)
        if not self._edited:
            self._judge_keys(call, state)
        self._audited += perf_counter() - began

    # --- the means -------------------------------------------------------------------------


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

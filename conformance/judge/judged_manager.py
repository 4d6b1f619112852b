"""A manager that is judged: every answer at its call, what it holds and reports after each.

It is longer than other modules, as it has each method of a manager.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Key, Part
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import History, RequestInput
from hitproof.conformance.judge.accounts import OfferedStates, wrong_estimate
from hitproof.conformance.judge.admission import (
    Admitted,
    hits_fresh_block,
    least_needed,
    most_needed,
)
from hitproof.conformance.judge.books import Books, steps_without_taking, wrongly_released
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.damage import (
    Damage,
    explained_by_holders,
    explained_by_keys,
    lost_keys,
)
from hitproof.conformance.judge.handed_blocks import (
    WorkerTables,
    cut,
    wrong_blocks,
    wrongly_loaded,
    wrongly_zeroed,
    wrongly_zeroed_again,
)
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.outcome import Crashed, LookupResult, ReplayOutcome
from hitproof.conformance.judge.promises import NOTHING_SHARED, JudgedPolicies
from hitproof.conformance.judge.registrations import Registrations
from hitproof.conformance.playing.expectations import Allocated, Expected, ReportReturns
from hitproof.conformance.subject.failures import REFUSALS, Refuses, crash_of
from hitproof.conformance.subject.managers import (
    Allocation,
    Hit,
    Manager,
    ManagerSubject,
    Observation,
    Progress,
    Tables,
    sharing,
)
from hitproof.conformance.subject.named_manager import NamedManager
from hitproof.spec.admission import fits, is_answered_right
from hitproof.spec.claims import Divergence

_T = TypeVar("_T")
_NOTHING = Progress(0, 0, False)
_FORGETTING = ("evict_blocks", "reset_prefix_cache")
"""Calls that end the validity of keys."""
_Find = Callable[[str, int], Tables | None]


class JudgedManager:
    """A manager whose every answer is judged; see `conformance.subject.managers.Manager`."""

    def __init__(
        self,
        history: History,
        subject: ManagerSubject,
        policies: JudgedPolicies,
        outcome: ReplayOutcome,
        content: Callable[..., ContentModel] = ContentModel,
    ) -> None:
        requests, engine = history.requests, history.engine
        prefixes = Prefixes(requests, engine.hash_block_size, engine.num_hash_lookahead_tokens)
        self._engine, self._outcome = engine, outcome
        self._fine = policies.fine(engine)
        self._named = NamedManager(subject, history, prefixes, self._fine)
        self._prefixes = prefixes
        self._judge = Judge(engine, requests, prefixes, policies)
        self._content = content(
            engine,
            requests,
            self._judge.of_group,
            policies.every_state,
            policies.horizon,
            policies.replayed(engine) > 0,
        )
        self._registrations = Registrations(
            engine, prefixes, self._judge, self._content, self._fine
        )
        self._untaken = steps_without_taking(history)
        self._books = Books(engine, requests, prefixes, self._fine)
        self._num_tokens: dict[str, int] = {}
        self._progress: dict[str, Progress] = {}
        self._preempted: set[str] = set()
        self._loading: dict[str, int] = {}  # the first token that a connector loads
        # A block that fills up may be registered anew, for more of its tokens.
        self._rewrites_keys = self._fine or engine.mamba_checkpoint_alignment is not None
        self._at_start = self._named.seen
        self._handed_out: set[int] = set()  # in this step
        self._offered = OfferedStates(
            engine, prefixes, self._content.keys.hold_in_step, self._content.keys.is_judged
        )
        self._worker = WorkerTables()
        self._damage = Damage()
        self._admitted = Admitted()
        self.step = 0

    # --- requests ------------------------------------------------------------------------------

    def add_request(self, name: str, request: RequestInput) -> None:
        self._ask("add_request", lambda manager: manager.add_request(name, request), name)
        self._num_tokens[name] = len(request.prompt)
        self._learn("add_request", name)

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        self._ask("append_output", lambda manager: manager.append_output(name, token_ids), name)
        self._num_tokens[name] += len(token_ids)
        self._learn("append_output", name)

    def set_progress(self, name: str, progress: Progress) -> None:
        self._progress[name] = progress
        if progress.num_preemptions:
            self._preempted.add(name)
        self._content.settle(name, progress.num_written_tokens)
        self._ask("set_progress", lambda manager: manager.set_progress(name, progress), name)

    def block_keys(self, name: str, group: int) -> Sequence[tuple[Name, ...]]:
        size, unit = self._engine.groups[group].block_size, self._engine.hash_block_size
        if not self._fine:
            unit = size
        ends = range(unit, self._num_tokens[name] // unit * unit + 1, unit)
        # A block may be registered under several prefixes that end inside it.
        blocks: dict[int, list[Name]] = {}
        for end in ends:
            blocks.setdefault((end - 1) // size, []).append(self._prefixes.name(name, end))
        return [tuple(names) for names in blocks.values()]

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        cached = self._named.seen.cached
        found = [block for name in key for block in cached.get((group, name), ())]
        return list(dict.fromkeys(found))

    @property
    def counted(self) -> Mapping[str, int]:
        """Statistics by vLLM's names, and blocks in events, since the start."""
        return self._books.counted

    # --- what is judged ------------------------------------------------------------------------

    def get_computed_blocks(self, name: str) -> Hit:
        call, cached = "get_computed_blocks", self._named.seen.cached
        hit = self._ask(call, lambda manager: manager.get_computed_blocks(name), name)
        num_tokens = self._num_tokens[name]
        wrong = self._judge.hit(name, num_tokens, hit, cached)
        self._add(wrong, call)
        if wrong is not None and wrong.signature.divergence == Divergence.LOST_HIT:
            self._add(self._judge.wrong_table(name, num_tokens, hit, cached), call)
        self._add(self._judge.shared_boundary(name, num_tokens, hit, cached), call)
        if hit.length and wrong is None:
            self._judge_report(name, hit)
            self._judge_capped(name, hit.length - 1)
            self._judge_truncated(name, hit)
        if self._judge.judges_local_prefixes:
            self._judge_local_prefix(name)
        if (manager := self._named.groupwise) and self._judge.judges_group_hits:
            call_alone = "find_longest_cache_hit_per_group"
            cap = self._cap_of_groups(hit.length, num_tokens)
            alone = self._ask(call_alone, lambda _: manager.hits_per_group(name, cap), name)
            if alone is not None:
                for each in self._judge.group_hits(name, num_tokens, cap, *alone, cached):
                    self._add(each, call_alone)
        due = self._judge.due_hit(name, num_tokens, cached)
        divergence = "" if wrong is None else wrong.signature.divergence
        self._outcome.lookups.append(
            LookupResult(self.step, name, due, hit.length, str(divergence))
        )
        self._registrations.looked_up(name, self._judge.shared(name, num_tokens, hit, cached))
        self._books.looked_up(name, num_tokens, hit.length, name in self._preempted)
        self._observe(call, name)
        return hit

    def _cap_of_groups(self, hit: int, num_tokens: int) -> int:
        """How much each group alone may serve of a request that hits ``hit`` tokens.

        Where hits end inside blocks, a hash unit less than whole blocks of all groups: lookups that
        drop a unit have to look that far past the cap, and find the block that ends there.
        """
        whole = hit // self._engine.alignment * self._engine.alignment
        return whole - self._engine.hash_block_size if self._fine and whole else num_tokens - 1

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        answer, _ = self._local_prefix(name, cap, taken=True)
        if answer is not None:
            # It starts there, past what an earlier lookup showed to be shared.
            self._registrations.looked_up(name, NOTHING_SHARED)
        self._observe("get_computed_blocks_for_connector", name)
        return answer

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        call = "allocate_slots"
        new = self._ask(call, lambda manager: manager.allocate_slots(name, allocation), name)
        copies = self._ask(call, lambda _: self._named.take_block_copies(), name)
        for source, target in copies:
            self._content.copy(source, target)
        touched = () if allocation.hit is None or new is None else allocation.hit.tables
        before = self._named.seen
        seen = self._observe(call, name, touched, {target for _, target in copies})
        if new is None:
            self._judge_refusal(name, allocation, before, seen)
            return None
        self._judge_admission(name, allocation, before, seen)
        if not fits(allocation.reserved_blocks, len(seen.free_queue)):
            due = f"{allocation.reserved_blocks} blocks stay free for others"
            actual = f"{len(seen.free_queue)} blocks are free"
            self._add_wrong(call, Code.RESERVED_BLOCKS_TAKEN, due, actual)
        tables = self._tables(seen, name)
        self._handed_out.update(*new)
        if manager := self._named.zeroing:
            zeroed = self._ask(call, lambda _: manager.take_new_block_ids(), name)
            if zeroed is not None:
                hit, held = touched or self._tables(before, ""), self._tables(before, name)
                loaded = 0
                if allocation.delay_cache_blocks and manager.skips_zeroing and allocation.hit:
                    loaded = allocation.hit.length + allocation.num_external_computed_tokens
                for said in wrongly_zeroed(self._engine, held, hit, tables, zeroed, loaded):
                    self._add_wrong(call, Code.ZEROED_BLOCKS_WRONG, *said)
        progress = self._progress.get(name, _NOTHING)
        start, external = progress.num_written_tokens, allocation.num_external_computed_tokens
        if allocation.hit is not None:
            start = allocation.hit.length
            self._registrations.admitted(name, start)
        # The last token of a load is computed again if it is that of the prompt.
        settled = start + external - (external > 0)
        if allocation.hit is None:
            settled = progress.num_computed_tokens - progress.num_in_flight_tokens
        for unread in self._judge.unread(name, tables, settled):
            self._add(unread, call)
        if allocation.delay_cache_blocks:
            if handing := self._named.handing:
                asked = self._ask(call, lambda _: handing.to_load(name), name)
                hit = touched or tuple(() for _ in tables)
                for said in wrongly_loaded(tables, hit, asked):
                    self._add_wrong(call, Code.HANDED_BLOCKS_WRONG, *said)
            self._loading[name] = start
            return new
        known = self._num_tokens[name]
        if external:
            self._content.load(name, tables, start, start + external, known)
        tables = self._worker.scheduled(name, tables, new)
        start, num_new = start + external, allocation.num_new_tokens
        if allocation.replay:
            self._content.replay(name, allocation.replay)
            start, num_new = allocation.replay.start, num_new + allocation.num_replayed_tokens
        sizes = [group.block_size for group in self._engine.groups]
        named = partial(self._prefixes.name, name)
        all_known = known + progress.num_sampled
        if allocation.hit is None:
            self._content.planned(name, progress.num_computed_tokens)
        for wrong in self._content.compute(name, tables, start, num_new, all_known):
            self._add(explained_by_keys(wrong, sizes, known, named), call)
        self._registrations.computed(name, min(start + num_new, known))
        self._offered.computed(name, start, min(start + num_new, known), before, seen)
        self._judge_estimate(name, seen)
        self._judge_handed(name, self._tables(seen, name), min(start + num_new, known))
        return new

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        call = "cache_blocks"
        tables, known = self._tables(self._named.seen, name), self._num_tokens[name]
        is_loaded = name in self._loading
        if is_loaded:
            self._content.load(name, tables, self._loading.pop(name), num_computed_tokens, known)
        self._ask(call, lambda manager: manager.cache_blocks(name, num_computed_tokens), name)
        if is_loaded and (manager := self._named.zeroing):
            # As a scheduler asks where a load has failed; it changes nothing else.
            start = cut(self._engine, num_computed_tokens)
            again = self._ask(call, lambda _: manager.zeroed_again(name, start), name)
            for said in wrongly_zeroed_again(self._engine, tables, start, again or ()):
                if again is not None:
                    self._add_wrong(call, Code.ZEROED_BLOCKS_WRONG, *said)
        self._observe(call, name)
        self._registrations.computed(name, num_computed_tokens)

    def free(self, name: str) -> None:
        if accountable := self._named.accountable:
            call = "finalize_partial_tail_offloads"
            final = self._ask(call, lambda _: accountable.final_states(name), name)
            for wrong in self._offered.judge_final(final):
                self._add_wrong(call, *wrong)
        self._ask("free", lambda manager: manager.free(name), name)
        self._loading.pop(name, None)
        self._admitted.freed(name)
        self._content.free(name)
        self._worker.freed(name)
        self._registrations.freed(name)
        self._offered.freed(name)
        self._damage.freed(name)
        self._observe("free", name)
        if accountable:
            kept = self._ask("free", lambda _: accountable.kept_of(name), name)
            if kept:
                spec = f"nothing is kept of request {name}"
                wrong = Code.FREED_REQUEST_KEPT, spec, f"{', '.join(kept)} has an entry of it"
                self._add_wrong("free", *wrong)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        call, gone = "evict_blocks", set(block_ids)
        self._registrations.evicted()
        self._ask(call, lambda manager: manager.evict_blocks(sorted(gone)))
        self._must_be_forgotten(call, gone & _registered(self._observe(call)))

    def reset_prefix_cache(self) -> bool:
        call, tables = "reset_prefix_cache", self._named.seen.tables
        held = sorted(name for name, of_all in tables.items() if any(map(any, of_all)))
        done = self._ask(call, lambda manager: manager.reset_prefix_cache())
        if done:
            self._books.reset()
        self._registrations.evicted()
        seen = self._observe(call)
        if done and held:
            due = "a reset is refused while blocks are in use"
            actual = f"it is done while {', '.join(held)} hold blocks"
            self._add_wrong(call, Code.RESET_WHILE_IN_USE, due, actual)
        if done:
            self._must_be_forgotten(call, _registered(seen))
        elif not seen.ref_counts:
            due, actual = "a reset is done where no block is in use", "it is refused"
            self._add_wrong(call, Code.RESET_REFUSED, due, actual)
        return done

    def new_step_starts(self) -> None:
        if manager := self._named.accountable:
            call = "take_boundary_state_offloads"
            offered = self._ask(call, lambda _: manager.take_offered_states())
            if offered is not None:
                for wrong in self._offered.judge(offered, self._named.seen):
                    self._add_wrong(call, *wrong)
        self._at_start = self._named.seen
        self._handed_out.clear()
        self._content.new_step_starts()
        self._ask("new_step_starts", lambda manager: manager.new_step_starts())

    def observe(self) -> Observation:
        return self._named.seen

    def step_ends(self) -> None:
        """Judge the result of the whole step: registered blocks, and their content."""
        seen = self._named.seen
        for wrong in self._content.keys.wrong(seen.cached):
            self._add(explained_by_holders(wrong, seen), "step")
        for violation in self._registrations.step_ends(seen):
            self._add(violation, "step")

    def _judge_report(self, name: str, hit: Hit) -> None:
        """Judge the events about the blocks of a hit, where the request can ask for them."""
        call = "get_computed_blocks"
        try:
            reported = self._named.reported_hit(name)
        except Exception as error:  # nothing else comes from it: the history does not ask for them
            crash = self._judge.crash(call, crash_of(error), name)
            self._add(replace(crash, damages=(), expected=ReportReturns(name)), call)
            return
        if reported is not None:
            for index, (code, due, actual), expected in self._books.wrong_report(
                name, hit, reported, self._named.seen
            ):
                wrong = self._judge.report(index, Defect(code), due, actual, expected)
                self._add(wrong, call)

    def _judge_capped(self, name: str, cap: int) -> None:
        """Judge the same lookup once more, with a cap that its hit exceeds."""
        manager, cached = self._named.capped, self._named.seen.cached
        if manager is None:
            return
        call = "get_computed_blocks"
        hit = self._ask(call, lambda _: manager.get_computed_blocks_up_to(name, cap), name)
        if hit is not None:
            self._add(self._judge.hit(name, self._num_tokens[name], hit, cached, cap), call)

    def _judge_truncated(self, name: str, hit: Hit) -> None:
        """Judge the hit as a scheduler cuts it for a connector that has more."""
        end = cut(self._engine, hit.length)
        if (manager := self._named.handing) and end:
            self._add_handed("get_computed_blocks", name, hit.tables, end, manager.truncated)

    def _judge_handed(self, name: str, tables: Tables, num_tokens: int) -> None:
        """Judge the blocks of its computed tokens that a connector gets."""
        if manager := self._named.handing:
            find = manager.block_ids_for_computed_tokens
            self._add_handed("allocate_slots", name, tables, num_tokens, find)

    def _add_handed(
        self, call: str, name: str, tables: Tables, num_tokens: int, find: _Find
    ) -> None:
        handed = self._ask(call, lambda _: find(name, num_tokens), name)
        for due, actual in wrong_blocks(self._engine, tables, num_tokens, handed):
            self._add_wrong(call, Code.HANDED_BLOCKS_WRONG, due, actual)

    def _judge_estimate(self, name: str, seen: Observation) -> None:
        """Judge how many tokens of a request are said to be cached."""
        if (manager := self._named.accountable) is None:
            return
        call, known = "estimate_cached_tokens", self._num_tokens[name]
        said = self._ask(call, lambda _: manager.estimated_cached_tokens(name), name)
        if said is not None:
            found = wrong_estimate(
                self._engine, self._prefixes, name, known, said, seen, self._fine
            )
            # It is an estimate from the blocks in the table, and from what they are registered as.
            held = frozenset(Block(each) for table in self._tables(seen, name) for each in table)
            for code, due, actual in found:
                violation = self._judge.of_pool(Defect(code), due, actual)
                self._add(replace(violation, evidence=(held,)), call)

    def _judge_local_prefix(self, name: str) -> None:
        """Judge the same lookup as a scheduler with a KV connector does it, and with caps."""
        answer, wrong = self._local_prefix(name, None)
        if answer is not None and answer[0].length and wrong is None:
            below = answer[0].length - 1
            for cap in dict.fromkeys((below, below - below % self._engine.alignment)):
                if cap:
                    self._local_prefix(name, cap)

    def _local_prefix(
        self, name: str, cap: int | None, taken: bool = False
    ) -> tuple[tuple[Hit, bool] | None, Violation | None]:
        """The local prefix of a request, None without one, and how it is wrong, where judged.

        Where the request starts with it (``taken``), it leaves wrong tables.
        """
        manager, cached = self._named.connecting, self._named.seen.cached
        if manager is None:
            return None, None
        call = "get_computed_blocks_for_connector"
        find = partial(manager.get_computed_blocks_for_connector, name, cap)
        answer = self._ask(call, lambda _: find(), name)
        if answer is None or not self._judge.judges_local_prefixes:
            return answer, None
        prefix, flagged = answer
        wrong = self._judge.local_prefix(name, self._num_tokens[name], prefix, flagged, cached, cap)
        if wrong is not None and not taken:
            wrong = replace(wrong, damages=())
        self._add(wrong, call)
        return answer, wrong

    def _judge_refusal(
        self, name: str, allocation: Allocation, before: Observation, seen: Observation
    ) -> None:
        computed = self._progress.get(name, _NOTHING).num_computed_tokens
        if allocation.hit is not None:
            computed = allocation.hit.length + allocation.num_external_computed_tokens
        held, num_tokens = self._tables(before, name), self._num_tokens[name]
        waits = allocation.hit is not None and hits_fresh_block(
            self._engine, allocation.hit, self._at_start, before, self._handed_out
        )
        end = computed + allocation.num_new_tokens
        # Slots for drafts to come are not those of the whole request.
        if not allocation.num_lookahead_tokens and self._admitted.is_promised(name, end):
            due = f"request {name}, which was admitted as a whole, gets slots for {end} tokens"
            actual = f"it gets none; {len(seen.free_queue)} blocks are free"
            gets = Allocated(name, gets=True)
            self._add_wrong("allocate_slots", Code.ADMISSION_NOT_KEPT, due, actual, gets)
        need = most_needed(self._engine, before, allocation, held, computed, num_tokens, waits)
        free, reserved = len(seen.free_queue), allocation.reserved_blocks
        if not is_answered_right(False, 0, need, free, reserved):
            due = f"{need} blocks are enough for request {name}"
            actual = f"it gets none, though {free} are free"
            self._add_wrong("allocate_slots", Code.ALLOCATION_REFUSED, due, actual)

    def _judge_admission(
        self, name: str, allocation: Allocation, before: Observation, seen: Observation
    ) -> None:
        """Judge that a request that is to be admitted as a whole fits."""
        num_tokens, free = self._num_tokens[name], len(before.free_queue)
        if allocation.full_sequence_must_fit and allocation.hit is not None:
            need = least_needed(self._engine, before, allocation.hit.tables, num_tokens)
            if not is_answered_right(True, need, need, free):
                due = f"request {name} is not admitted: it needs {need} blocks, and {free} are free"
                refused = Allocated(name, gets=False)
                said = due, "it is admitted", refused
                self._add_wrong("allocate_slots", Code.ADMITTED_WITHOUT_SPACE, *said)
        self._admitted.allocated(name, allocation, num_tokens, free - len(seen.free_queue))

    # --- blocks held from outside --------------------------------------------------------------

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        call, manager = "remove_skipped_blocks", sharing(self._named.manager)
        self._ask(call, lambda _: manager.remove_skipped_blocks(name, num_computed_tokens), name)
        tables = self._tables(self._observe(call, name), name)
        # Up to 0.25 the steps in flight count as done: what they alone read is given up before.
        done = max(num_computed_tokens, self._progress.get(name, _NOTHING).num_written_tokens)
        for wrong in self._judge.unsent(name, tables, done):
            self._add(wrong, call)
        for unread in self._judge.unread(name, tables, num_computed_tokens):
            self._add(unread, call)
        self._judge_handed(name, tables, num_computed_tokens)

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        call, manager, before = "get_new_blocks", sharing(self._named.manager), self._named.seen
        taken = self._ask(call, lambda _: manager.take_free_blocks(count))
        seen = self._observe(call)
        free = before.free_queue
        due = free if count is None else free[:count]
        if sorted(taken) != sorted(due):
            spec = f"blocks {list(due)} are handed out, the first of the free queue"
            self._add_wrong(call, Code.OTHER_BLOCKS_TAKEN, spec, f"blocks {list(taken)} are")
        self._must_be_forgotten(call, set(taken) & _registered(seen))
        self._admitted.taken_by_others()
        return taken

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        manager = sharing(self._named.manager)
        self._ask("touch", lambda _: manager.hold_blocks(block_ids))
        self._observe("touch", touched=(tuple(block_ids),))
        self._admitted.taken_by_others()

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        call, manager, before = "free_blocks", sharing(self._named.manager), self._named.seen
        self._ask(call, lambda _: manager.release_blocks(block_ids))
        seen = self._observe(call)
        for due, actual in wrongly_released(before, seen, block_ids):
            self._add_wrong(call, Code.EVICTION_ORDER_WRONG, due, actual)

    # --- helpers -------------------------------------------------------------------------------

    def _ask(self, call: str, ask: Callable[[Manager], _T], request: str = "") -> _T:
        try:
            return ask(self._named.manager)
        except Exception as error:
            if isinstance(error, REFUSALS) and not self._judge.is_possible:
                raise Refuses.of(error) from error
            self._crashed(call, crash_of(error), request)
            raise Crashed(error, request) from error

    def _crashed(self, call: str, error: Exception, request: str) -> None:
        """Record a crash. What the pool has wrong after it comes from it, and ends the history."""
        before = self._named.seen
        if manager := self._named.zeroing:
            with suppress(Exception):  # what a call allocated halfway is not of the next one
                manager.take_new_block_ids()
        held = [block for table in self._tables(before, request) for block in table]
        crash = self._judge.crash(call, error, request, held)
        cause = self._add(crash, call) or crash.signature
        try:
            after = self._named.observe()
            self._books.crashed()
        except Exception as unseen:
            self._outcome.ended = f"{crash.actual}; then the pool cannot be read: {unseen!r:.200}"
            return
        self._damage.add(map(Block, _touched(before, after)), cause)
        for wrong in self._judge.pool(after):
            self._outcome.add(wrong, self.step, call, cause)
            self._outcome.ended = f"{crash.actual}; that leaves the pool wrong: {wrong.actual}"

    def _observe(
        self, call: str, name: str = "", touched: Tables = (), copied: Collection[int] = ()
    ) -> Observation:
        before, wrong = self._named.seen, list[Part]()
        seen = self._named.observe(takes_events=self.step not in self._untaken)
        for violation in self._judge.pool(seen):
            self._add(violation, call)
            wrong += violation.damages
        held = {block for table in touched for block in table}
        # What is reported of a wrong pool, or under a key for two contents, is wrong, too.
        known = frozenset([*wrong, *map(Key, self._named.names.ambiguous)])
        for code, due, actual in self._books.wrong(before, seen, call, held, name, copied):
            violation = self._judge.of_pool(Defect(code), due, actual)
            self._add(replace(violation, evidence=(known,)), call)
        if call not in _FORGETTING and not self._rewrites_keys:
            for block, key in lost_keys(before, seen, touched, name):
                self._add(
                    self._judge.of_pool(
                        Defect.of(Code.KEY_LOST, method=call),
                        f"block {block} is found under {key}: nobody has taken it",
                        "it is not found any more",
                    ),
                    call,
                )
        self._damage.observed(seen, wrong)
        self._content.observed(seen)
        return seen

    def _learn(self, call: str, name: str) -> None:
        wrong = self._named.learn(name)
        if wrong is not None:
            violation = self._judge.keys(wrong)
            self._add(violation, call)
            self._damage.add(map(Key, self._named.names.ambiguous), violation.signature)

    def _add(self, violation: Violation | None, call: str) -> Signature | None:
        """Record a violation, if there is one; returns what it is a consequence of."""
        if violation is None:
            return None
        cause = self._damage.cause(violation)
        # What stays wrong is seen again after every call.
        cause = None if cause == violation.signature else cause
        self._damage.add(violation.damages, cause or violation.signature)
        self._outcome.add(violation, self.step, call, cause)
        return cause

    def _add_wrong(
        self, call: str, code: Code, due: str, actual: str, expected: Expected | None = None
    ) -> None:
        wrong = self._judge.of_pool(Defect(code), due, actual)
        self._add(replace(wrong, expected=expected), call)

    def _tables(self, seen: Observation, name: str) -> Tables:
        return seen.tables.get(name, ((),) * len(self._engine.groups))

    def _must_be_forgotten(self, call: str, found: set[int]) -> None:
        if found:
            self._add(
                self._judge.of_pool(
                    Defect.of(Code.KEY_NOT_REMOVED, method=call),
                    f"no key finds a block after {call}",
                    f"keys find blocks {sorted(found)}",
                ),
                call,
            )


def _registered(seen: Observation) -> set[int]:
    return {block for ids in seen.cached.values() for block in ids}


def _touched(before: Observation, after: Observation) -> set[int]:
    """The blocks that are held, or registered, in another way than before."""
    held = before.ref_counts.items() ^ after.ref_counts.items()
    registered = before.cached.items() ^ after.cached.items()
    return {block for block, _ in held} | {block for _, ids in registered for block in ids}

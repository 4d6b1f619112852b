"""Two managers as one: every call goes to both, and everything observable is compared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Difference, Occurrence, Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import History, RequestInput
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import NOTHING_SHARED, JudgedPolicies, Shared
from hitproof.conformance.lockstep.outcome import Outcome
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.managers import (
    Allocation,
    ConnectorManager,
    Hit,
    Manager,
    ManagerSubject,
    Observation,
    Progress,
    Tables,
    sharing,
)
from hitproof.conformance.subject.named_manager import NamedManager
from hitproof.spec.claims import Divergence

_T = TypeVar("_T")


class Stop(Exception):
    """The history ends here."""


class Pair:
    """Both managers as one: `conformance.subject.managers.Manager`."""

    def __init__(
        self,
        history: History,
        real: ManagerSubject,
        reference: ManagerSubject,
        policies: JudgedPolicies,
        outcome: Outcome,
        compared: Sequence[str],
    ) -> None:
        engine = history.engine
        prefixes = Prefixes(
            history.requests, engine.hash_block_size, engine.num_hash_lookahead_tokens
        )
        self._history = history
        self._prefixes = prefixes
        self._real = NamedManager(real, history, prefixes)
        # Names of its own: what one manager confuses, the other may not.
        apart = Prefixes(history.requests, engine.hash_block_size, engine.num_hash_lookahead_tokens)
        self._reference = NamedManager(reference, history, apart)
        self._judge = Judge(engine, history.requests, prefixes, policies)
        self._outcome = outcome
        self._compared = compared
        self._num_tokens: dict[str, int] = {}
        # Computed tokens when the request's tables were last made.
        self._computed: dict[str, int] = {}
        self._progress: dict[str, int] = {}
        # Requests of which a step was planned as if drafts were right that are not, and computed
        # tokens, such drafts included.
        self._rejects: set[str] = set()
        self._planned: dict[str, int] = {}
        # The prefixes that lookups have shown to be shared.
        self._shared: dict[str, Shared] = {}
        # Blocks that only one of the two had registered. A real manager that registers one
        # later would otherwise find it missing from the reference.
        self._put_right: set[tuple[int, Name]] = set()
        # Keys that were evicted on demand. Who registers them again has computed the blocks.
        self._evicted: set[tuple[int, Name]] = set()
        self.step = 0

    def add_request(self, name: str, request: RequestInput) -> None:
        self._both("add_request", lambda manager: manager.add_request(name, request))
        self._num_tokens[name] = len(request.prompt)
        self._learn("add_request", name)

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        self._both("append_output", lambda manager: manager.append_output(name, token_ids))
        self._num_tokens[name] += len(token_ids)
        self._learn("append_output", name)

    def set_progress(self, name: str, progress: Progress) -> None:
        self._progress[name] = progress.num_written_tokens
        self._planned[name] = max(self._planned.get(name, 0), progress.num_computed_tokens)
        for side in (self._real, self._reference):
            side.manager.set_progress(name, progress)

    def block_keys(self, name: str, group: int) -> Sequence[Name]:
        size = self._history.engine.groups[group].block_size
        full = self._num_tokens[name] // size
        return [self._prefixes.name(name, (block + 1) * size) for block in range(full)]

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        return self._real.seen.cached.get((group, key), ())

    def get_computed_blocks(self, name: str) -> Hit:
        call = "get_computed_blocks"
        real, reference = self._both(call, lambda manager: manager.get_computed_blocks(name))
        num_tokens, cached = self._num_tokens[name], self._real.seen.cached
        violation = self._judge.hit(name, num_tokens, real, cached)
        self._shared[name] = self._judge.shared(name, num_tokens, real, cached)
        if violation is None and real == reference:
            self._compare(call)
            return real
        differs = Difference(self.step, call, "hit", str(real), str(reference))
        self._blame(
            self._judge.hit(name, num_tokens, reference, self._reference.seen.cached), differs
        )
        short = violation is not None and violation.signature.divergence == Divergence.LOST_HIT
        self._settle(violation, differs, resynchronised=short)
        self._compare(call, after_finding=True)
        return real

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        call = "allocate_slots"
        real, reference = self._both(call, lambda m: m.allocate_slots(name, allocation))
        self._computed[name] = self._progress.get(name, 0)
        behind = self._computed[name] < self._planned.get(name, 0)
        (self._rejects.add if behind else self._rejects.discard)(name)
        if allocation.hit is not None:
            external = allocation.num_external_computed_tokens
            self._computed[name] = allocation.hit.length + external
        if allocation.num_external_computed_tokens:
            self._judge.loaded.add(name)
        if real != reference:
            differs = Difference(self.step, call, "blocks", str(real), str(reference))
            self._blame(self._judge_pool(self._reference.observe()), differs)
            wrong = self._judge_pool(self._real.observe())
            if wrong is None and real is None:  # The reference shows that the blocks are enough.
                wrong = self._judge.of_pool(
                    Defect(Code.ALLOCATION_REFUSED), str(reference), "no blocks"
                )
            self._settle(wrong, differs)
        self._registered(call, name)
        return real

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self._both("cache_blocks", lambda m: m.cache_blocks(name, num_computed_tokens))
        self._registered("cache_blocks", name)

    def free(self, name: str) -> None:
        self._both("free", lambda manager: manager.free(name))
        self._judge.loaded.discard(name)
        self._planned.pop(name, None)
        self._compare("free")

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        ids = list(block_ids)
        cached = self._real.seen.cached
        self._evicted |= {key for key, blocks in cached.items() if not set(blocks).isdisjoint(ids)}
        self._both("evict_blocks", lambda manager: manager.evict_blocks(ids))
        self._compare("evict_blocks")

    def reset_prefix_cache(self) -> bool:
        call = "reset_prefix_cache"
        real, reference = self._both(call, lambda manager: manager.reset_prefix_cache())
        if real != reference:
            self._settle(None, Difference(self.step, call, "answer", str(real), str(reference)))
        self._compare(call)
        return real

    def get_computed_blocks_for_connector(
        self, name: str, cap: int | None = None
    ) -> tuple[Hit, bool] | None:
        call = "get_computed_blocks_for_connector"
        real, reference = self._both(call, partial(_local_prefix, name=name, cap=cap))
        if real is None or reference is None:
            return None
        if real != reference:
            differs = Difference(self.step, call, "hit", str(real), str(reference))
            self._settle(self._wrong_prefix(name, *real, cap), differs)
        self._compare(call)
        return real

    def _wrong_prefix(
        self, name: str, prefix: Hit, flagged: bool, cap: int | None
    ) -> Violation | None:
        if not self._judge.judges_local_prefixes:
            return None
        tokens, cached = self._num_tokens[name], self._real.seen.cached
        return self._judge.local_prefix(name, tokens, prefix, flagged, cached, cap)

    def remove_skipped_blocks(self, name: str, num_computed_tokens: int) -> None:
        call = "remove_skipped_blocks"
        self._both(call, lambda m: sharing(m).remove_skipped_blocks(name, num_computed_tokens))
        # Up to 0.25 the steps in flight count as done: what they alone read is given up before.
        self._computed[name] = max(num_computed_tokens, self._progress.get(name, 0))
        self._compare(call)

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        call = "get_new_blocks"
        real, reference = self._both(call, lambda m: sharing(m).take_free_blocks(count))
        if list(real) != list(reference):
            differs = Difference(self.step, call, "blocks", str(real), str(reference))
            self._settle(self._judge_pool(self._real.observe()), differs)
        self._compare(call)
        return real

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        self._both("touch", lambda m: sharing(m).hold_blocks(block_ids))
        self._compare("touch")

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        self._both("free_blocks", lambda m: sharing(m).release_blocks(block_ids))
        self._compare("free_blocks")

    def new_step_starts(self) -> None:
        self._both("new_step_starts", lambda manager: manager.new_step_starts())

    def observe(self) -> Observation:
        return self._real.seen

    def _both(self, call: str, ask: Callable[[Manager], _T]) -> tuple[_T, _T]:
        """Call both; an exception in either ends the history."""
        self._outcome.calls += 1
        answers: list[_T] = []
        crashes: list[Exception | None] = []
        for side in (self._real, self._reference):
            try:
                answers.append(ask(side.manager))
                crashes.append(None)
            except Exception as error:
                crashes.append(crash_of(error))
        real, reference = crashes
        differs = Difference(self.step, call, "exception", repr(real), repr(reference))
        if reference is not None:  # The reference must not raise, whatever the real one does.
            self._outcome.fault = differs
        if real is not None:
            self._settle(self._judge.crash(call, real), differs)
        if reference is not None:
            raise Stop
        return answers[0], answers[1]

    def _settle(
        self, violation: Violation | None, difference: Difference, resynchronised: bool = False
    ) -> None:
        """Record a difference; it ends the history unless the two can be resynchronised."""
        if violation is None:
            violation = self._judge.policy(
                difference.call, difference.field, difference.real, difference.reference
            )
        self._outcome.findings.append(
            Occurrence(violation, self.step, difference=difference, resynchronised=resynchronised)
        )
        if not resynchronised:
            raise Stop

    def _blame(self, violation: Violation | None, difference: Difference) -> None:
        """End the history if it is the reference that violates the spec."""
        if violation is not None:
            self._outcome.fault = difference
            raise Stop

    def _judge_pool(self, seen: Observation) -> Violation | None:
        wrong = next(self._judge.pool(seen), None)
        return wrong or self._judge.tables(seen, self._computed, self._rejects)

    def _learn(self, call: str, request: str) -> None:
        real, reference = self._real.learn(request), self._reference.learn(request)
        differs = Difference(self.step, call, "keys", str(real), str(reference))
        if reference is not None:
            self._blame(self._judge.keys(reference), differs)
        if real is not None:
            self._settle(self._judge.keys(real), differs)

    def _registered(self, call: str, request: str) -> None:
        """Compare after a call that registers blocks, and settle what only one registered."""
        real, reference = self._real.observe().cached, self._reference.observe().cached
        extra = self._only(real, reference)
        missing = self._only(reference, real)
        if not extra and not missing:
            self._compare(call, observed=True)
            return
        differs = Difference(self.step, call, "cached", _shown(extra), _shown(missing))
        wrong_pool = self._judge_pool(self._real.seen)
        if wrong_pool is not None:
            self._settle(wrong_pool, differs)
        violations = []
        for only, by_real in ((extra, True), (missing, False)):
            for group, name in [key for key in only if key not in self._put_right]:
                # A block may wait until what several MTP modules keep in it is final; replay knows.
                if self._history.engine.num_prefill_lookahead > 1:
                    continue
                if by_real:
                    if (group, name) in self._evicted:
                        continue
                    # Other blocks that the reference registers follow its release's policy.
                    self._blame(self._judge_block(request, group, name, False), differs)
                    if self._is_optional(request, group, name):
                        continue
                wrong = self._judge_block(request, group, name, by_real)
                # The reference keeps what a shared prefix may need, and a bit more.
                if wrong is not None or by_real or not self._is_shared(request, group, name):
                    violations.append(wrong)
        for violation in dict.fromkeys(violations):
            self._settle(violation, differs, resynchronised=violation is not None)
        self._put_right |= extra.keys() | missing.keys()
        if extra:
            self._real.manager.evict_blocks(_ids(extra))
        if missing:
            self._reference.manager.evict_blocks(_ids(missing))
        self._compare(call, after_finding=True)

    @staticmethod
    def _only(
        mine: Mapping[tuple[int, Name], tuple[int, ...]],
        other: Mapping[tuple[int, Name], tuple[int, ...]],
    ) -> dict[tuple[int, Name], tuple[int, ...]]:
        """The registered blocks of one side that the other side has not registered."""
        return {
            key: found
            for key, ids in mine.items()
            if (found := tuple(sorted(set(ids) - set(other.get(key, ())))))
        }

    def _is_optional(self, request: str, group: int, name: Name) -> bool:
        """Whether sparse retention may keep a block or not.

        One of a hit that may be left where a promised one is lost is judged by replay only, which
        waits for what becomes of the promised one.
        """
        end = self._prefixes.end(name)
        if end is None or not self._judge.promises.is_retained(self._judge.groups[group]):
            return False
        block = end // self._history.engine.groups[group].block_size - 1
        shared = self._shared.get(request, NOTHING_SHARED)
        return self._judge.may_be_left(request, group, block) or (
            self._judge.registered(request, group, block, True, shared) is None
        )

    def _is_shared(self, request: str, group: int, name: Name) -> bool:
        """Whether sparse retention may keep a block for a shared prefix, or not."""
        shared = self._shared.get(request, NOTHING_SHARED)
        block = (self._prefixes.end(name) or 0) // self._history.engine.groups[group].block_size - 1
        return self._judge.promises.may_be_retained(group, block, shared.seen)

    def _judge_block(
        self, request: str, group: int, name: Name, is_registered: bool
    ) -> Violation | None:
        end = self._prefixes.end(name)
        if end is None:
            return None
        block = end // self._history.engine.groups[group].block_size - 1
        shared = self._shared.get(request, NOTHING_SHARED)
        return self._judge.registered(request, group, block, is_registered, shared)

    def _compare(self, call: str, *, observed: bool = False, after_finding: bool = False) -> None:
        """Compare everything observable, except statistics that a finding has changed."""
        if not observed:
            self._real.observe()
            self._reference.observe()
        real, reference = self._real.seen, self._reference.seen
        for name in self._compared:
            if after_finding and name == "stats":
                continue
            if name == "common_prefix" and real.held_outside:
                continue  # vLLM counts references: too few cost speed, too many are judged
            mine, other = getattr(real, name), getattr(reference, name)
            if mine != other and mine is not None and other is not None:
                difference = Difference(self.step, call, name, _shown(mine), _shown(other))
                self._blame(self._judge_pool(reference), difference)
                self._settle(self._judge_pool(real), difference)
        wrong = next(self._judge.pool(real), None)
        if wrong is not None:
            self._outcome.findings.append(Occurrence(wrong, self.step))
            raise Stop


def _local_prefix(manager: Manager, name: str, cap: int | None) -> tuple[Hit, bool] | None:
    """The local prefix of a request; None where the manager reports none."""
    if not isinstance(manager, ConnectorManager):
        return None
    return manager.get_computed_blocks_for_connector(name, cap)


def _ids(only: Mapping[tuple[int, Name], tuple[int, ...]]) -> list[int]:
    return [block for ids in only.values() for block in ids]


def _shown(value: Any) -> str:
    return str(value)

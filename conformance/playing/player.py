"""The player: a scheduler's bookkeeping around a manager, so that histories stay legal.

It does what vLLM's ``Scheduler`` does between calls of ``KVCacheManager``, and nothing more: it
decides which tokens are computed, how far a chunk goes, and which requests are preempted.

It is longer than other modules, as it has each step of a history.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import TypeAlias

from hitproof.conformance.histories.schema import (
    Evict,
    Expect,
    Finish,
    History,
    Hold,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    Release,
    Reset,
    Results,
    Schedule,
    Sent,
    Step,
    Take,
)
from hitproof.conformance.playing.chunks import Chunks, Prefill
from hitproof.conformance.playing.in_flight import InFlight, Outside, Pass
from hitproof.conformance.subject.managers import Allocation, ConnectorManager, Hit, Manager
from hitproof.spec.attention import replay_start
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.releases.horizons import LookaheadHorizon

SKIPPED = "skipped"
"""How the answer for a step begins that was not done at all."""


class _State(StrEnum):
    """Where a request is in its life."""

    WAITING = auto()
    LOADING = auto()
    RUNNING = auto()
    SENDING = auto()
    FINISHED = auto()


@dataclass
class _Request:
    num_tokens: int
    num_prompt_tokens: int
    output: list[int]
    state: _State = _State.WAITING
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    in_this_step: bool = False
    junction: int = 0


@dataclass
class Player:
    """Plays a history on a manager, step by step. Exceptions of the manager propagate.

    Where hits may end inside blocks, ``fine_tail`` says for whose hit the end of a prompt is kept,
    and ``horizon`` how far past it lookups may peek. ``replayed`` is the window outside the prefix
    cache that is computed again after a hit, 0 for none; no connector loads it.
    """

    history: History
    manager: Manager
    fine_tail: FineTail = FineTail.NONE
    horizon: LookaheadHorizon = LookaheadHorizon.HASHED
    replayed: int = 0
    hits: dict[str, Hit] = field(default_factory=dict)
    """The result of each request's last lookup."""
    _requests: dict[str, _Request] = field(default_factory=dict)
    _running: list[str] = field(default_factory=list)
    _changed: list[str] = field(default_factory=list)
    _in_flight: InFlight = field(default_factory=InFlight)
    _step: int = 0

    def __post_init__(self) -> None:
        self._engine = self.history.engine
        self._chunks = Chunks(self._engine, self.fine_tail, self.horizon)
        self._mamba_block_size = self._engine.mamba_block_size
        # Other groups keep no blocks before the window of the load's end. vLLM: the scheduler's
        # ``_update_requests_with_invalid_blocks``.
        kinds = [group.kind for group in self._engine.groups]
        self._may_lose_a_part = kinds == [GroupKind.FULL_ATTENTION]
        self._outside = Outside(self.manager)

    def play(self, step: Step) -> str:
        """Play one step; returns how it deviated, or "" when it was done as asked."""
        self._changed.clear()
        deviation = self._play(step)
        return (
            deviation
            if deviation.startswith(SKIPPED)
            else "; ".join(filter(None, [deviation, *self._changed]))
        )

    def _play(self, step: Step) -> str:
        match step:
            case Schedule():
                return self._schedule(step)
            case Lookup(name):
                return self._lookup(name)
            case Load():
                return self._load(step)
            case Loaded(name, right):
                return self._loaded(name, right)
            case Preempt(name):
                return self._preempt_running(name)
            case Finish():
                return self._finish(step)
            case Sent(name):
                return self._sent(name)
            case Hold():
                return self._hold(step)
            case Take(count, holder):
                return self._outside.take(holder, count)
            case Release(holder):
                return self._outside.release(holder)
            case Evict():
                return self._evict(step)
            case Reset():
                return "" if self.manager.reset_prefix_cache() else "refused: blocks are in use"
            case NewStep():
                self._new_step()
                return ""
            case Results():
                return self._results()
            case Expect(name):
                self._request(name)
                return ""

    def abandon(self, name: str) -> None:
        """Go on without a request for which the manager raised; "" for none.

        Its blocks stay where they are: no call can be made for it any more.
        """
        if name:
            request = self._requests.setdefault(name, _Request(0, 0, []))
            request.state = _State.FINISHED
            self._in_flight.forget(name)
            if name in self._running:
                self._running.remove(name)

    def arrive(self, name: str) -> None:
        """Let a request arrive, unless it has arrived already."""
        self._request(name)

    def standing(self) -> dict[str, tuple[str, int, int]]:
        """The state, computed tokens and tokens of each request that has arrived."""
        return {
            name: (str(each.state), each.num_computed_tokens, each.num_tokens)
            for name, each in self._requests.items()
        }

    def num_computed_tokens(self, name: str) -> int:
        """The computed tokens of a request that has arrived."""
        return self._requests[name].num_computed_tokens

    def _request(self, name: str) -> _Request:
        """The request's state; the request arrives at the first call."""
        if name not in self._requests:
            given = self.history.requests[name]
            self.manager.add_request(name, given)
            prompt = len(given.prompt)
            self._requests[name] = _Request(prompt, prompt, list(given.output))
        return self._requests[name]

    def _new_step(self) -> None:
        while self._in_flight.num_steps >= self._engine.max_concurrent_batches:
            self._arrive(self._in_flight.take_oldest())
        self._step += 1
        self.manager.new_step_starts()
        for request in self._requests.values():
            request.in_this_step = False

    def _takes_part(self, request: _Request) -> None:
        """A request is scheduled once in each of the engine's steps."""
        if request.in_this_step:
            self._new_step()
        request.in_this_step = True

    def _report(self, name: str) -> None:
        request = self._requests[name]
        running = request.state is _State.RUNNING
        computed, times = request.num_computed_tokens, request.num_preemptions
        self.manager.set_progress(name, self._in_flight.progress(name, computed, times, running))

    def _schedule(self, step: Schedule) -> str:
        request = self._request(step.request)
        match request.state:
            case _State.WAITING:
                return self._admit(step, request)
            case _State.RUNNING:
                return self._go_on(step, request)
            case _:
                return f"{SKIPPED}: the request does not wait or run"

    def _admit(self, step: Schedule, request: _Request) -> str:
        name, hit, external, again = step.request, None, 0, range(0)
        self._await(name)
        self._takes_part(request)
        computed = request.num_computed_tokens
        if computed == 0:
            hit, external = self._found(step, request)
            hit, again = self._taken(hit)
            computed = hit.length + external - len(again)
        num_new = self._chunk(step, request, computed, request.num_tokens - computed)
        if num_new == 0:
            return f"{SKIPPED}: too few tokens for a chunk that ends on a block edge"
        tables = self.manager.allocate_slots(
            name,
            Allocation(
                max(0, num_new - len(again)),
                hit,
                self._engine.lookahead_slots,
                external,
                full_sequence_must_fit=self._engine.full_sequence_must_fit,
                has_scheduled_reqs=bool(self._running),
                replay=again,
                num_replayed_tokens=min(num_new, len(again)),
            ),
        )
        if tables is None:
            return "no space"
        request.state = _State.RUNNING
        request.num_computed_tokens = computed
        self._running.append(name)
        if external and hit is not None and self._loses(step, hit.length + external):
            self._lost(step, request)
        else:
            self._computed(step, request, num_new, 0, 0)
        return ""

    def _found(self, step: Schedule | Load, request: _Request) -> tuple[Hit, int]:
        """A waiting request's hit, and how many tokens a connector has beyond it."""
        hit, flagged = self._local_prefix(step) if step.local_prefix else (None, False)
        if hit is None:
            hit = self._look_up(step.request)
        external = self._beyond(step, request, hit.length)
        if flagged and not external:
            hit = self._look_up(step.request)
            external = self._beyond(step, request, hit.length)
        return hit, external

    def _taken(self, hit: Hit) -> tuple[Hit, range]:
        """The hit as it is taken, and its last tokens that are computed again."""
        start = int(replay_start(hit.length, self.replayed)) if self.replayed else hit.length
        if hit.length and not start:  # all of it would be computed again
            return Hit(0, tuple(() for _ in hit.tables)), range(0)
        return hit, range(start, hit.length)

    def _beyond(self, step: Schedule | Load, request: _Request, hit: int) -> int:
        if self.replayed:
            asked = step.tokens if isinstance(step, Load) else step.external
            self._change(0, asked, "tokens are loaded, as no connector has the window")
            return 0
        if isinstance(step, Load):
            return self._loadable(step, request, hit)
        return self._external(step, request.num_tokens - 1 - hit)

    def _local_prefix(self, step: Schedule | Load) -> tuple[Hit | None, bool]:
        """The local prefix and whether it lacks a state; None where the manager reports none."""
        name, found = step.request, None
        if isinstance(self.manager, ConnectorManager):
            found = self.manager.get_computed_blocks_for_connector(name)
        if found is None:
            self._changed.append("the usual hit is taken: no local prefix is reported")
            return None, False
        self.hits[name], self._requests[name].junction = found[0], 0
        return found

    def _loses(self, step: Schedule, loaded: int) -> bool:
        """Whether a part of what a connector had at once turns out to be wrong."""
        if step.valid is None or step.valid >= loaded:
            return False
        able = self._may_lose_a_part and not step.in_flight and not self._in_flight.num_steps
        if not able:
            self._changed.append("all external tokens are right")
        return able

    def _lost(self, step: Schedule, request: _Request) -> None:
        """The connector reports invalid blocks together with the results of the step."""
        assert step.valid is not None
        name, size = step.request, self._engine.groups[0].block_size
        first = step.valid // size
        request.num_computed_tokens = first * size
        self._report(name)
        if step.recompute:
            return
        table = self.manager.observe().tables[name][0]
        self.manager.evict_blocks([block for block in table[first:] if block])
        self._running.remove(name)
        self.manager.free(name)
        request.state = _State.FINISHED

    def _go_on(self, step: Schedule, request: _Request) -> str:
        name, waits = step.request, self._in_flight.num_steps > 0
        if waits:
            self._takes_part(request)
        computed = request.num_computed_tokens
        left = request.num_tokens + self._in_flight.placeholders(name) - computed
        if left == 0:
            return f"{SKIPPED}: the request has no output left to continue with"
        drafts = accepted = 0
        room = min(self._engine.max_model_len - 2 - computed, self._engine.max_chunk - 1)
        if room < 0 and self._in_flight.tokens(name):
            return f"{SKIPPED}: the request may be as long as it can be, if all drafts are right"
        if left == 1 and computed >= request.num_prompt_tokens:
            drafts = max(0, min(step.drafts, self._engine.num_speculative_tokens, room))
            accepted = max(0, min(step.accepted, drafts, len(request.output) - 1))
        self._change(drafts, step.drafts, "drafts are verified")
        self._change(accepted, step.accepted, "drafts are accepted")
        num_new = self._chunk(step, request, computed, left)
        if num_new == 0:
            return f"{SKIPPED}: too few tokens for a chunk that ends on a block edge"
        if not waits:
            self._takes_part(request)
        allocation = Allocation(num_new + drafts, num_lookahead_tokens=self._engine.lookahead_slots)
        preempted = []
        while self.manager.allocate_slots(name, allocation) is None:
            preempted.append(self._running[-1])
            self._preempt(preempted[-1])
            if preempted[-1] == name:
                break
        else:
            self._computed(step, request, num_new, drafts, accepted)
        return f"preempted {', '.join(preempted)}" if preempted else ""

    def _change(self, done: int, asked: int, what: str) -> None:
        """Note that something was done otherwise than asked."""
        if done != asked:
            self._changed.append(f"{done} {what}, not {asked}")

    def _external(self, step: Schedule, most: int) -> int:
        """How many tokens a connector has at once, beyond the hit."""
        external = max(0, min(step.external, most))
        whole = external // self._engine.alignment * self._engine.alignment
        if step.exactly:
            whole = external
        self._change(whole, step.external, "external tokens are taken")
        return whole

    def _chunk(self, step: Schedule, request: _Request, computed: int, left: int) -> int:
        """How many tokens to compute: as vLLM's scheduler would, or exactly as asked."""
        most = min(step.tokens or left, left, self._engine.max_chunk)
        tokens = request.num_prompt_tokens, request.num_tokens
        usual = self._chunks.usual(most, Prefill(computed, *tokens, request.junction))
        if step.exactly and usual != most:
            self._changed.append(f"as asked; vLLM's scheduler would compute {usual} tokens")
            return most
        if step.tokens is not None and usual != min(step.tokens, left):
            self._changed.append(f"{usual} tokens are computed, not {min(step.tokens, left)}")
        return usual

    def _computed(
        self, step: Schedule, request: _Request, num_new: int, drafts: int, accepted: int
    ) -> None:
        """The model runs: tokens are computed, and the next of the output are sampled."""
        name, sampled = step.request, list[int]()
        request.num_computed_tokens += num_new
        if request.num_computed_tokens == request.num_tokens + self._in_flight.placeholders(name):
            sampled = request.output[: 1 + accepted]
            del request.output[: 1 + accepted]
        request.num_computed_tokens += drafts
        alone = not step.in_flight and not self._in_flight.num_steps
        rejected = drafts - min(drafts, accepted)
        self._in_flight.add(
            Pass(self._step, name, num_new + drafts, tuple(sampled), rejected, alone)
        )
        if not alone:
            self._report(name)
        while not step.in_flight and self._in_flight.num_steps:
            self._arrive(self._in_flight.take_oldest())

    def _results(self) -> str:
        if not self._in_flight.num_steps:
            return f"{SKIPPED}: no step is in flight"
        passes = self._in_flight.take_oldest()
        self._arrive(passes)
        if passes[0].step == self._step:
            self._new_step()
        return ""

    def _arrive(self, passes: list[Pass]) -> None:
        """The results of a step are known. vLLM: ``Scheduler.update_from_output``."""
        for each in passes:
            name, request = each.request, self._requests[each.request]
            self._in_flight.remove(each)
            if not each.stale:
                request.num_computed_tokens -= each.rejected
            if each.sampled:
                request.num_tokens += len(each.sampled)
                self.manager.append_output(name, each.sampled)
            self._report(name)
            if each.sampled and not each.stale and not each.alone:
                settled = request.num_computed_tokens - self._in_flight.tokens(name)
                self.manager.cache_blocks(name, settled)

    def _await(self, name: str) -> None:
        """A preempted request is not admitted again before the results of its steps are known."""
        while self._in_flight.tokens(name):
            self._arrive(self._in_flight.take_oldest())

    def _look_up(self, name: str) -> Hit:
        self.hits[name] = self.manager.get_computed_blocks(name)
        self._requests[name].junction = self.hits[name].shared_prefix_boundary
        return self.hits[name]

    def _lookup(self, name: str) -> str:
        request = self._request(name)
        if request.state is not _State.WAITING or request.num_computed_tokens:
            return f"{SKIPPED}: the request does not wait for a lookup"
        self._look_up(name)
        return ""

    def _load(self, step: Load) -> str:
        name, request = step.request, self._request(step.request)
        if request.state is not _State.WAITING or request.num_computed_tokens:
            return f"{SKIPPED}: the request does not wait for a lookup"
        self._await(name)
        self._takes_part(request)
        hit, external = self._found(step, request)
        if external == 0:
            return f"{SKIPPED}: too few tokens for a whole Mamba block"
        lookahead = 0 if self._engine.use_eagle else self._engine.lookahead_slots
        tables = self.manager.allocate_slots(
            name,
            Allocation(
                0,
                hit,
                lookahead,
                external,
                delay_cache_blocks=True,
                full_sequence_must_fit=self._engine.full_sequence_must_fit,
                reserved_blocks=step.reserved_blocks,
                has_scheduled_reqs=bool(self._running),
            ),
        )
        if tables is None:
            return "no space"
        request.state = _State.LOADING
        request.num_computed_tokens = hit.length + external
        self._report(name)
        return ""

    def _loadable(self, step: Load, request: _Request, hit: int) -> int:
        """How many tokens a connector loads: with Mamba, whole blocks or the whole request.

        A state from inside a block would be taken for that of the block's end.
        """
        end, size = min(hit + step.tokens, request.num_tokens), self._mamba_block_size
        if size is not None and end < request.num_tokens and not step.exactly:
            end = max(hit, end // size * size)
        self._change(end - hit, step.tokens, "tokens are loaded")
        return end - hit

    def _loaded(self, name: str, right: int | None) -> str:
        request = self._request(name)
        if request.state is not _State.LOADING:
            return f"{SKIPPED}: the request does not load"
        if right and not self._may_lose_a_part:
            return f"{SKIPPED}: a load fails in part with one full-attention group only"
        request.state = _State.WAITING
        if right is not None:
            hit = self.hits[name].length if right else 0  # a load does not invalidate it
            request.num_computed_tokens = min(request.num_computed_tokens, max(right, hit))
            self._report(name)
        if request.num_computed_tokens:
            self.manager.cache_blocks(name, request.num_computed_tokens)
            # The last token is recomputed, to sample the next one.
            request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
        else:
            self.manager.free(name)
        self._report(name)
        return ""

    def _preempt_running(self, name: str) -> str:
        if self._request(name).state is not _State.RUNNING:
            return f"{SKIPPED}: the request does not run"
        self._preempt(name)
        return ""

    def _preempt(self, name: str) -> None:
        request = self._requests[name]
        self.manager.free(name)
        self._running.remove(name)
        self._in_flight.make_stale(name)
        request.state = _State.WAITING
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._report(name)

    def _finish(self, step: Finish) -> str:
        name, request = step.request, self._request(step.request)
        sends = step.sending and request.state in (_State.RUNNING, _State.LOADING)
        if request.state in (_State.FINISHED, _State.SENDING):
            return f"{SKIPPED}: the request is finished"
        if request.state is _State.LOADING and not sends:
            return f"{SKIPPED}: the request loads"
        if request.state is _State.RUNNING:
            self._running.remove(name)
        settled = request.num_computed_tokens - self._in_flight.tokens(name)
        self._in_flight.forget(name)
        if sends:
            self._outside.manager.remove_skipped_blocks(name, max(0, settled))
            request.state = _State.SENDING
            return ""
        self._change(0, int(step.sending), "requests are sent")
        self.manager.free(name)
        request.state = _State.FINISHED
        return ""

    def _sent(self, name: str) -> str:
        if self._request(name).state is not _State.SENDING:
            return f"{SKIPPED}: no connector sends the request"
        self.manager.free(name)
        self._requests[name].state = _State.FINISHED
        return ""

    def _hold(self, step: Hold) -> str:
        self._request(step.request)
        keys = self.manager.block_keys(step.request, step.group)
        named = [keys[block] for block in step.blocks if block < len(keys)]
        copies = [self.manager.cached_blocks(step.group, key) for key in named]
        found = list(dict.fromkeys(ids[0] for ids in copies if ids))
        self._change(len(found), len(step.blocks), "blocks are held")
        return self._outside.hold(step.holder, found)

    def _evict(self, step: Evict) -> str:
        self._request(step.request)
        keys = self.manager.block_keys(step.request, step.group)
        found = [
            block_id
            for block in step.blocks
            if block < len(keys)
            for block_id in self.manager.cached_blocks(step.group, keys[block])
        ]
        self.manager.evict_blocks(found)
        return "" if found else f"{SKIPPED}: none of the blocks is cached"


Playing: TypeAlias = Callable[[History, Manager], Player]
"""What makes the player of a history on a manager."""

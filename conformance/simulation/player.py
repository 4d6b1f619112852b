"""The player: continuous batching as vLLM's scheduler does it, without anything that judges it.

Running requests get their next chunk first, the last one is preempted where blocks are missing, and
then waiting requests are admitted. What takes time in a manager is timed call by call.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter, thread_time
from typing import Any, TypeVar

from hitproof.conformance.explain.reuse import UNREGISTERED
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.playing.chunks import Chunks, Prefill
from hitproof.conformance.simulation.bounds import cache_setup
from hitproof.conformance.simulation.hash_file import Arrival, HashFile
from hitproof.conformance.simulation.subject import Lookup, SimulatedManager
from hitproof.spec.groups import GroupKind, geometry
from hitproof.spec.hits import longest_valid_hit, required_run
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import replay_boundary

_DECODED = 16
"""Output tokens that one call gives slots for: every step would take a call of its own, and leave
the cache as it is."""
_SAMPLES = 32
"""How often the cache is counted by group, at most."""
_T = TypeVar("_T")


@dataclass
class Served:
    """What became of one request.

    Attributes:
        request: its number.
        hit: what it hit, in tokens.
        valid: the longest valid hit by the spec in the cache of that moment.
        refused: how often it was not admitted for lack of blocks.
        preempted: how often it was preempted.
        finished: whether it could be computed at all.
        unregistered: the code of what it did not register, as far as none of it can have been
            evicted; "" for nothing.
        evictions: keys that were evicted until it ended, by all requests.
        held: blocks that it held in each group when it ended.
        horizon: how far its lookup looked, in tokens; None where that has no single horizon.
        junctions: whether a prefix that its lookup showed to be shared is kept.
        ends: its hit and the boundaries at which its steps ended; None without recurrent states.
        of_tier: what a second tier was asked for of the hit, in tokens.
        tier: what the tier could serve; None without one.
    """

    request: int
    hit: int = 0
    valid: int = 0
    refused: int = 0
    preempted: int = 0
    finished: bool = True
    unregistered: str = ""
    evictions: int = 0
    held: list[int] = field(default_factory=list)
    horizon: int | None = None
    junctions: bool = False
    ends: list[int] | None = None
    of_tier: int = 0
    tier: dict[str, Any] | None = None


@dataclass
class _Running:
    served: Served
    arrival: Arrival
    request: Any
    left: int
    hit: Lookup | None = None
    computed: int = 0
    total: int = 0
    safe_until: int = 0
    """While no more blocks than this are handed out, none that it registers can be evicted."""


class Simulation:
    """One workload on one manager.

    Arguments:
        manager: the manager.
        engine: its configuration.
        arrivals: the requests.
        hashes: their hashes.
        max_num_seqs: the most requests that run at a time.

    Attributes:
        served: what became of the requests that have ended, in the order in which they did.
        samples: cached keys of each group, after some of the requests: pairs of how many have
            ended, and the counts.
        operations: calls and processor seconds, by operation.
        tokens: how many tokens were computed.
    """

    def __init__(
        self,
        manager: SimulatedManager,
        engine: EngineConfiguration,
        arrivals: Sequence[Arrival],
        hashes: HashFile,
        max_num_seqs: int = 1,
    ) -> None:
        self._manager, self._engine, self._arrivals = manager, engine, arrivals
        self._hashes, self._max_num_seqs = hashes, max_num_seqs
        self._chunks = Chunks(engine, FineTail.NONE, LookaheadHorizon.CAPPED)
        self._setup = cache_setup(engine)
        # Where each group drops its lookahead block on its own there is no single horizon.
        self._judges = manager.horizon is not LookaheadHorizon.CANDIDATE or not engine.use_eagle
        self._has_states = engine.mamba_block_size is not None
        self._waiting = deque(range(len(arrivals)))
        self._preempted: deque[_Running] = deque()
        self._head: _Running | None = None
        self._running: list[_Running] = []
        self.served: list[Served] = []
        self.samples: list[tuple[int, list[int]]] = []
        self.operations = {name: [0, 0.0] for name in ("lookup", "allocate", "free")}
        self.tokens = 0
        self._steps = self._play()
        self.done = False

    def advance(self, seconds: float) -> None:
        """Play for so long, or to the end."""
        until = perf_counter() + seconds
        for _ in self._steps:
            if perf_counter() >= until:
                return
        self.done = True

    def results(self) -> dict[str, Any]:
        """All that was measured, as JSON."""
        return {
            "served": [asdict(each) for each in self.served],
            "samples": self.samples,
            "operations": {
                name: {"calls": calls, "seconds": seconds}
                for name, (calls, seconds) in self.operations.items()
            },
        }

    def _play(self) -> Iterator[None]:
        while self._running or self._next() is not None:
            self._manager.new_step_starts()
            budget = self._engine.max_chunk
            before = len(self.served), self.tokens
            preempting = False
            for running in list(self._running):
                if running in self._running and budget:
                    wanted = self._wanted(running, budget)
                    while wanted and not self._allocate(running, wanted, None):
                        preempting = True
                        victim = self._running[-1]
                        self._preempt(victim)
                        if victim is running:
                            break
                    else:
                        budget -= wanted
                        self._compute(running, wanted)
            while budget and not preempting and len(self._running) < self._max_num_seqs:
                head = self._next()
                if head is None or (head.arrival.lookup_only and self._running):
                    break
                if head.arrival.lookup_only:
                    self._look(head)
                    self._take()
                    self._end(head)
                    yield
                    continue
                admitted = self._admit(head, budget)
                if not admitted:
                    break
                budget -= admitted
            if before == (len(self.served), self.tokens) and not preempting:
                self._give_up()
            yield

    def _next(self) -> _Running | None:
        """The next request that waits, those that were preempted first."""
        if self._preempted:
            return self._preempted[0]
        if self._head is None and self._waiting:
            number = self._waiting[0]
            arrival = self._arrivals[number]
            hashes = self._hashes.read(arrival)
            request = self._manager.arrive(str(number), arrival.prompt, hashes)
            self._head = _Running(
                Served(number), arrival, request, arrival.output, total=arrival.prompt
            )
        return self._head

    def _take(self) -> None:
        """Take it out of those that wait."""
        if self._preempted:
            self._preempted.popleft()
        else:
            self._head = None
            self._waiting.popleft()

    def _look(self, running: _Running) -> Lookup:
        hit = self._timed("lookup", lambda: self._manager.lookup(running.request))
        if not running.served.preempted:
            running.served.hit = running.served.valid = hit.length
            if self._has_states:
                running.served.ends = [hit.length]
            if self._judges:
                running.served.horizon = self._horizon(running)
                running.served.junctions = self._manager.junctions
                running.served.valid = self._valid(running)
        return hit

    def _admit(self, running: _Running, budget: int) -> int:
        """How many tokens the next request computes now; 0 where it is refused."""
        hit = self._look(running)
        running.computed = hit.length
        wanted = self._wanted(running, budget)
        running.computed = 0
        if not wanted:
            return 0
        running.safe_until = self._manager.handed_out.taken + self._manager.num_free()
        if not self._allocate(running, wanted, hit):
            running.served.refused += 1
            return 0
        self._take()
        running.computed = hit.length
        self._running.append(running)
        self._compute(running, wanted)
        return wanted

    def _wanted(self, running: _Running, budget: int) -> int:
        """How many tokens the next step computes."""
        most = min(budget, running.total - running.computed)
        prefill = Prefill(running.computed, running.arrival.prompt, running.total, 0)
        return self._chunks.usual(most, prefill)

    def _allocate(self, running: _Running, tokens: int, hit: Lookup | None) -> bool:
        return self._timed("allocate", lambda: self._manager.allocate(running.request, tokens, hit))

    def _compute(self, running: _Running, tokens: int) -> None:
        running.computed += tokens
        self.tokens += tokens
        self._manager.computed(running.request, running.computed)
        if running.served.ends is not None and running.computed % self._setup.alignment == 0:
            running.served.ends.append(running.computed)
        if running.computed < running.total:
            return
        if running.left:
            sampled = min(_DECODED, running.left)
            self._manager.append(running.request, sampled)
            running.left -= sampled
            # Nothing is computed of the last one.
            running.total += sampled - (not running.left)
        if running.computed == running.total:
            self._running.remove(running)
            self._end(running)

    def _end(self, running: _Running) -> None:
        served = running.served
        if not running.arrival.lookup_only:
            served.held = self._manager.held(running.request)
            nothing_lost = self._manager.handed_out.taken <= running.safe_until
            if nothing_lost and served.finished and not served.preempted:
                served.unregistered = self._unregistered(running)
            self._timed("free", lambda: self._manager.free(running.request))
        served.evictions = self._manager.handed_out.evictions
        self.served.append(served)
        every = max(1, len(self._arrivals) // _SAMPLES)
        if len(self.served) % every == 0:
            self.samples.append((len(self.served), self._manager.cached()))

    def _preempt(self, running: _Running) -> None:
        if len(self._running) == 1:  # alone it has all blocks, and they are too few
            self._give_up()
            return
        self._running.remove(running)
        self._timed("free", lambda: self._manager.free(running.request))
        running.served.preempted += 1
        running.computed = 0
        self._manager.computed(running.request, 0)
        self._preempted.appendleft(running)

    def _give_up(self) -> None:
        """Nothing goes on: the first request that runs, or else that waits, never ends."""
        stuck = self._running[0] if self._running else self._next()
        assert stuck is not None
        stuck.served.finished = False
        if stuck in self._running:
            self._running.remove(stuck)
        else:
            self._take()
        self._end(stuck)

    def _horizon(self, running: _Running) -> int:
        """How far its lookup may look, in tokens; with one group never past the cap."""
        policy = self._manager.horizon
        if len(self._engine.groups) == 1:
            policy = LookaheadHorizon.CAPPED
        return int(horizon(policy, running.arrival.prompt))

    def _valid(self, running: _Running, cap: int | None = None, reach: int | None = None) -> int:
        """The longest valid hit of its prompt in the cache, by the spec; by default of a resend."""
        manager, setup = self._manager, self._setup
        cap = running.arrival.prompt - 1 if cap is None else cap
        reach = self._horizon(running) if reach is None else reach
        for index, group in enumerate(setup.looked_up):
            if group.prefix_cacheable and group.kind is GroupKind.FULL_ATTENTION:
                limit = reach // group.block_size
                cached = next(
                    (b for b in range(limit) if not manager.has_block(running.request, index, b)),
                    limit,
                )
                ahead = geometry(group, setup.alignment).lookahead
                cap = min(cap, max(0, cached - ahead) * group.block_size)

        def has_block(group: int, block: int) -> bool:
            full = setup.looked_up[group].kind is GroupKind.FULL_ATTENTION
            return full or manager.has_block(running.request, group, block)

        return longest_valid_hit(setup.looked_up, setup.alignment, cap, reach, has_block)

    def _unregistered(self, running: _Running) -> str:
        """The code of a block that a resend or an extension lacks already; "" for none."""
        prompt = running.arrival.prompt
        reach, setup = self._horizon(running), self._setup
        boundary = replay_boundary(prompt - 1, reach, setup.lookahead, setup.alignment)
        if not self._judges:
            return ""
        # An extension hits all of it.
        extension = replay_boundary(prompt, prompt, setup.lookahead, setup.alignment)
        if self._valid(running, prompt, prompt) < extension:
            boundary = extension
        elif self._valid(running) >= boundary:
            return ""
        if self._setup.retention is not None:
            return Code.PROMISED_BLOCK_UNREGISTERED
        for index, group in enumerate(self._setup.looked_up):
            end = boundary // group.block_size
            run = required_run(geometry(group, self._setup.alignment), end)
            for block in run if group.prefix_cacheable else ():
                if not self._manager.has_block(running.request, index, block):
                    ahead = block >= end
                    return Code.LOOKAHEAD_BLOCK_UNREGISTERED if ahead else UNREGISTERED[group.kind]
        return ""

    def _timed(self, operation: str, call: Callable[[], _T]) -> _T:
        start = thread_time()
        found = call()
        spent = self.operations[operation]
        spent[0] += 1
        spent[1] += thread_time() - start
        return found

"""What requests of a workload could hit: in an unbounded cache, and with perfect foresight.

All as if each request had ended before the next one begins.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.simulation.hash_file import Arrival, HashFile
from hitproof.conformance.simulation.tokens import SharedPrefixes
from hitproof.conformance.simulation.workload import Workload
from hitproof.spec.admission import blocks_at_once
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import required_run
from hitproof.spec.retention import SPARSE_KINDS, replay_boundary
from hitproof.spec.terms import ceil_div


@dataclass(frozen=True)
class Bound:
    """What one request could hit, in tokens.

    Attributes:
        setup: the engine.
        cap: the most that its lookup may serve.
        shared: how many of its tokens an earlier request computed.
        unbounded: what it hits in a cache that keeps all of them.
        promised: what retention promises it of these.
        junction: what retention promises it since two earlier requests share a prefix, where the
            release keeps that.
        foresight: what it hits in a cache of this size that knows all requests to come.
        donor: the last earlier request that has the shared tokens; None where nothing is shared.
    """

    setup: CacheSetup
    cap: int
    shared: int
    unbounded: int
    promised: int
    junction: int
    foresight: int
    donor: int | None

    def within(self, horizon: int | None) -> int:
        """What it hits in a cache that keeps all of them, looked up no further than a horizon.

        None for lookups that have no single one, of which nothing is said.
        """
        if not self.setup.drops_blocks:
            return self.unbounded
        if horizon is None:
            return 0
        return self.setup.best_hit(self.cap, min(self.shared, horizon))


def blocks_of_request(engine: EngineConfiguration, tokens: int, chunk: int) -> int:
    """The most blocks that a request of ``tokens`` tokens holds at once, with steps of ``chunk``.

    vLLM counts so when it says how many requests of the greatest length fit into the pool.
    """
    total = 0
    for group in engine.groups:
        if group.kind is GroupKind.MAMBA:
            total += min(2, ceil_div(tokens, group.block_size))
            continue
        needed = ceil_div(tokens, group.block_size)
        total += min(needed, int(blocks_at_once(group, chunk, tokens)))
    return total


def cache_setup(engine: EngineConfiguration) -> CacheSetup:
    """The engine, as far as hits depend on it."""
    return CacheSetup(
        engine.groups,
        engine.alignment,
        engine.hash_block_size,
        engine.use_eagle,
        engine.num_hash_lookahead_tokens,
        engine.retention_interval,
        engine.num_gpu_blocks,
    )


def bounds(
    workload: Workload, engine: EngineConfiguration, arrivals: Sequence[Arrival], hashes: HashFile
) -> list[Bound]:
    """What each request could hit."""
    setup, prefixes = cache_setup(engine), SharedPrefixes()
    # Full attention alone shows how much is shared.
    shows_junctions = any(group.kind is GroupKind.FULL_ATTENTION for group in engine.groups)
    found: list[Bound] = []
    for number, request in enumerate(workload.requests):
        shared = prefixes.shared(request.prompt)
        cap = request.num_prompt_tokens - 1
        best = setup.best_hit(cap, shared.tokens)
        promised = _promised(setup, best, shared.prompt)
        junction = 0
        if shared.request is not None and shows_junctions:
            seen = min(shared.tokens, found[shared.request].shared)
            junction = setup.best_hit(cap, seen)
        found.append(Bound(setup, cap, shared.tokens, best, promised, junction, 0, shared.request))
        if not request.lookup_only:
            # The last token is sampled, but nothing is computed of it; hashes that look ahead cover
            # it, and what is computed ends before.
            computed = request.tokens
            if request.output and not setup.hash_lookahead:
                *before, (first, last) = request.tokens
                computed = (*before, (first, last - 1)) if last > first else tuple(before)
            prefixes.add(computed, request.num_prompt_tokens, number)
    kept = _Foresight(engine, setup, arrivals, hashes).hits(found)
    return [replace(each, foresight=hit) for each, hit in zip(found, kept, strict=True)]


def _promised(setup: CacheSetup, best: int, prompt: int) -> int:
    """What retention promises of the longest hit to a request that begins with such a prompt.

    `spec.retention`: extensions and follow-ups hit as much as under dense retention, siblings the
    next lower multiple of the interval.
    """
    interval = setup.retention
    if interval is None or not any(group.kind in SPARSE_KINDS for group in setup.groups):
        return best
    sibling = best // interval * interval if interval else 0
    extension = int(replay_boundary(prompt, prompt, setup.lookahead, setup.alignment))
    return max(sibling, min(best, extension))


class _Foresight:
    """Belady's rule: what is used latest is evicted first, and what is not used again at once.

    Of groups that keep all their blocks, segments of one alignment are kept, the first of a prompt
    the longest; of windows, chunks and states only the run that the next hit requires. A request
    that is computed takes the most blocks that it holds at once.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        setup: CacheSetup,
        arrivals: Sequence[Arrival],
        hashes: HashFile,
    ) -> None:
        self._engine, self._arrivals, self._hashes = engine, arrivals, hashes
        self._step = setup.alignment
        cacheable = [group for group in setup.looked_up if group.prefix_cacheable]
        self._limited = [g for g in cacheable if g.kind is not GroupKind.FULL_ATTENTION]
        self._segment = sum(
            self._step // group.block_size for group in cacheable if group not in self._limited
        )

    def hits(self, bounds: Sequence[Bound]) -> list[int]:
        """What each request hits."""
        best = [each.unbounded for each in bounds]
        uses = self._next_uses([each.shared // self._step for each in bounds])
        runs = [sum(self._run(group, hit) for group in self._limited) for hit in best]
        kept: Counter[int] = Counter()  # segments, by the request that uses them next
        found = []
        for number, arrival in enumerate(self._arrivals):
            segments = kept.pop(number, 0)
            hit = min(segments * self._step, best[number])
            found.append(hit)
            if not arrival.lookup_only:
                tokens = arrival.prompt + max(0, arrival.output - 1)
                chunk = min(self._engine.max_chunk, tokens - hit)
                own = blocks_of_request(self._engine, tokens, max(1, chunk))
                self._evict(kept, runs, self._engine.num_gpu_blocks - 1 - own)
            for user, count in sorted(uses[number].items()):
                kept[user] += count if not arrival.lookup_only else min(count, segments)
                segments -= min(count, segments)
            self._evict(kept, runs, self._engine.num_gpu_blocks - 1)
        return found

    def _evict(self, kept: Counter[int], runs: Sequence[int], room: int) -> None:
        taken = sum(count * self._segment + runs[user] for user, count in kept.items() if count)
        for user in sorted(kept, reverse=True):
            if taken <= room:
                return
            if self._segment:
                away = min(kept[user], -(-(taken - room) // self._segment))
            else:
                away = kept[user]
            kept[user] -= away
            taken -= away * self._segment
            if not kept[user]:
                taken -= runs[user]
                del kept[user]

    def _run(self, group: Group, hit: int) -> int:
        return len(required_run(geometry(group, self._step), hit // group.block_size)) if hit else 0

    def _next_uses(self, used: Sequence[int]) -> list[dict[int, int]]:
        """How many segments of each request are used next by which later one.

        ``used`` has, of each request, how many of its segments others have computed before.
        """
        units = self._step // self._hashes.hash_block_size
        users: dict[bytes, int] = {}
        found: list[dict[int, int]] = [{} for _ in self._arrivals]
        for number in range(len(self._arrivals) - 1, -1, -1):
            arrival = self._arrivals[number]
            segments = self._hashes.every(arrival, units, arrival.prompt + arrival.output)
            next_users = (users.get(segment) for segment in segments)
            found[number] = dict(Counter(user for user in next_users if user is not None))
            for segment in itertools.islice(segments, used[number]):
                users[segment] = number
        return found

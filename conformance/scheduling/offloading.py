"""What a KV connector keeps in host memory of what was computed here, and loads from there.

Blocks are copied whole, in both directions, one by one or as chunks of several. A copy may be made
at any time until it is reported: here as late as can be, so that blocks which are taken meanwhile
show. Of content, keys name what their blocks hold, on the host, too, and steps read what they have
to. Where blocks are copied in chunks, what is there when a request is looked up serves it, together
with what is local.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from hitproof.conformance.checks.tier_plays import due_chunks, left_out
from hitproof.conformance.checks.tiers import longest_hit
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Naming
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_entries import DueEntries
from hitproof.conformance.judge.content_keys import KeyedContent
from hitproof.conformance.judge.content_store import ContentStore
from hitproof.conformance.judge.followers import Cached
from hitproof.conformance.scheduling.chunk_pool import ChunkPool, violation
from hitproof.conformance.scheduling.outcome import Life
from hitproof.conformance.scheduling.transfers import (
    CONNECTOR,
    ConnectorTransfers,
    Known,
    Touched,
)
from hitproof.conformance.scope.layouts import OFFLOADING, Layout
from hitproof.conformance.subject.schedulers import (
    ChunkKey,
    HostCopy,
    HostResult,
    Plan,
    PoolCall,
    PoolState,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import required_run
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.spec.sharing import final_tokens


class Offloading(ConnectorTransfers):
    """Follows the plans of one scheduler with such a connector."""

    def __init__(
        self,
        engine: EngineConfiguration,
        connector: Connector,
        arrivals: Mapping[str, Arrival],
        requests: Mapping[str, RequestInput],
        content: ContentModel,
        names: Naming,
        budget: int = 0,
    ) -> None:
        super().__init__(engine, connector, arrivals, content)
        # Workers of a store report for themselves, when they have copied.
        self._delay = 0 if connector.store else connector.delay
        self._device = content.store
        self._memory = ContentStore()
        self._copies: list[tuple[int, HostCopy]] = []
        self._made: list[HostCopy] = []
        """Those of them that are made, and not reported."""
        self._stored: list[HostCopy] = []
        self._reported: set[tuple[bool, int]] = set()
        self._begun_before: set[str] = set()
        """Requests of which it may have forgotten what it had."""
        self._offered: dict[str, set[ChunkKey]] = {}
        """What was offered of each request, since it was admitted."""
        self._refused: dict[str, set[ChunkKey]] = {}
        """Chunks of full attention that had no room when they were offered last."""
        self._was_reset = -1
        """In which step it was last told to forget what it had."""
        self._more = False
        self._num_copied = 0
        self._budget = budget
        self._naming = names
        self._layout: Layout | None = None
        self._tier = OFFLOADING if connector.chunk else "blocks"
        if connector.offloads:
            self._layout = Layout(
                engine.groups,
                engine.max_model_len,
                engine.use_eagle,
                engine.hash_block_size,
                blocks_per_chunk=connector.chunk or 1,
            )
        fine = is_fine_grained(engine.groups, engine.hash_block_size)
        self._fine = fine and connector.chunk == 1
        self._asks_for_less = fine and connector.lazy
        """Whether it asks for whole blocks alone. vLLM: ``allow_partial_hash_hits``."""
        recent = connector.eviction == "lru"
        self._pool = ChunkPool(connector.offloads, connector.threshold, recent, not self._fine)
        self._starts = [each.chunk or each.block_size for each in engine.groups]
        """Tokens, of which single blocks are loaded behind multiples."""
        room = connector.offloads or math.inf  # of a store
        self._num_places = 1 + room * connector.chunk if connector.chunk else room
        self._keys = KeyedContent(
            engine,
            requests,
            DueEntries(engine, requests),
            self._memory,
            _in_chunks if connector.chunk else _signature,
        )

    keeps = True

    @property
    def is_busy(self) -> bool:
        """Whether any copy is under way, or not processed."""
        return bool(self._copies or self._reported) or self._more

    @property
    def loading(self) -> frozenset[str]:
        """See `ConnectorTransfers`."""
        return frozenset(name for _, copy in self._copies for name in copy.loads or ())

    def flush(self, plan: Plan) -> None:
        """See `ConnectorTransfers`."""
        told = plan.transfers
        assert told is not None
        self._step += 1
        self._more = told.more
        self._memory.new_step_starts()
        self._copies += [(self._step, copy) for copy in told.copies]
        self._num_copied += sum(len(each.blocks) for each in told.copies if each.loads is None)
        for since, copy in self._copies:
            is_flushed = copy.loads is None and copy.number in told.flushed
            if (is_flushed or (told.waits and since < self._step)) and copy not in self._made:
                self._copy(copy)
                self._made.append(copy)

    def start(
        self,
        plan: Plan,
        touched: Touched,
        in_flight: frozenset[int],
        held: frozenset[int],
        known: Known,
    ) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        del touched, in_flight, held, known  # what is copied of used blocks shows as wrong content
        self._over.difference_update(each.request for each in plan.scheduled)
        for each in plan.scheduled:
            if each.whole:
                self._offered.pop(each.request, None)
                self._refused.pop(each.request, None)
                if not each.first:
                    self._pool.restart(each.request)
        told = plan.transfers
        if told is None:
            return
        yield from self._pool.judge(told.pool)
        if self._tier == "blocks" and not self._connector.store:
            yield from self._copied_again()
        if self._fine:
            return  # the end of a prompt inside a block may have the key of the block
        still = {each.request for each in plan.scheduled}.union(plan.finished)
        offered: dict[str, list[ChunkKey]] = {}
        for call in told.pool:
            if call.what == "prepare_store":
                if call.taken is not None:
                    offered.setdefault(call.request, []).extend(call.keys)
                yield from self._offered_later(call)
        for name, keys in offered.items():
            if name not in still:
                continue  # it has been preempted, and starts again
            before = self._offered.setdefault(name, set())
            if len({*before, *keys}) < len(before) + len(keys):
                defect = Defect.of(Code.TIER_BLOCK_OFFERED_AGAIN, tier=OFFLOADING)
                yield Violation.of(
                    CONNECTOR,
                    defect,
                    f"chunks of request {name} that were taken are not offered again",
                    "some of them are",
                )
            before.update(keys)

    def _offered_later(self, call: PoolCall) -> Iterator[Violation]:
        if not call.request:  # before 0.22 a call does not say for which request it is
            return
        groups = self._engine.groups
        # A tier may leave out blocks of a draft head while drafts can be rejected.
        kept = [each.kind is GroupKind.FULL_ATTENTION and not each.eagle for each in groups]
        keys = {key for key in call.keys if kept[key[0]]}
        if keys and self._refused.pop(call.request, set()) - keys:
            yield violation(
                Code.TIER_ROOM_LOST,
                "given-up",
                f"chunks of request {call.request} that had no room are offered again",
                "others are offered in their place",
            )
        if call.taken is None:
            self._refused[call.request] = keys

    def _copied_again(self) -> Iterator[Violation]:
        of_stores = [c for since, c in self._copies if c.loads is None and since > self._was_reset]
        blocks = [block for each in of_stores for block in each.blocks]
        if len({*blocks}) < len(blocks):
            yield Violation.of(
                CONNECTOR,
                Defect.of(Code.TIER_BLOCK_OFFERED_AGAIN, tier=self._tier),
                "a block is not copied to host memory while a copy of it is under way",
                "one is",
            )

    def finish(self, known: Known) -> HostResult:
        """See `ConnectorTransfers`."""
        del known
        last = self._step - self._delay
        done = [copy for since, copy in self._copies if since <= last]
        self._copies = [each for each in self._copies if each[0] > last]
        for copy in done:
            if copy.loads is not None and copy not in self._made:
                self._copy(copy)
        self._stored = [c for c in done if c.loads is None and c not in self._made]
        self._made = [copy for copy in self._made if copy not in done]
        self._reported |= {(each.loads is None, each.number) for each in done}
        loaded = [name for each in done for name in each.loads or ()]
        failed = {name for each in done if each.failed for name in each.loads or ()}
        self._failed |= failed
        # With several groups a load fails as a whole.
        self._waited.update({*loaded} - (failed if len(self._engine.groups) > 1 else set()))
        stored = tuple(each.number for each in done if each.loads is None)
        read = tuple(each.number for each in done if each.loads is not None)
        return HostResult(done=stored, read=read, loaded=tuple(loaded))

    def sampled(self) -> None:
        """See `ConnectorTransfers`."""
        for copy in self._stored:
            self._copy(copy)
        self._stored = []

    def taken_up(self, result: HostResult) -> None:
        """See `ConnectorTransfers`."""
        self._reported -= {(True, number) for number in result.done}
        self._reported -= {(False, number) for number in result.read}
        self._over.update(result.loaded)

    def too_short(
        self,
        plan: Plan,
        lengths: Mapping[str, int],
        stored: Cached,
        due_hit: Callable[[str, int, Cached], int],
    ) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        told = plan.transfers
        assert told is not None
        for name, answer in told.answers.items():
            skips = self._arrivals[name].skip_reading_prefix_cache
            if skips or answer.more is None or (self._fine and self._connector.later):
                continue
            due, whole = self._due(name, lengths[name], answer.local, stored, due_hit)
            if answer.local + answer.more < due:
                size = self._engine.alignment
                is_later = due % size and due // size > whole // size
                where = "later-block" if is_later else None
                if not self._connector.chunk and self._is_near_start(due - answer.local):
                    where = "near-start"
                defect = Defect.of(Code.TIER_HIT_TOO_SHORT, tier=self._tier, ends=where)
                yield Violation.of(
                    CONNECTOR,
                    defect,
                    f"request {name} is served {due} tokens of what is stored or local",
                    f"it is served {answer.local + answer.more}",
                )

    def _is_near_start(self, added: int) -> bool:
        """Whether ``added`` more tokens may be lost in the core's own lookup, which is asked."""
        size = self._engine.alignment
        windows = ((each.window, each.block_size, each.eagle) for each in self._engine.groups)
        return any(
            eagle and window is not None and block < size and added < window + size
            for window, block, eagle in windows
        )

    def _due(
        self,
        name: str,
        length: int,
        local: int,
        stored: Cached,
        due_hit: Callable[[str, int, Cached], int],
    ) -> tuple[int, int]:
        """The longest hit of what is stored, or local, and that of whole chunks alone."""
        due = whole = local
        if self._connector.chunk:
            assert self._layout is not None
            there = {
                (number, chunk)
                for number, looked_up in enumerate(self._layout.looked_up)
                for chunk, end in enumerate(_ends(looked_up.group.block_size, length))
                if all((g, self._naming.name(name, end)) in stored for g in looked_up.group_ids)
            }
            due = whole = longest_hit(self._layout, length - 1, local, there)
            length = len(self._arrivals[name].prompt)
            if not self._fine:
                return due, whole
        elif any(local % size for size in self._starts) or self._asks_for_less:
            return due, whole
        ends = _ends(self._engine.hash_block_size, local)
        names = [self._naming.name(name, end) for end in ends]
        groups = range(len(self._engine.groups))
        here = dict.fromkeys(((g, key) for g in groups for key in names), (-1,))
        return max(due, due_hit(name, length, here | {**stored})), whole

    @property
    def _keeps_all(self) -> bool:
        """Whether there is room for every chunk of every request, and for the ends of prompts."""
        assert self._layout is not None
        sizes = [each.group.block_size for each in self._layout.looked_up for _ in each.group_ids]
        lengths = [len(each.prompt) + len(each.sampled) for each in self._arrivals.values()]
        chunks = sum(1 + length // size for length in lengths for size in sizes)
        return chunks <= self._connector.offloads and not self._connector.threshold

    def left_out(self, lives: Mapping[str, Life], stored: Cached) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        if self._layout is None or self._connector.lazy or not self._keeps_all:
            return
        for name, life in lives.items():
            if life.ended != "finished" or name in self._begun_before:
                continue
            tokens = prompt = len(self._arrivals[name].prompt)
            if self._connector.outputs or not self._connector.chunk:
                tokens += len(life.delivered) - 1
            final = int(final_tokens(tokens, max(1, self._engine.num_prefill_lookahead)))
            # Of what is sampled no state is promised.
            ends = {start + count for start, count in life.chunks if start + count <= prompt}
            for looked_up in self._layout.looked_up:
                first, size = 0, looked_up.group.block_size
                if looked_up.group.kind in SPARSE_KINDS:
                    if life.preemptions or self._engine.retention_interval is not None:
                        continue
                    first = -(-(life.hit or 0) // size)
                due = due_chunks(looked_up, final, ends)
                last, shape = final // size, looked_up.shape
                if looked_up.group.kind is GroupKind.SLIDING_WINDOW and not shape.lookahead:
                    # vLLM stores for the hit that ends where what is stored does, too.
                    due |= {*required_run(shape, last)} if last else set()
                for chunk in sorted(due):
                    key = self._naming.name(name, (chunk + 1) * size)
                    if chunk >= first and any((g, key) not in stored for g in looked_up.group_ids):
                        defect = left_out(looked_up, chunk, last, self._tier)
                        yield Violation.of(
                            CONNECTOR,
                            defect,
                            f"chunk {chunk} of request {name} is stored in host memory",
                            f"it is not, in groups {looked_up.group_ids}",
                        )

    def reset(self, requests: Iterable[str]) -> None:
        """See `ConnectorTransfers`."""
        self._offered.clear()
        self._refused.clear()
        self._was_reset = self._step
        self._begun_before.update(requests)

    def evicted(self, plan: Plan, rested: PoolState, now: PoolState) -> Iterator[Violation]:
        """See `ConnectorTransfers`. What is offloaded late is offloaded before it is evicted.

        That is for what one step computes, while nothing need be evicted from host memory.
        """
        told, budget = plan.transfers, self._budget
        if not self._connector.lazy or self._num_copied >= self._connector.offloads:
            return
        taken = sum(bool(block) for s in plan.scheduled for each in s.blocks for block in each)
        fills = sum(-(-budget // each.block_size) for each in self._engine.groups)
        if told is None or told.begun or taken > fills:
            return
        for key, blocks in rested.cached.items():
            idle = not rested.held.intersection(blocks)
            if idle and key not in now.cached and key not in now.offloaded:
                yield violation(
                    Code.TIER_ROOM_LOST,
                    "unsaved",
                    f"block {min(blocks)} is offloaded before it is evicted",
                    "it is not, though it was free when the step before was planned",
                )
                return

    def wrong_keys(self, cached: Cached) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        yield from self._keys.wrong(cached)

    def _copy(self, copy: HostCopy) -> None:
        for block, host in zip(copy.blocks, copy.host, strict=True):
            if copy.loads is None:
                if host < self._num_places:  # elsewhere it is lost
                    self._memory.copy_from(self._device, block, host)
            else:
                self._device.copy_from(self._memory, host, block)


def _ends(size: int, length: int) -> range:
    """Where the chunks of a request end."""
    return range(size, length + 1, size)


def _signature(group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
    del group
    return Signature.booked(defect, divergence, CONNECTOR, False, claim)


def _in_chunks(group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
    told = Defect.read(defect.code, {**dict(defect.parameters), "tier": OFFLOADING})
    return _signature(group, claim, told, divergence)

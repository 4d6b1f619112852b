"""Whether a pool of chunks in host memory keeps the contract of its interface.

A stored chunk has a place of its own until it is evicted, which must not happen while it is written
or read. It is found as soon as it is written. Room is used before anything is evicted, no more is
evicted than is needed, and what was used last is evicted last. vLLM: the docstrings of
``OffloadingManager`` and of ``LRUCachePolicy``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.scheduling.transfers import CONNECTOR
from hitproof.conformance.scope.layouts import OFFLOADING
from hitproof.conformance.subject.schedulers import ChunkKey, PoolCall, PoolState


def violation(code: Code, how: str, spec: str, actual: str) -> Violation:
    """What is wrong with such a pool."""
    return Violation.of(CONNECTOR, Defect.of(code, how=how), spec, actual)


def left(state: PoolState) -> Iterator[Violation]:
    """What a connector that keeps what is computed still holds when all requests have ended."""
    if state.in_use:
        spec = "nothing in host memory is in use when all requests have ended"
        yield violation(Code.TIER_ROOM_LOST, "held", spec, f"{state.in_use} places are")


@dataclass
class _Chunk:
    """A chunk that has a place.

    Attributes:
        place: where it is.
        since: it was used then, or later, on the pool's clock.
        until: it was not used after that.
        depth: among the chunks of its group that were used when it was, how far from the start.
        written: whether it is there in whole.
        readers: loads of it under way.
    """

    place: int
    since: int
    until: int
    depth: int = 0
    written: bool = False
    readers: int = 0


@dataclass
class ChunkPool:
    """Follows the calls of one pool.

    Attributes:
        room: chunks that have room.
        threshold: how often a chunk is offered before it is stored.
        recent: whether what was used last is evicted last, as by ``LRUCachePolicy``.
        whole: whether chunks of a group are used in their order, as no part of one is.
    """

    room: int
    threshold: int = 0
    recent: bool = True
    whole: bool = True
    _chunks: dict[ChunkKey, _Chunk] = field(default_factory=dict)
    _offers: Counter[ChunkKey] = field(default_factory=Counter)
    _announced: set[ChunkKey] = field(default_factory=set)
    _used: dict[str, dict[ChunkKey, bool]] = field(default_factory=dict)
    """The chunks that each request has used, in order, and whether it surely has."""
    _began: dict[str, int] = field(default_factory=dict)
    _restarted: set[str] = field(default_factory=set)
    """Requests that have begun again: what they use from then on may lie before what they used."""
    _finalizes: bool = False
    """Whether it hears of ends; before 0.31 it does not, and orders otherwise."""
    _now: int = 0

    def restart(self, request: str) -> None:
        """The request begins again, as after a preemption."""
        if request in self._used:
            self._restarted.add(request)

    def judge(self, calls: Iterable[PoolCall]) -> Iterator[Violation]:
        """What is wrong with the pool's answers to these calls."""
        for call in calls:
            self._now += 1
            match call.what:
                case "lookup":
                    yield from self._looked_up(call)
                case "prepare_store":
                    yield from self._offered(call)
                case "complete_store":
                    self._stored(call)
                case "prepare_load":
                    yield from self._loads(call)
                case "complete_load":
                    for key in call.keys:
                        if key in self._chunks:
                            self._chunks[key].readers -= 1
                case "on_request_finished":
                    self._ended(call.request)
                case "take_events":
                    yield from self._told(call)
                case "get_stats":
                    yield from self._counted(call)
                case "reset_cache":
                    for each in (self._chunks, self._announced, self._used, self._began):
                        each.clear()

    def _looked_up(self, call: PoolCall) -> Iterator[Violation]:
        (key,) = call.keys
        chunk = self._chunks.get(key)
        if call.found and (chunk is None or not chunk.written):
            state = "is not stored" if chunk is None else "is being written"
            yield violation(
                Code.TIER_CHUNK_UNPROTECTED, "found", f"a chunk that {state} is not found", "it is"
            )
        elif chunk is not None and chunk.written and not call.found:
            yield violation(
                Code.TIER_ROOM_LOST, "forgotten", "a stored chunk is found", "it is not"
            )

    def _offered(self, call: PoolCall) -> Iterator[Violation]:
        self._offers.update(call.keys)
        new = [
            key
            for key in call.keys
            if key not in self._chunks and self._offers[key] >= self.threshold
        ]
        for key in call.keys:
            chunk = self._chunks.get(key)
            self._use(call.request, key, certain=key in new or (chunk and chunk.written) or False)
        lacking = max(0, len(new) - self.room + len(self._chunks))
        idle = {k for k, each in self._chunks.items() if each.written and not each.readers}
        idle -= {*call.keys}
        if call.taken is None:
            if lacking <= len(idle):
                yield violation(
                    Code.TIER_ROOM_LOST,
                    "refused",
                    f"{len(new)} chunks are stored: {lacking} must be evicted, of "
                    f"{len(idle)} that may be",
                    "they are refused",
                )
            return
        if {*call.evicted} - idle:
            yield violation(
                Code.TIER_CHUNK_UNPROTECTED,
                "evicted",
                "nothing is evicted that is offered, read, written or not there",
                f"{len({*call.evicted} - idle)} such chunks are",
            )
        if len(call.evicted) > lacking:
            yield violation(
                Code.TIER_ROOM_LOST,
                "early",
                f"{lacking} chunks are evicted, for {len(new)} that are stored",
                f"{len(call.evicted)} are",
            )
        if self.recent and self._finalizes:
            yield from self._out_of_order(call.evicted, idle)
        for key in call.evicted:
            self._chunks.pop(key, None)
        if [*call.taken] != new:
            yield violation(
                Code.TIER_ROOM_LOST,
                "declined",
                f"{len(new)} chunks are stored, of {len(call.keys)} that are offered",
                f"{len(call.taken)} are, or others",
            )
        places = [*(each.place for each in self._chunks.values()), *call.places]
        if len({*places}) < len(places) or not {*call.places} <= {*range(self.room)}:
            yield violation(
                Code.TIER_CHUNK_UNPROTECTED,
                "place",
                "each chunk has a place of its own in host memory",
                f"new chunks get the places {list(call.places)}",
            )
        for key, place in zip(call.taken, call.places, strict=False):
            self._chunks[key] = _Chunk(place, self._began.get(call.request, 0), self._now)

    def _out_of_order(
        self, evicted: Iterable[ChunkKey], idle: set[ChunkKey]
    ) -> Iterator[Violation]:
        gone = {key: self._chunks[key] for key in evicted if key in idle}
        remaining = idle - gone.keys()
        for (group, _), victim in gone.items():
            for kept in remaining:
                other = self._chunks[kept]
                deeper = (
                    self.whole
                    and other.until == other.since == victim.since
                    and kept[0] == group
                    and other.depth > victim.depth
                )
                if other.until < victim.since or deeper:
                    yield violation(
                        Code.TIER_ROOM_LOST,
                        "depth" if deeper else "order",
                        "what was used last, or is nearest to the start of its request, is "
                        "evicted last",
                        "it is evicted before others",
                    )
                    return

    def _stored(self, call: PoolCall) -> None:
        for key in call.keys:
            chunk = self._chunks.get(key)
            if chunk is not None and not chunk.written:
                chunk.written = call.found is not False
                if not chunk.written:
                    del self._chunks[key]

    def _loads(self, call: PoolCall) -> Iterator[Violation]:
        there = [self._chunks[key] for key in call.keys if key in self._chunks]
        for key in call.keys:
            self._use(call.request, key, certain=True)
        if len(there) < len(call.keys) or not all(each.written for each in there):
            yield violation(
                Code.TIER_CHUNK_UNPROTECTED,
                "unwritten",
                "only stored chunks are read",
                "others are",
            )
        elif [each.place for each in there] != [*call.places]:
            yield violation(
                Code.TIER_CHUNK_UNPROTECTED,
                "elsewhere",
                "chunks are read where they were stored",
                f"they are read at {list(call.places)}",
            )
        if self.whole and any(each.readers for each in there):
            yield Violation.of(
                CONNECTOR,
                Defect.of(Code.TIER_BLOCK_OFFERED_AGAIN, tier=OFFLOADING),
                "a request whose chunks are being loaded for another one waits for them",
                "they are loaded once more",
            )
        for each in there:
            each.readers += 1

    def _use(self, request: str, key: ChunkKey, *, certain: bool) -> None:
        self._began.setdefault(request, self._now)
        used = self._used.setdefault(request, {})
        used[key] = used.get(key, False) or (certain and request not in self._restarted)
        chunk = self._chunks.get(key)
        if chunk is not None:
            chunk.until = self._now

    def _ended(self, request: str) -> None:
        """All that a request has used was used at its end, at the latest."""
        self._finalizes = True
        self._began.pop(request, None)
        self._restarted.discard(request)
        for depth, (key, certain) in enumerate(self._used.pop(request, {}).items()):
            chunk = self._chunks.get(key)
            if chunk is not None:
                chunk.until = self._now
                if certain:
                    chunk.since, chunk.depth = self._now, depth

    def _told(self, call: PoolCall) -> Iterator[Violation]:
        for key, is_stored in zip(call.keys, call.stored, strict=True):
            (self._announced.add if is_stored else self._announced.discard)(key)
        there = {key for key, each in self._chunks.items() if each.written}
        if self._announced != there:
            yield violation(
                Code.TIER_TOLD_WRONG,
                "events",
                f"events say of {len(there)} chunks that they are stored",
                f"they say so of {len(self._announced)}, or of others",
            )

    def _counted(self, call: PoolCall) -> Iterator[Violation]:
        chunks = self._chunks.values()
        writing = sum(not each.written for each in chunks)
        reading = sum(each.readers > 0 for each in chunks)
        due = writing + reading, writing, reading
        told = tuple(round(share * self.room) for share in call.shares)
        if told != due[: len(told)]:
            yield violation(
                Code.TIER_TOLD_WRONG,
                "shares",
                f"of {self.room} chunks {due[0]} are in use, {writing} written, {reading} read",
                f"statistics say {told}",
            )

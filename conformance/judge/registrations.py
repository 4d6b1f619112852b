"""Which blocks a manager registers over a request's life, judged block by block.

A block must be registered when a promised hit needs it and all of that hit's run is computed. It
counts as registered once its key was seen, even if it is evicted later. Only blocks that held the
right content in the request's own table are judged: states that no step wrote, or blocks that a
connector left out, cannot be registered.

Where hits may end inside blocks, the same holds for the entries that promised hits need there. They
must also stay as long as there are blocks that were never used: a block that is filled up gets a
new key, and can lose the old one in the process.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import NOTHING_SHARED, Shared
from hitproof.conformance.subject.managers import Observation
from hitproof.spec.groups import GroupKind
from hitproof.spec.sharing import final_tokens


@dataclass
class _Life:
    """The state of a request since its admission.

    Attributes:
        hit: its hit in tokens; blocks before its end were registered by others.
        computed: computed tokens, without drafts, as far as blocks must be registered.
        reached: computed tokens, without drafts; some of the last may be computed again.
        early: blocks (group, position) that were registered before they had to be.
        held: blocks (group, position) that have held the right content in its table.
        settled: blocks that were registered, or judged for not being so.
        kept: blocks that were registered.
        spare: those of them that no promised hit needs, and that are not judged yet: a hit that is
            left where a promised one is lost may need them.
        inside: groups in whose table an entry inside a block has had the right content, and whose
            promised hit needs it.
    """

    hit: int = 0
    computed: int = 0
    reached: int = 0
    early: set[tuple[int, int]] = field(default_factory=set)
    held: set[tuple[int, int]] = field(default_factory=set)
    settled: set[tuple[int, int]] = field(default_factory=set)
    kept: set[tuple[int, int]] = field(default_factory=set)
    spare: list[tuple[int, int]] = field(default_factory=list)
    inside: set[tuple[int, str]] = field(default_factory=set)


class Registrations:
    """The registered blocks of every request of one history."""

    def __init__(
        self,
        engine: EngineConfiguration,
        prefixes: Prefixes,
        judge: Judge,
        content: ContentModel,
        fine: bool = False,
    ) -> None:
        self._engine = engine
        self._prefixes = prefixes
        self._judge = judge
        self._content = content
        self._lives: dict[str, _Life] = {}
        self._shared: dict[str, Shared] = {}
        self._touched: dict[str, None] = {}
        self._fine = fine
        # Promised entries inside blocks, by request, group and kind of promise: the names of those
        # that were registered, until they may be given up; and those that are judged no more.
        self._kept: dict[tuple[str, int, str], list[Name]] = {}
        self._judged: set[tuple[str, int, str]] = set()
        self._used: set[int] = set()
        self._nothing_evicted = True

    def evicted(self) -> None:
        """Blocks were unregistered on request; which entries stay is no longer judged."""
        self._nothing_evicted = False

    def looked_up(self, request: str, shared: Shared) -> None:
        """A lookup of the request showed a prefix to be shared."""
        self._shared[request] = shared

    def admitted(self, request: str, hit: int) -> None:
        """The request starts with a hit."""
        self._lives[request] = _Life(hit)

    def computed(self, request: str, num_tokens: int) -> None:
        """The request has computed or loaded ``num_tokens`` tokens in all.

        Where the blocks of several MTP modules are told apart by their own tokens only, the
        manager may wait until their entries are final.
        """
        life = self._lives.setdefault(request, _Life())
        life.reached = num_tokens
        if self._engine.use_eagle_block_drop:
            num_tokens = int(final_tokens(num_tokens, self._engine.num_prefill_lookahead))
        life.computed = max(0, num_tokens)
        self._touched[request] = None

    def freed(self, request: str) -> None:
        """The request gave up its blocks."""
        self._lives.pop(request, None)
        self._touched.pop(request, None)

    def step_ends(self, seen: Observation) -> Iterator[Violation]:
        """Judge the requests that computed or loaded in this step."""
        for request in self._touched:
            for index in range(len(self._engine.groups)):
                yield from self._judge_group(request, index, seen)
                if self._fine:
                    yield from self._judge_inside(request, index, seen)
                    yield from self._judge_waste(request, index, seen)
        self._touched.clear()
        if self._fine:
            yield from self._judge_kept(seen)

    def _judge_inside(self, request: str, index: int, seen: Observation) -> Iterator[Violation]:
        """Judge the entries inside a block of the request that promised hits need."""
        life, promises = self._lives[request], self._judge.promises
        shared = self._shared.get(request, NOTHING_SHARED)
        for who, ends in promises.entries_inside(request, index, shared).items():
            place = request, index, who
            if place in self._kept or place in self._judged:
                continue
            if life.hit >= ends.start or life.computed < ends.start:
                continue
            names = [self._prefixes.name(request, end) for end in ends]
            if any((index, name) in seen.cached for name in names):
                self._kept[place] = names
                continue
            if self._is_held(request, index, ends.start, seen):
                life.inside.add((index, who))
            reach = ends.start
            if who != "junction":
                reach = promises.tail(request) + promises.reach_tokens
            if (index, who) in life.inside and life.computed >= reach:
                self._judged.add(place)
                yield self._judge.left_out_inside(request, index, who, ends, given_up=False)

    def _judge_waste(self, request: str, index: int, seen: Observation) -> Iterator[Violation]:
        """Judge that under sparse retention no state inside a block is kept without a promise."""
        group, life = self._engine.groups[index], self._lives[request]
        if self._engine.retention_interval is None or group.kind is not GroupKind.MAMBA:
            return
        shared = self._shared.get(request, NOTHING_SHARED)
        promised = self._judge.promises.entries_inside(request, index, shared).values()
        table = set(seen.tables.get(request, ((),) * len(self._engine.groups))[index])
        unit = self._engine.hash_block_size
        for end in range(max(life.hit, shared.seen) + unit, life.computed + 1, unit):
            name = self._prefixes.name(request, end)
            kept = table.intersection(seen.cached.get((index, name), ()))
            if kept and end % group.block_size and not any(end in ends for ends in promised):
                yield self._judge.not_promised(index, end)

    def _is_held(self, request: str, index: int, end: int, seen: Observation) -> bool:
        """Whether a block of the request's table has the content of the prefix that ends there."""
        table = seen.tables.get(request, ((),) * len(self._engine.groups))[index]
        block = (end - 1) // self._engine.groups[index].block_size
        name = self._prefixes.name(request, end)
        # A state that was exported from inside a chunk is in an earlier block of the table.
        places = range(block + 1) if self._engine.mamba_checkpoint_alignment else (block,)
        return any(
            table[place] and self._content.keys.hold(index, table[place], name)
            for place in places
            if place < len(table)
        )

    def _judge_kept(self, seen: Observation) -> Iterator[Violation]:
        """Judge that registered entries stay as long as there are blocks that were never used."""
        self._used |= {block for of_all in seen.tables.values() for t in of_all for block in t}
        self._used |= {block for ids in seen.cached.values() for block in ids}
        self._used.update(seen.held_outside)
        if not self._nothing_evicted or self._used.issuperset(seen.free_queue):
            self._judged.update(self._kept)
            self._kept.clear()
            self._nothing_evicted = False
            return
        for place, names in list(self._kept.items()):
            request, index, who = place
            if not any((index, name) in seen.cached for name in names):
                del self._kept[place]
                self._judged.add(place)
                ends = [self._prefixes.end(name) or 0 for name in names]
                yield self._judge.left_out_inside(request, index, who, ends, given_up=True)

    def _judge_group(self, request: str, index: int, seen: Observation) -> Iterator[Violation]:
        life, size = self._lives[request], self._engine.groups[index].block_size
        table = seen.tables.get(request, ((),) * len(self._engine.groups))[index]
        shared = self._shared.get(request, NOTHING_SHARED)
        final = life.computed // size
        for block in range(life.hit // size, max(final, life.reached // size)):
            place = index, block
            if place in life.settled:
                continue
            name = self._prefixes.name(request, (block + 1) * size)
            block_id = table[block] if block < len(table) else 0
            ids = seen.cached.get((index, name), ())
            if block >= final:
                if ids:
                    life.early.add(place)
                continue
            if ids or place in life.early:
                life.settled.add(place)
                life.kept.add(place)
                if block_id in ids:
                    life.spare.append(place)
                continue
            if self._is_held(request, index, (block + 1) * size, seen):
                life.held.add(place)
            if place in life.held and self._is_due(request, index, block, shared, life.computed):
                life.settled.add(place)
                gone = self._engine.num_hash_lookahead_tokens > 0 and not block_id
                kept, computed = self._kept_in(life, index), life.computed // size
                missing = self._judge.registered(
                    request, index, block, False, shared, gone, kept, computed
                )
                yield from () if missing is None else (missing,)
        yield from self._judge_spare(request, index, shared)

    def _judge_spare(self, request: str, index: int, shared: Shared) -> Iterator[Violation]:
        """Judge registered blocks, once the runs of all that is promised are computed."""
        life, promises, left = self._lives[request], self._judge.promises, []
        retained = promises.is_retained(self._judge.groups[index])
        for place in life.spare:
            group, block = place
            if group != index or (
                retained and not promises.are_computed(request, index, block, shared, life.computed)
            ):
                left.append(place)
                continue
            kept = self._kept_in(life, index)
            # A block whose hash looks ahead is registered later than it is computed.
            final = life.computed - self._engine.num_hash_lookahead_tokens
            computed = final // self._engine.groups[index].block_size
            wasted = self._judge.registered(
                request, index, block, True, shared, kept=kept, num_computed=computed
            )
            yield from () if wasted is None else (wasted,)
        life.spare = left

    def _kept_in(self, life: _Life, index: int) -> Callable[[int], bool]:
        """Which blocks of a group were registered: by the request, or before its hit."""
        before = life.hit // self._engine.groups[index].block_size
        return lambda block: block < before or (index, block) in life.kept

    def _is_due(self, request: str, index: int, block: int, shared: Shared, computed: int) -> bool:
        size = self._engine.groups[index].block_size
        promised = self._judge.promises.promised(request, index, block, shared)
        reach = self._judge.promises.reach_tokens
        return any(end * size + reach <= computed for end in promised.values())

"""What a manager reports and in which order it evicts, judged at each call.

The events describe what is cached; a scheduler takes them once a step, not after each call.
Statistics count each lookup. The free queue keeps its order, blocks are taken from its front, and
freed ones that lookup can find join it at the end, the last of a request first.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    History,
    RequestInput,
    Reset,
    Schedule,
)
from hitproof.conformance.judge.event_descriptions import DEVICE, EventDescriptions, Wrong
from hitproof.conformance.judge.followers import Follower
from hitproof.conformance.playing.expectations import Reported
from hitproof.conformance.subject.managers import Cleared, Hit, Observation, Stored
from hitproof.spec.eviction import Queued, is_taken_from_the_front, joins_at_the_end


def steps_without_taking(history: History) -> Collection[int]:
    """The steps of a history, by number, after whose calls the events stay where they are.

    Those of the last chunk before a reset wait for it; in every second variant, as in a scheduler
    that plans ahead, those of two steps are taken together.
    """
    steps = history.steps
    waiting = {
        number for number in range(len(steps) - 1) if history.engine.variant % 2 and number % 2 == 0
    }
    for reset in (number for number, step in enumerate(steps) if isinstance(step, Reset)):
        chunks = [n for n, step in enumerate(steps[:reset]) if isinstance(step, Schedule)]
        waiting.discard(reset)
        waiting.update(range(max(chunks, default=reset), reset))
    return waiting


class Books:
    """What a manager reports in the course of one history.

    ``fine`` is whether entries may end inside blocks.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Prefixes,
        fine: bool,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._prefixes = prefixes
        self._descriptions = EventDescriptions(engine, requests, prefixes, fine)
        self._stats: Counter[str] = Counter()
        self._follower = Follower(engine.groups, prefixes, {DEVICE: self._descriptions})
        self._resumes = True
        self.counted: Counter[str] = Counter()

    def looked_up(self, request: str, num_tokens: int, hit: int, preempted: bool) -> None:
        """A lookup that counts."""
        skips = self._requests[request].skip_reading_prefix_cache
        if self._engine.enable_prefix_caching and not skips:
            which = "preempted_" if preempted else ""
            self._stats += Counter(
                {f"{which}requests": 1, f"{which}queries": num_tokens, f"{which}hits": hit}
            )

    def crashed(self) -> None:
        """A call has raised: the events until then are taken, and judge nothing."""
        self._resumes = True

    def reset(self) -> None:
        """The cache was reset."""
        self._stats["reset"] = 1

    def wrong(
        self,
        before: Observation,
        seen: Observation,
        call: str,
        touched: Collection[int],
        name: str,
        copied: Collection[int] = (),
    ) -> Iterator[Wrong]:
        """What is wrong after a call, given the observation before it.

        ``touched`` are the blocks of the hit with which a request is admitted, ``name`` is the
        request that the call is about, ``copied`` are the targets of its copies.
        """
        yield from self._wrong_events(before, seen)
        yield from self._wrong_statistics(seen)
        found = _misplaced(before, seen, touched, copied)
        if found is None and call == "free":
            found = _not_last_first(before, seen, name)
        if found is not None:
            yield Code.EVICTION_ORDER_WRONG, *found

    def _wrong_statistics(self, seen: Observation) -> Iterator[Wrong]:
        due, self._stats = self._stats, Counter()
        self.counted.update(seen.stats)
        for event in seen.events or ():
            if not isinstance(event, Cleared):
                what = "stored" if isinstance(event, Stored) else "removed"
                self.counted[what] += len(event.keys)
        shown = {field: due[field] for field in seen.stats}
        if shown != dict(seen.stats):
            yield (
                Code.STATISTICS_WRONG,
                f"statistics of this call: {_not_zero(shown)}",
                f"{_not_zero(seen.stats)}",
            )

    def _wrong_events(self, before: Observation, seen: Observation) -> Iterator[Wrong]:
        if self._resumes:
            self._resumes = False
            self._follower.starts_from(before.cached)
        if seen.events is not None:
            events = [(DEVICE, event) for event in seen.events]
            yield from self._follower.wrong(events, {DEVICE: seen.cached})

    def wrong_report(
        self, request: str, hit: Hit, reported: Sequence[Stored], seen: Observation
    ) -> Iterator[tuple[int, Wrong, Reported | None]]:
        """What is wrong with the events about the blocks of a hit, with the group."""
        said = Counter((event.group or 0, key) for event in reported for key in event.keys)
        for index, (group, table) in enumerate(zip(self._engine.groups, hit.tables, strict=True)):
            named = {key for number, key in said if number == index}
            if missing := [key for key in named if not seen.cached.get((index, key))]:
                yield (
                    index,
                    (
                        Code.UNCACHED_BLOCK_REPORTED,
                        f"the events about the hit of {request} name blocks that are cached",
                        f"they name {min(missing)}",
                    ),
                    self._due_report(request, index, min(missing), is_reported=False),
                )
            found = [
                (block, range(min(end, hit.length), end + 1, self._engine.hash_block_size))
                for place, block in enumerate(table)
                if block
                for end in [(place + 1) * group.block_size]
            ]
            due = [self._prefixes.name(request, ends[0]) for _, ends in found]
            keys = [self._key(request, index, block, ends, seen) for block, ends in found]
            if unnamed := [
                name for name, key in zip(due, keys, strict=True) if not named & {name, key}
            ]:
                yield (
                    index,
                    (
                        Code.HIT_NOT_REPORTED,
                        f"the events about the hit of {request} name {', '.join(due)}",
                        f"they name {', '.join(sorted(named)) or 'nothing'}",
                    ),
                    self._due_report(request, index, unnamed[0], is_reported=True),
                )
            if again := [key for key in named if said[index, key] > 1]:
                yield (
                    index,
                    (
                        Code.HIT_REPORTED_TWICE,
                        f"the events about the hit of {request} name each block once",
                        f"they name {min(again)} {said[index, min(again)]} times",
                    ),
                    None,
                )
        for event in reported:
            yield from ((event.group or 0, each, None) for each in self._descriptions.wrong(event))

    def _key(self, request: str, group: int, block: int, ends: range, seen: Observation) -> Name:
        """The shortest of these prefixes of the request under which the block is cached.

        A lookup that drops a hash unit for draft layers hits a block that is cached under the
        prefix before the drop, and under no shorter one.
        """
        known = len(self._requests[request].token_ids)
        names = [self._prefixes.name(request, end) for end in ends if end <= known]
        return next((n for n in names if block in seen.cached.get((group, n), ())), names[0])

    def _due_report(
        self, request: str, group: int, prefix: Name, is_reported: bool
    ) -> Reported | None:
        """What is expected of the events about a hit, if the prefix is of the request."""
        size, unit = self._engine.groups[group].block_size, self._engine.hash_block_size
        end = self._prefixes.end(prefix) or 0
        of_unit = end % size > 0
        if self._prefixes.name(request, end) != prefix or (of_unit and end % unit):
            return None
        return Reported(
            request, group, end // (unit if of_unit else size) - 1, of_unit, is_reported
        )


def _not_zero(stats: Mapping[str, int]) -> str:
    return ", ".join(f"{field} {n}" for field, n in stats.items() if n) or "nothing counted"


def _misplaced(
    before: Observation, seen: Observation, touched: Collection[int], copied: Collection[int]
) -> tuple[str, str] | None:
    """How the queue is not that of before, less what was taken from its front, and more at its end.

    Blocks that lookup cannot find may join it anywhere: in front, by the newer releases.
    """
    was, now = before.free_queue, seen.free_queue
    if was == now:
        return None
    # Blocks of a hit that leave the window stay free. The target of a copy was taken, and may be
    # free again; so was a block with a new key.
    left = set(was).difference(now) | _gained(before, seen) | {*copied, *touched}
    stays = [block for block in was if block not in left]
    staying = set(stays)
    # `spec.eviction.keeps_its_place` of all pairs.
    if [block for block in now if block in staying] != stays:
        return "blocks that stay free keep their order", f"from {was} to {now}"
    taken = left.intersection(was).difference(touched)
    if (
        stays
        and taken
        and not is_taken_from_the_front(_at(max(map(was.index, taken))), _at(was.index(stays[0])))
    ):
        passed = sorted(taken)
        return f"blocks are taken from the front of the free queue {was}", f"blocks {passed}"
    cached = {block for ids in seen.cached.values() for block in ids}
    stayed = staying.union(touched)
    new = [place for place, block in enumerate(now) if block in cached and block not in stayed]
    if stays and new and not joins_at_the_end(_at(new[0]), _at(now.index(stays[-1]))):
        return (
            f"freed blocks that are cached join the free queue {was} at its end",
            f"it becomes {now}",
        )
    return None


def _at(place: int) -> Queued:
    """A free block that lookup finds, at a place of the queue."""
    return Queued(True, place, True, 0)


def _gained(before: Observation, seen: Observation) -> set[int]:
    """The blocks with keys that they did not have."""
    return {
        block
        for key, ids in seen.cached.items()
        if ids != (had := before.cached.get(key, ()))
        for block in ids
        if block not in had
    }


def _not_last_first(before: Observation, seen: Observation, name: str) -> tuple[str, str] | None:
    """How the blocks of a freed request are not queued in the reverse order of its tables."""
    queued = _queued(before, seen)
    for table in before.tables.get(name, ()):
        for due, order in _not_reversed(seen, [b for b in queued if b in table], table):
            return f"blocks of table {table} are queued in the order {due}", f"{order}"
    return None


def wrongly_released(
    before: Observation, seen: Observation, released: Sequence[int]
) -> Iterator[tuple[str, str]]:
    """How blocks that are no longer held from outside are not queued in reverse order."""
    for due, order in _not_reversed(seen, _queued(before, seen), released):
        yield f"blocks {released} are queued in the order {due}", f"{order}"


def _queued(before: Observation, seen: Observation) -> list[int]:
    """The blocks that have joined the free queue, in its order."""
    was = set(before.free_queue)
    return [block for block in seen.free_queue if block not in was]


def _not_reversed(
    seen: Observation, queued: Sequence[int], given_up: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """The expected order of queued blocks and the actual one, where these differ.

    Cached blocks have an order of their own.
    """
    cached = {block for ids in seen.cached.values() for block in ids}
    for registered in (True, False):
        order = [block for block in queued if (block in cached) is registered]
        due = [block for block in _reversed(given_up) if block in set(order)]
        if order != due:
            yield due, order


def _reversed(table: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(reversed(table)))

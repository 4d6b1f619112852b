"""Followers of a cache, which know it by its events only: routers and external caches.

A follower keeps, for each group, the set of keys that were named as stored and not as removed
since; it does not count copies. At the end of each step this must be what the cache finds, and of
each stored block the follower must be able to tell the tokens: those of the event, after those of
a parent that it knows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.judge.event_descriptions import DEVICE, EventDescriptions, Wrong
from hitproof.conformance.subject.managers import Cleared, Event, Removed, Stored
from hitproof.spec.groups import Group

UNTOLD = frozenset(
    {
        Code.EVENT_FORGETS_COPY,
        Code.EVENT_PARENT_UNKNOWN,
        Code.EVENT_BEGINS_INSIDE_BLOCK,
        Code.EVENT_SPANS_OTHER_BLOCKS,
        Code.EVENT_GROUP_UNKNOWN,
    }
)
"""What events do not tell, whatever groups there are: it is the block pool that sends them."""
Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks of a pool by group and prefix."""
_Entries = Counter[tuple[int | None, Name]]
"""How many blocks are cached under each key; of all groups where events do not say which."""


class Follower:
    """Follows the events of one history about the pools of some media, each with descriptions."""

    def __init__(
        self,
        groups: Sequence[Group],
        prefixes: Prefixes,
        descriptions: Mapping[str, EventDescriptions],
    ) -> None:
        self._groups = groups
        self._prefixes = prefixes
        self._descriptions = descriptions
        self._cached: dict[str, Cached] = {medium: {} for medium in descriptions}
        """What was cached when events were taken last."""

    def starts_from(self, cached: Cached, medium: str = DEVICE) -> None:
        """The follower is told what is cached, as of events that judge nothing."""
        self._cached[medium] = cached

    def wrong(
        self, events: Sequence[tuple[str, Event]], pools: Mapping[str, Cached]
    ) -> Iterator[Wrong]:
        """What is wrong with events, each with its medium.

        ``pools`` has what is cached once they are taken, by medium.
        """
        since, self._cached = self._cached, {**self._cached, **pools}
        if not events and all(cached == since[medium] for medium, cached in pools.items()):
            return
        grouped = all(getattr(event, "group", 0) is not None for _, event in events)
        copies = {medium: _entries(cached, grouped) for medium, cached in since.items()}
        known = {medium: set(entries) for medium, entries in copies.items()}
        for number, (medium, event) in enumerate(events):
            if isinstance(event, Cleared):
                for each in known:
                    copies[each].clear()
                    known[each].clear()
                continue
            wrong = list(self._descriptions[medium].wrong(event))
            if event.group is None and len(self._groups) > 1 and event.keys:
                spec = f"the event about {', '.join(event.keys)} names their group"
                wrong.append((Code.EVENT_GROUP_UNKNOWN, spec, "it names none"))
            entries = [(event.group if grouped else None, key) for key in event.keys]
            if isinstance(event, Removed):
                copies[medium].subtract(entries)
                known[medium].difference_update(entries)
            else:
                if not wrong:
                    later = (each for _, each in events[number + 1 :] if isinstance(each, Stored))
                    wrong += self._misplaced(event, copies.values(), later)
                copies[medium].update(entries)
                known[medium].update(entries)
            yield from wrong
            if min(copies[medium].values(), default=0) < 0:
                break
        for medium, cached in pools.items():
            yield from _differs(medium, copies[medium], known[medium], _entries(cached, grouped))

    def _misplaced(
        self, event: Stored, copies: Iterable[_Entries], later: Iterable[Stored]
    ) -> Iterator[Wrong]:
        """How a follower of ``copies``, in any group, cannot tell the tokens of stored blocks."""
        keys, parent = ", ".join(event.keys) or "nothing", event.parent
        if len(event.token_ids) != len(event.keys) * event.block_size:
            yield (
                Code.EVENT_SPANS_OTHER_BLOCKS,
                f"the event that {keys} is stored has the tokens of these blocks",
                f"it has {len(event.token_ids)}, for {len(event.keys)} of {event.block_size} each",
            )
            return
        if parent is None or any(
            key == parent and number > 0 for each in copies for (_, key), number in each.items()
        ):
            return
        groups = [each.group for each in later if parent in each.keys]
        if event.group in groups:
            yield (
                Code.EVENTS_WRONG,
                f"the event that {parent} is stored comes before those of the next",
                f"it comes after that of {keys}",
            )
        elif not groups:
            size = self._groups[event.group or 0].block_size
            inside = (self._prefixes.end(parent) or 0) % size
            yield (
                Code.EVENT_BEGINS_INSIDE_BLOCK if inside else Code.EVENT_PARENT_UNKNOWN,
                f"the event that {keys} is stored begins after a block that was named as stored",
                f"it begins after {parent}",
            )


def _entries(cached: Cached, grouped: bool) -> _Entries:
    found: _Entries = Counter()
    for (group, name), ids in cached.items():
        found[group if grouped else None, name] += len(ids)
    return found


def _differs(
    medium: str, copies: _Entries, known: set[tuple[int | None, Name]], due: _Entries
) -> Iterator[Wrong]:
    """How what a follower knows is not what is cached."""
    lost, added = due.keys() - known, known - due.keys()
    if lost and not added and all(copies[entry] == due[entry] for entry in lost):
        group, key = min(lost, key=str)
        yield (
            Code.EVENT_FORGETS_COPY,
            f"{key} is named as removed when no block is cached under it any more",
            f"it is named while there are {due[group, key]}",
        )
    elif lost or added or min(copies.values(), default=0) < 0:
        yield (
            Code.EVENTS_WRONG,
            f"the events of medium {medium} lead to what is cached: {_words(due)}",
            f"they lead to {_words(+copies)}",
        )


def _words(entries: _Entries) -> str:
    found = (f"{key} {n} times" if n != 1 else key for (_, key), n in entries.items() if n)
    return ", ".join(sorted(found)) or "nothing"

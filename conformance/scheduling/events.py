"""The events that a scheduler publishes with the results of its steps, about each of its pools."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.event_descriptions import DEVICE, HOST, EventDescriptions
from hitproof.conformance.scheduling.runner import violation
from hitproof.conformance.subject.managers import Cleared, Event, Removed

Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks of a pool by group and prefix."""


class PublishedEvents:
    """Follows the events of one scheduler: who applies them knows what each pool has cached."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Prefixes,
    ) -> None:
        self._descriptions = {
            medium: EventDescriptions(engine, requests, prefixes, fine=False, medium=medium)
            for medium in (DEVICE, HOST)
        }
        self._known: dict[str, Counter[tuple[int, Name]]] = {DEVICE: Counter(), HOST: Counter()}

    def wrong(
        self, events: Sequence[tuple[str, Event]], pools: Mapping[str, Cached]
    ) -> Iterator[Violation]:
        """What is wrong with events, each with the medium of its group's pool.

        ``pools`` has what is cached once they are published, by medium.
        """
        for medium, event in events:
            if isinstance(event, Cleared):
                for each in self._known.values():
                    each.clear()
                continue
            for code, spec, actual in self._descriptions[medium].wrong(event):
                yield violation(Defect(code), spec, actual)
            entries = Counter((event.group or 0, key) for key in event.keys)
            if isinstance(event, Removed):
                self._known[medium].subtract(entries)
            else:
                self._known[medium].update(entries)
        for medium, cached in pools.items():
            due = Counter({entry: len(blocks) for entry, blocks in cached.items()})
            known, self._known[medium] = self._known[medium], due
            if {entry: number for entry, number in known.items() if number} != due:
                yield violation(
                    Defect(Code.EVENTS_WRONG),
                    f"the events of medium {medium} lead to what is cached: {_words(due)}",
                    f"they lead to {_words(known)}",
                )


def _words(entries: Mapping[tuple[int, Name], int]) -> str:
    found = (f"{key} {n} times" if n != 1 else key for (_, key), n in entries.items() if n)
    return ", ".join(sorted(found)) or "nothing"

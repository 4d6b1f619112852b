"""Several KV connectors beside one scheduler, each with what it keeps or sends.

The first that has tokens of a request loads them, and each keeps what is computed. vLLM:
``MultiConnector``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.followers import Cached
from hitproof.conformance.scheduling.outcome import Life
from hitproof.conformance.scheduling.transfers import (
    CONNECTOR,
    ConnectorTransfers,
    Known,
    Touched,
)
from hitproof.conformance.subject.schedulers import HostResult, Plan, PoolState


class Several(ConnectorTransfers):
    """Follows the plans of one scheduler with several connectors, by ``parts``.

    What these keep is told by groups: those of the second follow those of the first, and so on.
    """

    def __init__(
        self, parts: Sequence[ConnectorTransfers], content: ContentModel, num_groups: int
    ) -> None:
        self._parts, self._content, self._groups = parts, content, num_groups
        self.spoilt = set()
        for each in parts:
            each.spoilt = self.spoilt
        self.keeps = any(each.keeps for each in parts)

    @property
    def is_busy(self) -> bool:
        """See `ConnectorTransfers`."""
        return any(each.is_busy for each in self._parts)

    @property
    def policy(self) -> str:
        """See `ConnectorTransfers`. That of the first is that of all."""
        return self._parts[0].policy

    def fails(self, request: str) -> bool:
        """See `ConnectorTransfers`."""
        return any(each.fails(request) for each in self._parts)

    def spoils(self, request: str) -> bool:
        """See `ConnectorTransfers`."""
        return any(each.spoils(request) for each in self._parts)

    @property
    def loading(self) -> frozenset[str]:
        """See `ConnectorTransfers`."""
        return frozenset[str]().union(*(each.loading for each in self._parts))

    @property
    def loaded(self) -> frozenset[str]:
        """See `ConnectorTransfers`. What has failed may be loaded again by another."""
        return frozenset[str]().union(*(each.loaded for each in self._parts)) - self.loading

    def forget(self, requests: Iterable[str]) -> None:
        """See `ConnectorTransfers`."""
        names = [*requests]
        for each in self._parts:
            each.forget(names)

    def reset(self, requests: Iterable[str]) -> None:
        """See `ConnectorTransfers`. One may do it that is beside one which cannot."""
        names = [*requests]
        for each in self._parts:
            each.reset(names)

    def waited(self, request: str) -> bool:
        """See `ConnectorTransfers`."""
        waited = [each.waited(request) for each in self._parts]  # each says so once
        return any(waited)

    def flush(self, plan: Plan) -> None:
        """See `ConnectorTransfers`."""
        for each, of_it in self._of(plan):
            each.flush(of_it)

    def start(
        self,
        plan: Plan,
        touched: Touched,
        in_flight: frozenset[int],
        held: frozenset[int],
        known: Known,
    ) -> Iterator[Violation]:
        """See `ConnectorTransfers`. The first that has tokens of a request loads, and no other."""
        assert plan.transfers is not None
        names = [name for each in plan.transfers.several for name in each.begun]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Violation.of(
                CONNECTOR,
                Defect.of(Code.TRANSFERRED_PAGE_USED, what="loads", how="twice"),
                f"one connector loads what request {name} waits for",
                "several do",
            )
        for place, asked in enumerate(plan.transfers.several):
            for name in sorted(asked.begun):
                if plan.transfers.first.get(name, place) != place:
                    yield Violation.of(
                        CONNECTOR,
                        Defect.of(Code.TRANSFERRED_PAGE_USED, what="loads", how="order"),
                        f"the first connector that has tokens of request {name} loads them",
                        "a later one does",
                    )
        for each, of_it in self._of(plan):
            yield from each.start(of_it, touched, in_flight, held, known)

    def finish(self, known: Known) -> HostResult:
        """See `ConnectorTransfers`."""
        several = tuple(each.finish(known) for each in self._parts)
        return HostResult(
            loaded=tuple(name for each in several for name in each.loaded),
            failed=tuple(name for each in several for name in each.failed),
            invalid=tuple(block for each in several for block in each.invalid),
            sent=tuple(name for each in several for name in each.sent),
            several=several,
        )

    def sampled(self) -> None:
        """See `ConnectorTransfers`."""
        for each in self._parts:
            each.sampled()

    def taken_up(self, result: HostResult) -> None:
        """See `ConnectorTransfers`."""
        for each, of_it in zip(self._parts, result.several, strict=True):
            each.taken_up(of_it)
        for name in result.failed:  # before another loads for it
            self._content.free(name)

    def too_short(
        self,
        plan: Plan,
        lengths: Mapping[str, int],
        stored: Cached,
        due_hit: Callable[[str, int, Cached], int],
    ) -> Iterator[Violation]:
        """See `ConnectorTransfers`. Each connector is asked, also those that load nothing."""
        for (each, of_it), its in zip(self._of(plan), self._split(stored), strict=True):
            yield from each.too_short(of_it, lengths, its, due_hit)

    def left_out(self, lives: Mapping[str, Life], stored: Cached) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        for each, its in zip(self._parts, self._split(stored), strict=True):
            yield from each.left_out(lives, its)

    def evicted(self, plan: Plan, rested: PoolState, now: PoolState) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        its = self._split(now.offloaded)
        for (each, of_it), offloaded in zip(self._of(plan), its, strict=True):
            yield from each.evicted(of_it, rested, replace(now, offloaded=offloaded))

    def wrong_keys(self, cached: Cached) -> Iterator[Violation]:
        """See `ConnectorTransfers`."""
        for each, its in zip(self._parts, self._split(cached), strict=True):
            yield from each.wrong_keys(its)

    def _of(self, plan: Plan) -> Iterator[tuple[ConnectorTransfers, Plan]]:
        told = plan.transfers
        assert told is not None
        for each, of_it in zip(self._parts, told.several, strict=True):
            yield each, replace(plan, transfers=of_it)

    def _split(self, cached: Cached) -> Iterator[Cached]:
        for place in range(len(self._parts)):
            first = place * self._groups
            last = first + self._groups
            yield {(g - first, key): ids for (g, key), ids in cached.items() if first <= g < last}

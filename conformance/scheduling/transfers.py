"""What a KV connector loads into pages, and sends from them, beside the steps.

- A load writes its pages at any time from the step in which it begins until its end is processed,
  in no order with steps. So no other request has them, and neither a step that is planned meanwhile
  nor one that still runs when the load begins uses them.
- What is sent is read from the end of the request until the end of the transfer is processed. Until
  then its pages are held, and not written.
- What the connector reports as failed is garbage, and so is what is computed from it. Where the
  step itself loads, it reads garbage before the failure is known: that is wrong only if a user gets
  a token computed from it (`conformance.scheduling.runner`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_store import INVALID_LOAD
from hitproof.conformance.judge.followers import Cached
from hitproof.conformance.scheduling.outcome import Life
from hitproof.conformance.subject.schedulers import HostResult, Loading, Plan, PoolState
from hitproof.spec.groups import GroupKind

CONNECTOR = "connector"
"""What is judged, where a KV connector loads or sends."""
_UNDER_WAY = "a load under way"
Known = Callable[[str], int]


@dataclass(frozen=True)
class Touched:
    """The pages that a step reads or writes, and those of them that it writes."""

    used: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Transfer:
    request: str
    ends: int
    pages: frozenset[int]
    loading: Loading | None
    fails: int = 0
    """The step in which its failed blocks are reported."""

    @property
    def what(self) -> str:
        return "sends" if self.loading is None else "loads"


class ConnectorTransfers:
    """Follows the plans of one scheduler; ``content`` is what is in its pages.

    Attributes:
        spoilt: requests that have read what was spoilt by a load.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        connector: Connector,
        arrivals: Mapping[str, Arrival],
        content: ContentModel,
    ) -> None:
        self._engine, self._connector = engine, connector
        self._arrivals, self._content = arrivals, content
        self._under_way: list[_Transfer] = []
        self._invalid: tuple[int, ...] = ()
        self._step = 0
        self._failed: set[str] = set()
        self._waited: set[str] = set()
        self._over: set[str] = set()
        self._outdated: set[str] = set()
        self.spoilt: set[str] = set()

    keeps = False
    """Whether it has what was computed."""

    @property
    def is_busy(self) -> bool:
        """Whether any transfer is under way, or not processed."""
        return bool(self._under_way)

    @property
    def policy(self) -> str:
        """What becomes of requests whose load has failed."""
        return self._connector.load_failure

    def may_fail(self, request: str) -> bool:
        """Whether the request may end without all of its output."""
        return self.policy == "fail" and self.spoils(request)

    def fails(self, request: str) -> bool:
        """Whether the load of the request has failed, at least in part."""
        return request in self._failed

    def spoils(self, request: str) -> bool:
        """Whether the request has read what a load spoilt, or its own has failed."""
        return request in self.spoilt or request in self._failed

    @property
    def loading(self) -> frozenset[str]:
        """Requests that wait for a load which has begun and is not over."""
        return frozenset(each.request for each in self._under_way if each.loading is not None)

    @property
    def loaded(self) -> frozenset[str]:
        """Requests whose load is over, as the scheduler has heard, and which were not admitted."""
        return frozenset(self._over)

    def forget(self, requests: Iterable[str]) -> None:
        """What the connector has of these is of old weights; loads under way continue."""
        self._outdated.update(requests)

    def reset(self, requests: Iterable[str]) -> None:
        """The connector was asked to forget what it has of these, and may have done so."""

    def waited(self, request: str) -> bool:
        """Whether the request has waited for a load, so that it has blocks when it is admitted.

        It says so once.
        """
        waited = request in self._waited
        self._waited.discard(request)
        return waited

    def flush(self, plan: Plan) -> None:
        """Before all else of a step, what workers wait for is copied.

        vLLM: ``handle_preemptions``, before ``_update_states``.
        """

    def start(
        self,
        plan: Plan,
        touched: Touched,
        in_flight: frozenset[int],
        held: frozenset[int],
        known: Known,
    ) -> Iterator[Violation]:
        """Before a step computes, which uses what is ``touched``.

        ``in_flight`` are pages of steps whose results are not processed, ``held`` those with
        references, ``known`` counts the tokens of a request.
        """
        told = plan.transfers
        assert told is not None
        self._step += 1
        self._over.difference_update(each.request for each in plan.scheduled)
        for each in self._under_way:
            yield from self._left_alone(each, touched, held)
        for name, loading in told.loads.items():
            if name in self._outdated:
                yield _outdated(name)
            steps = self._arrivals[name].load_steps
            if steps is None:
                self._write(name, loading, known(name))
                self._invalid += self._invalid_of(name, loading)
                continue
            pages = frozenset(self._pages(loading))
            early = self._arrivals[name].invalid_steps
            fails = self._step + (steps if early is None else early)
            begun = _Transfer(name, self._step + steps, pages, loading, fails)
            self._under_way.append(begun)
            yield from self._left_alone(begun, touched, held)
            if others := pages & in_flight:
                yield _wrong(begun, "in-flight", others, "a step that still runs uses it")
            if zeroed := pages.intersection(plan.zeroed or ()):
                yield _wrong(begun, "zeroed", zeroed, "workers zero it before the step")
            self._content.spoil(name, loading.tables, loading.start, loading.end, _UNDER_WAY)
        for name, tables in told.sends.items():
            pages = frozenset(block for table in tables for block in table if block)
            ends = self._step + (self._arrivals[name].send_steps or 0)
            self._under_way.append(_Transfer(name, ends, pages, None))

    def finish(self, known: Known) -> HostResult:
        """What workers report with the results of the step."""
        over = [each for each in self._under_way if each.ends <= self._step]
        # Reported once; its pages are free to use when the scheduler has heard of it.
        loaded = [each for each in over if each.ends == self._step and each.loading is not None]
        invalid, self._invalid = self._invalid, ()
        for each in self._under_way:
            if each.loading is not None and each.fails == self._step:
                invalid += self._invalid_of(each.request, each.loading)
        for each in loaded:
            assert each.loading is not None
            self._write(each.request, each.loading, known(each.request))
            if not self._arrivals[each.request].load_fails:
                self._waited.add(each.request)
        names = tuple(each.request for each in loaded)
        sent = (t for t in over if t.ends == self._step and t.loading is None)
        return HostResult(
            loaded=names,
            failed=tuple(name for name in names if self._arrivals[name].load_fails),
            invalid=invalid,
            sent=tuple(each.request for each in sent),
        )

    def sampled(self) -> None:
        """The step has sampled, and states are as the accepted drafts leave them.

        vLLM: only then ``wait_for_save`` starts to store, where there are drafts.
        """

    def taken_up(self, result: HostResult) -> None:
        """The scheduler has heard of what was reported."""
        for each in self._under_way:
            tables = each.loading.tables if each.loading is not None else ()
            if any(block in result.invalid for table in tables for block in table):
                self.spoilt.add(each.request)  # a hit before what it loads
        self._over.update(result.loaded)
        over = {("loads", name) for name in result.loaded}
        over |= {("sends", name) for name in result.sent}
        self._under_way = [e for e in self._under_way if (e.what, e.request) not in over]

    # --- what is asked of those that keep what was computed ---------------------------------------

    def too_short(
        self,
        plan: Plan,
        lengths: Mapping[str, int],
        stored: Cached,
        due_hit: Callable[[str, int, Cached], int],
    ) -> Iterator[Violation]:
        """Lookups of this plan that serve less than what was ``stored`` when it was made.

        ``lengths`` are the tokens of the requests. Where hits may end inside blocks, ``due_hit``
        has the longest for a prompt and what is stored of it or local.
        """
        del plan, lengths, stored, due_hit
        yield from ()

    def left_out(self, lives: Mapping[str, Life], stored: Cached) -> Iterator[Violation]:
        """What is not ``stored`` of requests that have ended, where nothing was evicted.

        What a window or a state had before a hit, or a preemption, may be gone.
        """
        del lives, stored
        yield from ()

    def evicted(self, plan: Plan, rested: PoolState, now: PoolState) -> Iterator[Violation]:
        """What is wrong with what the device has evicted for a plan.

        ``rested`` is what its pool was left with by the plan before, ``now`` by this one.
        """
        del plan, rested, now
        yield from ()

    def wrong_keys(self, cached: Cached) -> Iterator[Violation]:
        """The keys of what it has that do not name what their block holds."""
        del cached
        yield from ()

    # --- its parts -------------------------------------------------------------------------------

    def _left_alone(
        self, transfer: _Transfer, touched: Touched, held: frozenset[int]
    ) -> Iterator[Violation]:
        used = touched.written if transfer.loading is None else touched.used
        if free := transfer.pages - held:
            yield _wrong(transfer, "free", free, "it is free")
        if others := transfer.pages & used:
            yield _wrong(transfer, "step", others, "a step uses it")

    def _places(self, group: int, loading: Loading) -> range:
        size = self._engine.groups[group].block_size
        last = (loading.end - 1) // size
        mamba = self._engine.groups[group].kind is GroupKind.MAMBA
        return range(last if mamba else loading.start // size, last + 1)

    def _pages(self, loading: Loading) -> Iterator[int]:
        for group, table in enumerate(loading.tables):
            for place in self._places(group, loading):
                if place < len(table) and table[place]:
                    yield table[place]

    def _invalid_of(self, name: str, loading: Loading) -> tuple[int, ...]:
        """The blocks of a load that fail; with one group only."""
        table, wanted = loading.tables[0], self._arrivals[name].invalid_blocks
        return tuple(table[p] for p in self._places(0, loading) if p in wanted and table[p])

    def _write(self, name: str, loading: Loading, known: int) -> None:
        """What is in the pages of a load that is over."""
        arrival, size = self._arrivals[name], self._engine.groups[0].block_size
        start, end, tables = loading.start, loading.end, loading.tables
        self._content.load(name, tables, start, end, known)
        if arrival.load_fails:
            self._failed.add(name)
            self._content.spoil(name, tables, start, end, INVALID_LOAD)
        for place in self._places(0, loading):
            # What is not loaded, as no token reads it, does not fail.
            if place in arrival.invalid_blocks and tables[0][place]:
                self._failed.add(name)
                first, last = max(start, place * size), min(end, (place + 1) * size)
                self._content.spoil(name, tables, first, last, INVALID_LOAD)


def _wrong(transfer: _Transfer, how: str, pages: frozenset[int], actual: str) -> Violation:
    defect = Defect.of(Code.TRANSFERRED_PAGE_USED, what=transfer.what, how=how)
    return Violation.of(
        CONNECTOR,
        defect,
        f"page {min(pages)}, which a connector {transfer.what} for request {transfer.request}, is "
        "left alone",
        actual,
    )


def _outdated(name: str) -> Violation:
    return Violation.of(
        CONNECTOR,
        Defect.of(Code.CONNECTOR_RESET_WRONG, how="loads"),
        "after a reset nothing is loaded that the connector had before",
        f"that is loaded for request {name}",
    )

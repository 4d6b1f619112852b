"""What a KV connector keeps in host memory of what was computed here, and loads from there.

Blocks are copied whole, in both directions, one by one or as chunks of several. A copy may be made
at any time until it is reported: here as late as can be, so that blocks which are taken meanwhile
show. Only content is judged: keys name what their blocks hold, on the host, too, and steps read
what they have to.
"""

from collections.abc import Iterator, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import OFFLOADING
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.histories.workloads import Arrival, Connector
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_entries import DueEntries
from hitproof.conformance.judge.content_keys import KeyedContent
from hitproof.conformance.judge.content_store import ContentStore
from hitproof.conformance.scheduling.transfers import (
    CONNECTOR,
    ConnectorTransfers,
    Known,
    Touched,
)
from hitproof.conformance.subject.schedulers import HostCopy, HostResult, Plan
from hitproof.spec.claims import Divergence


class Offloading(ConnectorTransfers):
    """Follows the plans of one scheduler with such a connector."""

    def __init__(
        self,
        engine: EngineConfiguration,
        connector: Connector,
        arrivals: Mapping[str, Arrival],
        requests: Mapping[str, RequestInput],
        content: ContentModel,
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
        self._more = False
        self._keys = KeyedContent(
            engine,
            requests,
            DueEntries(engine, requests),
            self._memory,
            _in_chunks if connector.chunk else _signature,
        )

    @property
    def is_busy(self) -> bool:
        """Whether anything is being copied, or not taken up."""
        return bool(self._copies or self._reported) or self._more

    def flush(self, plan: Plan) -> None:
        """See `ConnectorTransfers`."""
        told = plan.transfers
        assert told is not None
        self._step += 1
        self._more = told.more
        self._memory.new_step_starts()
        waited = [copy for _, copy in self._copies if told.waits]
        self._copies += [(self._step, copy) for copy in told.copies]
        flushed = (c for _, c in self._copies if c.loads is None and c.number in told.flushed)
        for copy in (*waited, *flushed):
            if copy not in self._made:
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
        yield from ()

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
        self._waited.update(loaded)
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

    def wrong_keys(self, cached: Mapping[tuple[int, str], tuple[int, ...]]) -> Iterator[Violation]:
        """The keys of host memory that do not name what their block holds."""
        yield from self._keys.wrong(cached)

    def _copy(self, copy: HostCopy) -> None:
        for block, host in zip(copy.blocks, copy.host, strict=True):
            if copy.loads is None:
                self._memory.copy_from(self._device, block, host)
            else:
                self._device.copy_from(self._memory, host, block)


def _signature(group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
    del group
    return Signature.booked(defect, divergence, CONNECTOR, False, claim)


def _in_chunks(group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
    told = Defect.read(defect.code, {**dict(defect.parameters), "tier": OFFLOADING})
    return _signature(group, claim, told, divergence)

"""The pages of a host's pool and those on the device that it backs, as workers keep them.

A token's row is written to the page on the device that its request was last told of. From there it
gets to the host: with the step, row by row, or when a full page is copied. A step reads each row
from the device where its request was told of a page there, else from the host, for which it needs
its hot blocks. Pages on the device share their blocks with the other groups there, so any other
write to a block ends what it held. What is copied or loaded takes effect when it is reported, as
late as it can. vLLM: ``HiSparseConnectorWorker``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.histories.workloads import Arrival, HostPool
from hitproof.conformance.judge.content_entries import DueEntries
from hitproof.conformance.judge.content_keys import KeyedContent
from hitproof.conformance.judge.content_store import ContentStore, Entry
from hitproof.conformance.subject.managers import Tables
from hitproof.conformance.subject.schedulers import (
    HostResult,
    HostState,
    HostStep,
    Loading,
    Plan,
    Scheduled,
    Transfer,
)
from hitproof.spec.claims import Divergence

HOST = "host_pool"
"""What is judged, where it is the host's pool and the pages that it backs."""
_FAILED = Entry("what a failed load left")
_Load = Callable[[str, Loading], None]
_Ranges = Mapping[str, tuple[int, int]]


def violation(code: Code, spec: str, actual: str) -> Violation:
    """What is wrong with the host's pool, or with the pages that it backs."""
    return Violation.of(HOST, Defect(code), spec, actual)


@dataclass
class _Pages:
    """What workers know of a request: its blocks in the host's pool, and on the device."""

    host: tuple[int, ...]
    hot: Tables
    resident: dict[int, tuple[int, ...]] = field(default_factory=dict)


class HostTiers:
    """Follows the plans of one scheduler; ``store`` has what is on the device.

    Groups of it are numbered on from those of ``engine``: those with pages, then the hot ones.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        host: HostPool,
        arrivals: Mapping[str, Arrival],
        requests: Mapping[str, RequestInput],
        store: ContentStore,
    ) -> None:
        self._size = engine.groups[0].block_size
        self._first = len(engine.groups)
        self._num_blocks = engine.num_gpu_blocks
        self._layers = range(host.resident_groups)
        self._host, self._arrivals = host, arrivals
        self._device = store
        self._pools = [ContentStore() for _ in self._layers]
        self._due = DueEntries(engine, requests)
        self._keys = [
            KeyedContent(engine, requests, self._due, pool, self._sign) for pool in self._pools
        ]
        self._pages: dict[str, _Pages] = {}
        self._rows: defaultdict[str | None, dict[int, tuple[int, ...]]] = defaultdict(dict)
        self._transfers: list[tuple[int, Transfer]] = []
        self._loads: list[tuple[int, str, Loading]] = []
        self._handed_out = self._step = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything is being copied or loaded."""
        return bool(self._transfers or self._loads)

    @property
    def keeps_all(self) -> bool:
        """Whether the host gives nothing up that it has.

        Where a load ends inside a page, what follows is not promised to get to the host.
        """
        each = 1 + len(self._layers) * (1 + self._host.hot_blocks)
        few = self._handed_out < min(self._host.num_blocks, self._num_blocks // each) - 1
        return few and not self._host.loads

    def _sign(self, group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
        del group
        return Signature.booked(defect, divergence, HOST, False, claim)

    # --- one step, in the order of a worker ------------------------------------------------------

    def start(
        self, plan: Plan, ranges: _Ranges, held: frozenset[int], registered: frozenset[int]
    ) -> Iterator[Violation]:
        """Before the step, and what it writes.

        ``held`` are blocks on the device with references, ``registered`` blocks of the host's pool
        with keys: a load leaves those alone that it finds registered, as they have the content.
        """
        told = plan.host
        assert told is not None
        self._step += 1
        for pool in self._pools:
            pool.new_step_starts()
            for source, target in told.copies:
                pool.copy(source, target)
        for name in (*plan.finished, *plan.preempted):
            self._pages.pop(name, None)
            self._rows.pop(self._arrivals[name].session, None)
        for transfer in told.transfers:
            self._transfers.append((self._step, transfer))
            if transfer.restore:
                self._restore(transfer)
        for name, load in told.loads.items():
            new = tuple(0 if block in registered else block for block in load.host)
            self._loads.append((self._step, name, replace(load, host=new)))
        for each in plan.scheduled:
            self._take_up(each, told)
        for name, pages in told.residency.items():
            self._pages[name].resident.update(pages)
        for each in plan.scheduled:
            yield from self._write(each.request, *ranges[each.request], held)

    def finish(
        self, plan: Plan, ranges: _Ranges, load: _Load
    ) -> tuple[HostResult, list[Violation]]:
        """What the step reads, and what workers report with its results.

        ``load`` writes what a connector loaded to the groups of the engine.
        """
        told = plan.host
        assert told is not None
        for rows in told.rows if self._host.writes_through else ():
            for row in range(rows.count):
                self._copy_row(rows.sources, rows.target, row)
        wrong = [
            each_wrong
            for each in plan.scheduled
            for each_wrong in self._read(each.request, *ranges[each.request], told.all_resident)
        ]
        last = self._step - self._host.delay
        done = [transfer for since, transfer in self._transfers if since <= last]
        self._transfers = [each for each in self._transfers if each[0] > last]
        for transfer in done:
            if not transfer.restore and not self._host.writes_through:
                sources = tuple(block * self._size for block in transfer.resident)
                for row in range(self._size):
                    self._copy_row(sources, transfer.host * self._size, row)
        loaded = [(name, loading) for since, name, loading in self._loads if since <= last]
        self._loads = [each for each in self._loads if each[0] > last]
        for name, loading in loaded:
            self._load(name, loading, load)
        names = [name for name, _ in loaded]
        failed = tuple(name for name in names if self._arrivals[name].load_fails)
        numbers = tuple(transfer.number for transfer in done)
        copied = tuple(target for _, target in told.copies)
        return HostResult(numbers, copied, tuple(names), failed), wrong

    def wrong_keys(self, cached: Mapping[tuple[int, str], tuple[int, ...]]) -> Iterator[Violation]:
        """The keys of the host's pool, by their names, that do not name what their block holds."""
        for keys in self._keys:
            yield from keys.wrong(cached)

    def left(self, state: HostState) -> Iterator[Violation]:
        """What is held though nothing is left to do."""
        if state.held:
            yield violation(
                Code.BLOCKS_HELD_WHEN_IDLE,
                "no block of the host's pool is held when all requests have ended",
                f"blocks {sorted(state.held)} are",
            )

    # --- its parts -------------------------------------------------------------------------------

    def _take_up(self, each: Scheduled, told: HostStep) -> None:
        host, hot = told.tables[each.request], told.hot[each.request]
        self._handed_out += len(host)
        known = self._pages.get(each.request)
        if each.whole or known is None:
            # A session that goes on keeps its row, which is told of nothing again.
            session = self._arrivals[each.request].session
            row: dict[int, tuple[int, ...]] = {} if session is None else self._rows[session]
            self._pages[each.request] = _Pages(host, hot, row)
            return
        known.host += host
        known.hot = tuple((*had, *more) for had, more in zip(known.hot, hot, strict=True))

    def _restore(self, transfer: Transfer) -> None:
        for layer, block in zip(self._layers, transfer.resident, strict=True):
            for slot in range(self._size):
                found = self._pools[layer].read(0, transfer.host, slot)
                if isinstance(found, Entry):
                    self._device.write(self._first + layer, block, slot, found, "", loaded=True)

    def _copy_row(self, sources: tuple[int, ...], target: int, row: int) -> None:
        block, slot = divmod(target + row, self._size)
        for layer, source in zip(self._layers, sources, strict=True):
            found = self._device.read(self._first + layer, *divmod(source + row, self._size))
            held = found if isinstance(found, Entry) else Entry(found)
            self._pools[layer].write(0, block, slot, held, "")

    def _load(self, name: str, loading: Loading, load: _Load) -> None:
        fails = self._arrivals[name].load_fails
        for token in range(loading.start, loading.end):
            page, slot = divmod(token, self._size)
            held = _FAILED if fails else self._due.entry(name, 0, token)
            for pool in self._pools:
                pool.write(0, loading.host[page], slot, held, name)
        if not fails:
            load(name, loading)

    def _write(
        self, name: str, start: int, num_tokens: int, held: frozenset[int]
    ) -> Iterator[Violation]:
        pages = self._pages[name]
        reads_host = any(0 in self._resident(name, page) for page in range(-(-start // self._size)))
        for layer, hot in enumerate(pages.hot) if reads_host else ():
            for block in hot:
                group = self._first + len(self._layers) + layer
                self._device.write(group, block, 0, Entry(f"hot of {name}"), name)
        wrong: dict[Code, Violation] = {}
        for token in range(start, start + num_tokens):
            page, slot = divmod(token, self._size)
            for layer, block in enumerate(self._resident(name, page)):
                spec = f"request {name}: token {token} has a page on the device, which is held"
                if not block:
                    code, actual = Code.NULL_PAGE_WRITTEN, "it has none"
                elif block not in held:
                    code, actual = Code.PAGE_FREED_IN_FLIGHT, f"block {block} is free"
                else:
                    code, actual = None, ""
                if code is not None:
                    wrong.setdefault(code, violation(code, spec, actual))
                entry = self._due.entry(name, 0, token)
                self._device.write(self._first + layer, block, slot, entry, name)
        yield from wrong.values()

    def _resident(self, name: str, page: int) -> tuple[int, ...]:
        """The blocks on the device that a page is read from; 0 where it is read from the host."""
        return self._pages[name].resident.get(page, (0,) * len(self._layers))

    def _read(
        self, name: str, start: int, num_tokens: int, all_resident: bool
    ) -> Iterator[Violation]:
        """What a request reads wrong; once for the device, and once for the host."""
        pages, wrong = self._pages[name], dict[tuple[bool, Code], Violation]()
        for token in range(start + num_tokens):
            page, slot = divmod(token, self._size)
            wanted = self._due.entry(name, 0, token)
            for layer, block in enumerate(self._resident(name, page)):
                hot = pages.hot[layer] if pages.hot else ()
                if block:
                    found = self._device.read(self._first + layer, block, slot)
                    where = f"block {block} on the device"
                elif all_resident or len(hot) != self._host.hot_blocks or 0 in hot:
                    found, where = "no hot block", "the page is not on the device"
                else:
                    host = pages.host[page] if page < len(pages.host) else 0
                    found = self._pools[layer].read(0, host, slot)
                    where = f"block {host} of the host's pool"
                if found == wanted:
                    continue
                missing = isinstance(found, str)
                code = Code.NULL_BLOCK_READ if missing else Code.OTHER_CONTENT_READ
                held = found if isinstance(found, str) else found.target
                spec = f"request {name}: token {token} is read, the entry as of {wanted.target}"
                found_wrong = violation(code, spec, f"{where}: {held}")
                wrong.setdefault((bool(block), code), found_wrong)
        yield from wrong.values()

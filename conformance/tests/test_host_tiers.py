"""The pages of a host's pool: what workers are told is followed, and each fault of it is seen."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.histories.workloads import Arrival, Deployment, HostPool, SchedulerHistory
from hitproof.conformance.judge.content_store import ContentStore
from hitproof.conformance.scheduling.host_tiers import HostTiers
from hitproof.conformance.subject.schedulers import (
    HostState,
    HostStep,
    Loading,
    Plan,
    Rows,
    Scheduled,
    Transfer,
)
from hitproof.spec.groups import Group, GroupKind

SIZE = 4
GROUP = Group(GroupKind.FULL_ATTENTION, SIZE)
ENGINE = EngineConfiguration((GROUP,), 20, SIZE, 64)
ARRIVALS = {
    "a": Arrival(tuple(range(1, 10)), (90, 91, 92)),
    "b": Arrival(tuple(range(1, 10)), (90,), loads=8),
    "c": Arrival((7, 8, 9, 10, 11), (12,)),
}
NOTHING = HostStep({}, {}, (), (), (), {}, False, {})
HOT = ((15, 16),)


class Worker:
    """Steps of hand-made plans; every block on the device is held unless said."""

    def __init__(self, host: HostPool, free: Sequence[int] = ()) -> None:
        requests = {name: each.request for name, each in ARRIVALS.items()}
        self.store = ContentStore()
        self.tiers = HostTiers(ENGINE, host, ARRIVALS, requests, self.store)
        self.held = frozenset(range(1, 20)) - set(free)

    def name(self, request: str, end: int) -> str:
        """The name of a request's first tokens."""
        return Prefixes({request: ARRIVALS[request].request}, 1).name(request, end)

    def step(
        self, told: HostStep, *ranges: tuple[str, int, int], whole: bool = False
    ) -> list[Code]:
        """The codes of what is wrong with a step."""
        scheduled = tuple(
            Scheduled(name, start, count, 0, ((),), whole, whole) for name, start, count in ranges
        )
        tables = {name: told.tables.get(name, ()) for name, _, _ in ranges}
        hot = {name: told.hot.get(name, ((),)) for name, _, _ in ranges}
        plan = Plan(scheduled, host=replace(told, tables=tables, hot=hot))
        parts = {name: (start, count) for name, start, count in ranges}
        self.store.new_step_starts()
        wrong = list(self.tiers.start(plan, parts, self.held, frozenset()))
        self.result, misread = self.tiers.finish(plan, parts, lambda *_: None)
        return [each.signature.defect.code for each in (*wrong, *misread)]


def _computed(worker: Worker) -> list[Code]:
    """Request a computes two pages and one token, on the device in blocks 1 to 3."""
    transfers = (Transfer(0, 11, (1,), False), Transfer(1, 12, (2,), False))

    rows = tuple(Rows((4 * block,), 4 * (10 + block), n) for block, n in ((1, 4), (2, 4), (3, 1)))
    pages = {"a": {0: (1,), 1: (2,), 2: (3,)}}
    told = replace(
        NOTHING, tables={"a": (11, 12, 13)}, transfers=transfers, rows=rows, residency=pages
    )
    return worker.step(told, ("a", 0, 9), whole=True)


BOTH = pytest.mark.parametrize("through", [True, False])


@BOTH
def test_what_is_computed_is_read_from_the_device_and_from_the_host(through: bool) -> None:
    worker = Worker(HostPool(20, writes_through=through))
    assert _computed(worker) == []
    assert worker.result.done == (0, 1)
    # The second page is given up on the device; another request gets its block.
    lost = replace(NOTHING, hot={"a": HOT}, residency={"a": {1: (0,)}, "c": {0: (2,), 1: (4,)}})
    lost = replace(lost, tables={"c": (14, 15)})
    assert worker.step(lost, ("a", 9, 1), ("c", 0, 5)) == []
    named = {(0, worker.name("a", 4)): (11,)}
    assert not list(worker.tiers.wrong_keys(named))


@BOTH
def test_a_block_that_is_handed_out_while_it_is_read_is_seen(through: bool) -> None:
    worker = Worker(HostPool(20, writes_through=through))
    _computed(worker)
    taken = replace(NOTHING, residency={"c": {0: (2,), 1: (4,)}}, tables={"c": (14, 15)})
    assert Code.OTHER_CONTENT_READ in worker.step(taken, ("a", 9, 1), ("c", 0, 5))


@BOTH
def test_a_hot_block_that_is_handed_out_is_seen(through: bool) -> None:
    worker = Worker(HostPool(20, writes_through=through))
    _computed(worker)
    lost = replace(NOTHING, hot={"a": ((15, 3),)}, residency={"a": {1: (0,)}})
    assert worker.step(lost, ("a", 9, 1)) == [Code.OTHER_CONTENT_READ]


def test_a_page_that_is_not_on_the_host_is_seen() -> None:
    worker = Worker(HostPool(20, writes_through=False))
    _computed(worker)
    lost = replace(NOTHING, hot={"a": HOT}, residency={"a": {1: (0,), 2: (0,)}})
    assert Code.OTHER_CONTENT_READ in worker.step(lost, ("a", 9, 1))


@pytest.mark.parametrize("hot", [((),), ((15,),), ((15, 0),)])
def test_who_reads_from_the_host_has_hot_blocks(hot: tuple[tuple[int, ...], ...]) -> None:
    worker = Worker(HostPool(20))
    _computed(worker)
    lost = replace(NOTHING, hot={"a": hot}, residency={"a": {1: (0,)}})
    assert worker.step(lost, ("a", 9, 1)) == [Code.NULL_BLOCK_READ]


def test_nothing_is_read_from_the_host_where_all_is_said_to_be_on_the_device() -> None:
    worker = Worker(HostPool(20))
    _computed(worker)
    lost = replace(NOTHING, hot={"a": HOT}, residency={"a": {1: (0,)}}, all_resident=True)
    assert worker.step(lost, ("a", 9, 1)) == [Code.NULL_BLOCK_READ]


def test_a_token_is_written_to_a_page_that_is_held() -> None:
    assert Code.PAGE_FREED_IN_FLIGHT in _computed(Worker(HostPool(20), free=[3]))
    worker = Worker(HostPool(20))
    _computed(worker)
    lost = replace(NOTHING, hot={"a": HOT}, residency={"a": {2: (0,)}})
    assert worker.step(lost, ("a", 9, 1))[0] == Code.NULL_PAGE_WRITTEN


@BOTH
def test_a_key_of_another_page_is_seen(through: bool) -> None:
    worker = Worker(HostPool(20, writes_through=through))
    _computed(worker)
    named = {(0, worker.name("a", 4)): (12,)}
    codes = [each.signature.code for each in worker.tiers.wrong_keys(named)]
    assert codes == [Code.KEY_NAMES_OTHER_CONTENT]


def test_a_copy_in_the_pool_is_made_before_the_step() -> None:
    for copies, codes in ((((11, 17),), []), ((), [Code.OTHER_CONTENT_READ])):
        worker = Worker(HostPool(20))
        _computed(worker)
        told = replace(NOTHING, tables={"b": (17, 12)}, hot={"b": HOT}, copies=copies)
        told = replace(told, residency={"b": {2: (5,)}})
        assert worker.step(told, ("b", 8, 1), whole=True) == codes
        assert worker.result.copied == tuple(target for _, target in copies)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_loaded_is_there_when_that_is_reported(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ARRIVALS, "b", replace(ARRIVALS["b"], load_fails=fails))
    worker = Worker(HostPool(20, delay=1, loads=True))
    asked = replace(NOTHING, loads={"b": Loading(0, 8, ((6, 7),), (11, 12))})
    assert worker.step(asked) == []
    assert not worker.result.loaded
    assert worker.tiers.is_busy
    assert worker.step(NOTHING) == []
    assert list(worker.result.loaded) == ["b"]
    assert bool(worker.result.failed) == fails
    told = replace(NOTHING, tables={"b": (11, 12, 13)}, hot={"b": HOT})
    told = replace(told, residency={"b": {1: (8,), 2: (9,)}})
    restored = replace(told, transfers=(Transfer(4, 12, (8,), True),))
    wrong = worker.step(restored, ("b", 8, 1), whole=True)
    assert bool(wrong) == fails
    # The page is on the device only if it was restored.
    worker = Worker(HostPool(20, loads=True))
    worker.step(asked)
    assert worker.step(told, ("b", 8, 1), whole=True)


def test_what_is_held_at_the_end_is_seen() -> None:
    tiers = Worker(HostPool(20)).tiers
    assert not list(tiers.left(HostState({}, frozenset(), 19)))
    codes = [each.signature.code for each in tiers.left(HostState({}, frozenset([3]), 18))]
    assert codes == [Code.BLOCKS_HELD_WHEN_IDLE]


def test_what_no_host_pool_has_is_refused() -> None:
    window = Group(GroupKind.SLIDING_WINDOW, SIZE, 8)
    with pytest.raises(HistoryError, match="omit host"):
        Deployment((GROUP, window), 20, 32, 8, host=HostPool(20))
    with pytest.raises(HistoryError, match="needs one rank"):
        Deployment((GROUP,), 20, 32, 8, host=HostPool(20), ranks=2)
    with pytest.raises(HistoryError, match="needs one rank"):
        Deployment((GROUP,), 20, 32, 8, host=HostPool(20), decode_context_parallel_size=2)
    with pytest.raises(HistoryError, match=r"set host\.loads"):
        SchedulerHistory(
            Deployment((GROUP,), 20, 32, 8, v2_model_runner=True, host=HostPool(40)),
            {"b": ARRIVALS["b"]},
        )

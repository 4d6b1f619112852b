"""Records of histories: equal for equal managers, and each observable shows where it changes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.comparison.histories import ManagerRun, Parting, compare
from hitproof.conformance.comparison.recording import Recorder
from hitproof.conformance.comparison.records import Observable, Record
from hitproof.conformance.comparison.words import shown
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.subject.managers import Allocation, ManagerSubject, Observation, Tables
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.broken_managers import Broken, Wrapped

REFERENCE = ReferenceManagers()
HISTORIES = [history(f"recording:{number}") for number in range(12)]


class Observed(Wrapped):
    """Shows something else; it does what it did."""

    def __init__(
        self, manager: ReferenceManager, change: Callable[[Observation], dict[str, Any]]
    ) -> None:
        super().__init__(manager)
        self._change = change

    def observe(self) -> Observation:
        seen = self.inner.observe()
        return replace(seen, **self._change(seen))


def observed(**changes: Callable[[Observation], Any]) -> ManagerSubject:
    """The reference, of which some fields of the observation are changed."""

    def change(seen: Observation) -> dict[str, Any]:
        return {name: make(seen) for name, make in changes.items()}

    return Broken(partial(Observed, change=change))


def shorter(seen: Observation) -> dict[str, Tables]:
    """Tables without their last block."""
    return {name: tuple(t[:-1] for t in tables) for name, tables in seen.tables.items()}


class Refuses(Wrapped):
    """Refuses the third allocation."""

    calls = 0

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        self.calls += 1
        return None if self.calls == 3 else self.inner.allocate_slots(name, allocation)


class Renumbers(Wrapped):
    """The same on other physical blocks: the free queue starts somewhere else."""

    def __init__(self, manager: ReferenceManager) -> None:
        super().__init__(manager)
        for block_id in [*self.pool.free]:
            self.pool.free.move_to_end(block_id, last=False)


def played(subject: ManagerSubject, wanted: History) -> tuple[ManagerRun, Recorder]:
    recorder = Recorder(subject, wanted)
    outcome = replay(wanted, recorder, None, recorder.step_ends)
    answer = {
        "record": recorder.record.as_json(),
        "lookups": [vars(lookup) for lookup in outcome.lookups],
        "findings": [found.as_json() for found in outcome.findings],
    }
    return ManagerRun.from_answer(answer), recorder


@cache
def of_reference(number: int) -> ManagerRun:
    return played(REFERENCE, HISTORIES[number])[0]


def partings(head: ManagerSubject, back: bool = False) -> Iterator[Parting]:
    """Where the reference and the head part; ``back`` is from the head to the reference."""
    for number, each in enumerate(HISTORIES):
        pair = of_reference(number), played(head, each)[0]
        yield from compare(*(pair[::-1] if back else pair)).partings


def test_equal_managers_have_equal_records() -> None:
    for each in HISTORIES:
        (base, recorder), (head, _) = played(REFERENCE, each), played(REFERENCE, each)
        assert base == head
        assert Record.from_json(recorder.record.as_json()) == recorder.record
        comparison = compare(base, head)
        assert comparison.partings == ()
        assert comparison.steps == len(each.steps) > 0
        assert not comparison.stopped


def test_physical_blocks_do_not_matter() -> None:
    assert list(partings(Broken(Renumbers))) == []
    one, other = [
        s.start(HISTORIES[0].engine).observe().free_queue for s in (REFERENCE, Broken(Renumbers))
    ]
    assert one != other


def test_recording_does_not_change_what_is_judged() -> None:
    for each in HISTORIES:
        recorder = Recorder(REFERENCE, each)
        assert replay(each, recorder, None, recorder.step_ends) == replay(each, REFERENCE)


@pytest.mark.parametrize(
    ("head", "there", "back", "observable"),
    [
        (Broken(broken.ShorterHit), Effect.LOST, Effect.GAINED, Observable.HITS),
        (Broken(broken.StaleHit), Effect.UNSOUND, Effect.SOUND, Observable.HITS),
        (Broken(broken.SwapsHit), Effect.TABLES, Effect.TABLES, Observable.HIT_TABLES),
        (Broken(broken.TellsTooMuch), Effect.SHARED, Effect.SHARED, Observable.SHARED),
        (Broken(broken.IgnoresCaps), Effect.CAPPED, Effect.CAPPED, Observable.CAPPED_HITS),
        (
            Broken(broken.ConnectorFlagsAll),
            Effect.LOCAL_PREFIXES,
            Effect.LOCAL_PREFIXES,
            Observable.LOCAL_PREFIXES,
        ),
        (Broken(Refuses), Effect.REFUSED, Effect.ADMITTED, Observable.ADMISSION),
        (Broken(broken.NeverResets), Effect.REFUSED, Effect.ADMITTED, Observable.RESETS),
        (Broken(broken.Crashes), Effect.CRASH, Effect.FIXED, Observable.CRASHES),
        (Broken(broken.Forgets), Effect.LOST, Effect.MORE, Observable.CACHED),
        (Broken(broken.WrongUsage), Effect.COUNTS, Effect.COUNTS, Observable.USAGE),
        (Broken(broken.SilentEviction), Effect.EVENTS, Effect.EVENTS, Observable.EVENTS),
        (Broken(broken.MiscountsHits), Effect.STATISTICS, Effect.STATISTICS, Observable.STATISTICS),
        (
            observed(num_free_blocks=lambda seen: max(seen.num_free_blocks - 1, 0)),
            Effect.HELD_MORE,
            Effect.HELD_FEWER,
            Observable.FREE_BLOCKS,
        ),
        (
            observed(free_queue=lambda seen: seen.free_queue[::-1]),
            Effect.ORDER,
            Effect.ORDER,
            Observable.POOL_ORDER,
        ),
        (
            observed(ref_counts=lambda seen: {b: n + 1 for b, n in seen.ref_counts.items()}),
            Effect.COUNTS,
            Effect.COUNTS,
            Observable.REF_COUNTS,
        ),
        (
            observed(common_prefix=lambda seen: dict.fromkeys(seen.common_prefix or (), (9,))),
            Effect.COUNTS,
            Effect.COUNTS,
            Observable.COMMON_PREFIX,
        ),
        (observed(tables=shorter), Effect.TABLES, Effect.TABLES, Observable.TABLES),
    ],
)
def test_each_observable_shows_where_it_changes(
    head: ManagerSubject, there: Effect, back: Effect, observable: Observable
) -> None:
    for back_again, effect in ((False, there), (True, back)):
        wanted = effect, observable, True
        assert any((p.effect, p.observable, p.first) == wanted for p in partings(head, back_again))


def test_waste_is_told_from_blocks_that_serve_hits() -> None:
    fewer = Broken(broken.Forgets)
    pairs = [(played(fewer, h)[0], of_reference(number)) for number, h in enumerate(HISTORIES)]
    assert any(
        p.effect is Effect.LOST for p in partings(fewer) if p.observable is Observable.CACHED
    )
    serving = {p.effect for one, other in pairs for p in compare(one, other).partings}
    assert Effect.MORE in serving
    assert Effect.WASTE not in serving
    wasting = [
        (replace(one, lost=0), replace(other, lost=0, waste=one.waste + 1)) for one, other in pairs
    ]
    assert Effect.WASTE in {p.effect for pair in wasting for p in compare(*pair).partings}
    gone = [(other, one) for one, other in wasting]
    assert Effect.WASTE_GONE in {p.effect for pair in gone for p in compare(*pair).partings}


def test_what_a_step_shows_is_said_in_words() -> None:
    head = Broken(broken.Forgets)
    for number, each in enumerate(HISTORIES[:4]):
        for parting in compare(of_reference(number), played(head, each)[0]).partings:
            values, observable = [], Observable(parting.observable)
            for subject in (REFERENCE, head):
                recorder = Recorder(subject, each, parting.step)
                replay(each, recorder, None, recorder.step_ends)
                values.append(recorder.values.get(observable, []))
            one, other = values
            assert shown(observable, one, other) != shown(observable, other, one)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    "manager",
    [
        broken.EstimatesTooMuch,
        broken.ReportsNoHit,
        broken.OffersNothing,
        broken.GroupsHitNothing,
        broken.ZeroesAgainTwice,
        broken.KeepsFreedRequests,
    ],
)
def test_what_is_recorded_is_judged_as_it_is(manager: type[Wrapped]) -> None:
    found = 0
    for number in range(60):
        played = history(f"replay:{number}")
        alone = replay(played, Broken(manager))
        recorder = Recorder(Broken(manager), played)
        recorded = replay(played, recorder, None, recorder.step_ends)
        assert [f.signature for f in recorded.findings] == [f.signature for f in alone.findings]
        found += len(alone.findings)
    assert found

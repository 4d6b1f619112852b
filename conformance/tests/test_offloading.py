"""What a connector keeps in host memory: copies are followed, and each fault of them is seen."""

from dataclasses import replace

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Layers,
    SchedulerHistory,
)
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.followers import Cached
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scheduling.offloading import Offloading
from hitproof.conformance.scheduling.outcome import Life
from hitproof.conformance.scheduling.runner import ModelRunner, about
from hitproof.conformance.scheduling.several import Several
from hitproof.conformance.scheduling.transfers import Touched
from hitproof.conformance.subject.schedulers import (
    HostAnswer,
    HostCopy,
    Plan,
    PoolCall,
    PoolState,
    Scheduled,
    Transfers,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import HitGranularity

SIZE = 4
GROUP = Group(GroupKind.FULL_ATTENTION, SIZE)
ENGINE = EngineConfiguration((GROUP,), 20, SIZE, 64)
PROMPT = tuple(range(1, 10))
ARRIVALS = {"a": Arrival(PROMPT, (90,)), "b": Arrival(PROMPT, (91,))}
PREFIXES = Prefixes({name: each.request for name, each in ARRIVALS.items()}, SIZE, 0)
KEYS = {(0, PREFIXES.name("a", 4)): (5,), (0, PREFIXES.name("a", 8)): (6,)}
TOO_SHORT = "tier-hit-too-short(tier=offloading)"
OFFERED_AGAIN = "tier-block-offered-again(tier=offloading)"
STORED = HostCopy(0, (1, 2), (5, 6))
LOADED = HostCopy(0, (7, 8), (5, 6), ("b",))


def running(
    connector: Connector, engine: EngineConfiguration = ENGINE, names: Prefixes = PREFIXES
) -> tuple[ModelRunner, Offloading]:
    """A model runner, and the connector beside it."""
    requests = {name: each.request for name, each in ARRIVALS.items()}
    judge = Judge(engine, requests, names, JudgedPolicies())
    content = ContentModel(
        engine, requests, lambda group, _c, defect, _d: judge.of_group(group, "x", defect)
    )
    offloading = Offloading(engine, connector, ARRIVALS, requests, content, names)
    deployment = Deployment(engine.groups, 20, 64, 64, connector=connector)
    runner = ModelRunner(engine, ARRIVALS, content, about(deployment), transfers=offloading)
    return runner, offloading


def short(offloading: Offloading, keys: Cached, answer: HostAnswer) -> list[str]:
    """What is wrong with an answer to request b, where these keys are stored."""
    engine, requests = offloading._engine, {name: each.request for name, each in ARRIVALS.items()}
    fine = JudgedPolicies(granularity=HitGranularity.FINE)
    judge = Judge(engine, requests, offloading._naming, fine)
    plan = Plan((), transfers=Transfers({}, {}, answers={"b": answer}))
    found = offloading.too_short(plan, {"b": 9}, keys, judge.due_hit)
    return [str(each.signature.defect) for each in found]


def seen(stored: HostCopy, loaded: HostCopy, delay: int = 0) -> tuple[set[Code], set[Code]]:
    """What is wrong with the keys on the host, and with what request b reads."""
    connector = Connector(offloads=9, delay=delay)
    runner, offloading = running(connector)
    pool = PoolState({}, 0, frozenset(range(1, 20)))
    a = Scheduled("a", 0, 9, 0, ((1, 2, 3),), whole=True, first=True)
    b = Scheduled("b", 8, 1, 0, ((7, 8, 9),), whole=True, first=True)
    found: list[Code] = []
    for plan in (
        Plan((a,), transfers=Transfers({}, {}, (stored,))),
        Plan((), transfers=Transfers({}, {}, (loaded,))),
        Plan((b,), transfers=Transfers({}, {})),
    ):
        done, wrong = runner.execute(plan, pool)
        found += [Code(each.signature.code) for each in wrong]
        runner.sample(plan, done, {})
        list(runner.taken_up(done, {}))
    assert offloading.is_busy == (delay > 1)
    keys = {Code(each.signature.code) for each in offloading.wrong_keys(KEYS)}
    return keys, set(found)


def test_what_is_stored_and_loaded_is_read() -> None:
    assert seen(STORED, LOADED) == (set(), set())


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [(replace(STORED, host=(6, 5)), LOADED), (replace(STORED, blocks=(1, 3)), LOADED)],
)
def test_what_is_stored_elsewhere_is_seen(stored: HostCopy, loaded: HostCopy) -> None:
    keys, read = seen(stored, loaded)
    assert keys == {Code.KEY_NAMES_OTHER_CONTENT}
    assert read == {Code.OTHER_CONTENT_READ}


@pytest.mark.parametrize("blocks", [(8, 7), (7, 9)])
def test_what_is_loaded_elsewhere_is_seen(blocks: tuple[int, ...]) -> None:
    assert seen(STORED, replace(LOADED, blocks=blocks)) == (set(), {Code.OTHER_CONTENT_READ})


@pytest.mark.parametrize(
    ("block", "wrong"), [(2, []), (3, []), (4, [Code.KEY_NAMES_OTHER_CONTENT])]
)
def test_a_state_is_stored_as_accepted_drafts_leave_it(block: int, wrong: list[Code]) -> None:
    engine = EngineConfiguration(
        (Group(GroupKind.MAMBA, SIZE),), 20, SIZE, 64, num_speculative_tokens=1
    )
    arrivals = {"a": Arrival(PROMPT[:7], (90, 91, 92), accepted=(1,))}
    requests = {name: each.request for name, each in arrivals.items()}
    prefixes = Prefixes(requests, SIZE, 0)
    judge = Judge(engine, requests, prefixes, JudgedPolicies())
    content = ContentModel(
        engine, requests, lambda group, _c, defect, _d: judge.of_group(group, "x", defect)
    )
    connector = Connector(offloads=9)
    offloading = Offloading(engine, connector, arrivals, requests, content, prefixes)
    deployment = Deployment(engine.groups, 20, 64, 64, connector=connector)
    runner = ModelRunner(engine, arrivals, content, about(deployment), transfers=offloading)
    pool = PoolState({}, 0, frozenset(range(1, 20)))
    prompt = Scheduled("a", 0, 7, 0, ((1, 2, 3),), whole=True, first=True)
    decode = Scheduled("a", 7, 2, 1, ((4,),), whole=False, first=False)
    stored = HostCopy(0, (block,), (5,))
    for plan in (
        Plan((prompt,), transfers=Transfers({}, {})),
        Plan((decode,), transfers=Transfers({}, {}, (stored,))),
    ):
        done, misread = runner.execute(plan, pool)
        assert not misread
        runner.sample(plan, done, {})
        list(runner.taken_up(done, done.sampled))
    keys = {(0, prefixes.name("a", 8)): (5,)}
    assert [Code(each.signature.code) for each in offloading.wrong_keys(keys)] == wrong


def test_what_is_read_before_it_is_there_is_seen() -> None:
    _, read = seen(STORED, LOADED, delay=2)
    assert read == {Code.OTHER_CONTENT_READ}


@pytest.mark.parametrize(("begins", "made"), [(0, 1), (0, 0), (0, None), (1, 1), (1, None)])
def test_what_is_given_up_is_copied_first(begins: int, made: int | None) -> None:
    """A store begins in one of two steps, of which the second takes a block of it.

    It is made before a step computes, or when it is reported.
    """
    runner, offloading = running(Connector(offloads=9, chunk=1, delay=1))
    pool = PoolState({}, 0, frozenset(range(1, 20)))
    a = Scheduled("a", 0, 9, 0, ((1, 2, 3),), whole=True, first=True)
    b = Scheduled("b", 0, 9, 0, ((4, 1, 5),), whole=True, first=True)
    for step, ended in enumerate([(), ("a",), ()]):
        copies = (STORED,) if step == begins else ()
        told = Transfers({}, {}, copies, flushed=frozenset({0} if step == made else ()))
        plan = Plan(((a,), (b,), ())[step], ended, transfers=told)
        done, misread = runner.execute(plan, pool)
        assert not misread
        runner.sample(plan, done, {})
        list(runner.taken_up(done, {}))
    list(runner.taken_up(runner.execute(Plan((), transfers=Transfers({}, {})), pool)[0], {}))
    wrong = {str(each.signature.defect) for each in offloading.wrong_keys(KEYS)}
    assert wrong == (set() if made == 1 else {"key-names-other-content(tier=offloading)"})


@pytest.mark.parametrize(
    ("stored", "answer", "is_short"),
    [
        ({4, 8}, HostAnswer(0, 8), False),
        ({4, 8}, HostAnswer(0, 4), True),
        ({4, 8}, HostAnswer(4, 4), False),
        ({8}, HostAnswer(4, 0), True),
        ({8}, HostAnswer(0, 0), False),
        ({4, 8}, HostAnswer(0, None), False),
    ],
)
def test_what_is_stored_or_local_is_served(
    stored: set[int], answer: HostAnswer, is_short: bool
) -> None:
    _, offloading = running(Connector(offloads=9, chunk=1))
    keys: dict[tuple[int, str], tuple[int, ...]] = {
        (0, PREFIXES.name("a", end)): (end,) for end in stored
    }
    assert short(offloading, keys, answer) == [TOO_SHORT] * is_short


@pytest.mark.parametrize(
    ("stored", "answer", "is_short"),
    [
        ({0, 1}, HostAnswer(0, 4), False),
        ({0, 1}, HostAnswer(0, 0), True),
        ({0}, HostAnswer(0, 0), False),
        ({1}, HostAnswer(0, 0), False),
    ],
)
def test_the_end_of_a_prompt_inside_a_block_is_served(
    stored: set[int], answer: HostAnswer, is_short: bool
) -> None:
    groups = (Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.MAMBA, 8))
    _, offloading = running(Connector(offloads=9, chunk=1), replace(ENGINE, groups=groups))
    keys = {(group, PREFIXES.name("a", 4)): (group,) for group in stored}
    assert short(offloading, keys, answer) == [TOO_SHORT] * is_short


@pytest.mark.parametrize(
    ("states", "served", "found"),
    [
        ({7}, 7, []),
        ({7}, 0, ["tier-hit-too-short(ends=later-block, tier=offloading)"]),
        ({6, 7}, 6, [TOO_SHORT]),
    ],
)
def test_a_hit_that_ends_inside_a_later_block_is_served(
    states: set[int], served: int, found: list[str]
) -> None:
    """Blocks before the state have none where a chunk exports that of its last boundary."""
    groups = (Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 2))
    engine = replace(ENGINE, groups=groups, hash_block_size=1)
    names = Prefixes({name: each.request for name, each in ARRIVALS.items()}, 1, 0)
    _, offloading = running(Connector(offloads=9, chunk=1), engine, names)
    ends = {(0, end) for end in (2, 4, 6, 7)} | {(1, end) for end in states}
    keys = {(group, names.name("a", end)): (end,) for group, end in ends}
    assert short(offloading, keys, HostAnswer(0, served)) == found


@pytest.mark.parametrize(
    ("chunk", "room", "ended", "lacks"),
    [(1, 9, "finished", 1), (2, 9, "finished", 1), (1, 5, "finished", 0), (1, 9, "aborted", 0)],
)
def test_what_a_request_has_computed_is_stored(
    chunk: int, room: int, ended: str, lacks: int
) -> None:
    _, offloading = running(Connector(offloads=room, chunk=chunk))
    lives = {"a": Life(hit=0, chunks=[(0, 9)], delivered=[90], ended=ended)}
    whole = {(0, PREFIXES.name("a", end)): (end,) for end in (4, 8)}
    assert not list(offloading.left_out(lives, whole))
    found = list(offloading.left_out(lives, {key: ids for key, ids in whole.items() if 4 in ids}))
    assert [each.signature.code for each in found] == [Code.TIER_BLOCK_LEFT_OUT] * lacks


def test_a_window_is_stored_where_a_request_ends() -> None:
    groups = (Group(GroupKind.FULL_ATTENTION, 12), Group(GroupKind.SLIDING_WINDOW, 4, window=4))
    _, offloading = running(Connector(offloads=9, chunk=1), replace(ENGINE, groups=groups))
    lives = {"a": Life(hit=0, chunks=[(0, 9)], delivered=[90], ended="finished")}
    assert not list(offloading.left_out(lives, {(1, PREFIXES.name("a", 8)): (1,)}))
    found = [str(each.signature.defect) for each in offloading.left_out(lives, {})]
    assert found == ["tier-block-left-out(block=tail, mask=store, tier=offloading)"]


@pytest.mark.parametrize(
    ("again", "whole", "ended", "wrong"),
    [
        ([8], False, (), []),
        ([4, 8], False, (), [OFFERED_AGAIN]),
        ([4], False, ("a",), [OFFERED_AGAIN]),
        ([4], True, (), []),
    ],
)
def test_a_chunk_is_offered_once(
    again: list[int], whole: bool, ended: tuple[str, ...], wrong: list[str]
) -> None:
    _, offloading = running(Connector(offloads=9, chunk=1))
    found: list[str] = []
    had: set[int] = set()
    for ends, is_whole, finished in (([4], True, ()), (again, whole, ended)):
        keys = tuple((0, PREFIXES.name("a", end)) for end in ends)
        new = tuple(end for end in ends if end not in had)
        taken = tuple((0, PREFIXES.name("a", end)) for end in new)
        calls = (PoolCall("prepare_store", keys, "a", taken=taken, places=new),)
        had.update(ends)
        computed = Scheduled("a", 0, 9, 0, ((1, 2, 3),), is_whole, first=False)
        plan = Plan(
            () if finished else (computed,), finished, transfers=Transfers({}, {}, pool=calls)
        )
        judged = offloading.start(plan, Touched(), frozenset(), frozenset(), lambda _: 9)
        found += [str(each.signature.defect) for each in judged]
    assert found == wrong


@pytest.mark.parametrize(
    ("again", "whole", "request_id", "wrong"),
    [([4, 8], False, "a", 0), ([8], False, "a", 1), ([8], True, "a", 0), ([8], False, "", 0)],
)
def test_what_had_no_room_is_offered_again(
    again: list[int], whole: bool, request_id: str, wrong: int
) -> None:
    _, offloading = running(Connector(offloads=9, chunk=1))
    found: list[str] = []
    for ends, is_whole in (([4], True), (again, whole)):
        keys = tuple((0, PREFIXES.name("a", end)) for end in ends)
        calls = (PoolCall("prepare_store", keys, request_id, taken=None),)
        computed = Scheduled("a", 0, 9, 0, ((1, 2, 3),), is_whole, first=False)
        plan = Plan((computed,), transfers=Transfers({}, {}, pool=calls))
        judged = offloading.start(plan, Touched(), frozenset(), frozenset(), lambda _: 9)
        found += [str(each.signature.defect) for each in judged]
    assert found.count("tier-room-lost(how=given-up)") == wrong


@pytest.mark.parametrize(
    ("second", "resets", "wrong"), [(1, False, 1), (3, False, 0), (1, True, 0)]
)
def test_a_block_is_not_copied_twice_at_once(second: int, resets: bool, wrong: int) -> None:
    runner, offloading = running(Connector(offloads=9, delay=4))
    computed = Scheduled("a", 0, 9, 0, ((1, 2, 3),), whole=True, first=True)
    pool, found = PoolState({}, 0, frozenset(range(1, 20))), list[str]()
    for block in (1, second):
        copy = HostCopy(block, (block,), (4 + block,))
        plan = Plan((computed,), transfers=Transfers({}, {}, (copy,)))
        done, judged = runner.execute(plan, pool)
        found += [defect for each in judged if "tier" in (defect := str(each.signature.defect))]
        runner.sample(plan, done, {})
        if resets:
            offloading.reset(())
    assert found == ["tier-block-offered-again(tier=blocks)"] * wrong


def beside(*second: HostCopy, first: tuple[HostCopy, ...] = ()) -> tuple[set[str], set[Code]]:
    """What is wrong with what request b reads, and with keys, where both of two connectors store.

    Then the ``second`` makes these copies, and the ``first`` those.
    """
    requests = {name: each.request for name, each in ARRIVALS.items()}
    judge = Judge(ENGINE, requests, PREFIXES, JudgedPolicies())
    content = ContentModel(
        ENGINE, requests, lambda group, _c, defect, _d: judge.of_group(group, "x", defect)
    )
    connector = Connector(offloads=9, beside=Connector(offloads=9))
    parts = [
        Offloading(ENGINE, each, ARRIVALS, requests, content, PREFIXES)
        for each in connector.several
    ]
    several = Several(parts, content, len(ENGINE.groups))
    deployment = Deployment(ENGINE.groups, 20, 64, 64, connector=connector)
    runner = ModelRunner(ENGINE, ARRIVALS, content, about(deployment), transfers=several)
    pool = PoolState({}, 0, frozenset(range(1, 20)))
    a = Scheduled("a", 0, 9, 0, ((1, 2, 3),), whole=True, first=True)
    b = Scheduled("b", 8, 1, 0, ((7, 8, 9),), whole=True, first=True)
    found: set[str] = set()
    both = (STORED,), (replace(STORED, host=(3, 4)),)
    for scheduled, copies in (((a,), both), ((), (first, second)), ((b,), ((), ()))):
        told = tuple(Transfers({}, {}, each) for each in copies)
        plan = Plan(scheduled, transfers=Transfers({}, {}, several=told))
        done, wrong = runner.execute(plan, pool)
        found |= {str(each.signature.defect) for each in wrong}
        runner.sample(plan, done, {})
        list(runner.taken_up(done, {}))
    keys = KEYS | {(1, key): (block - 2,) for (_, key), (block,) in KEYS.items()}
    return found, {Code(each.signature.code) for each in several.wrong_keys(keys)}


OF_SECOND = replace(LOADED, host=(3, 4))


def test_one_of_two_connectors_loads_what_it_has() -> None:
    assert beside(OF_SECOND) == (set(), set())
    assert beside(LOADED) == ({"other-content-read"}, set())
    twice = "transferred-page-used(how=twice, what=loads)"
    assert beside(OF_SECOND, first=(LOADED,)) == ({twice}, set())


def test_keys_of_each_of_two_connectors_are_judged() -> None:
    stored = HostCopy(1, (3,), (3,))
    assert beside(stored)[1] == {Code.KEY_NAMES_OTHER_CONTENT}
    assert beside(first=(stored,))[1] == set()


@pytest.mark.parametrize("failed", [(), (8,)])
def test_what_is_not_read_is_not_there(failed: tuple[int, ...]) -> None:
    loaded = LOADED if not failed else replace(LOADED, blocks=(7,), host=(5,), failed=failed)
    assert seen(STORED, loaded)[1] == ({Code.OTHER_CONTENT_READ} if failed else set())


def test_what_the_connector_has_is_not_said_of_requests() -> None:
    deployment = Deployment((GROUP,), 20, 64, 64, connector=Connector(offloads=9))
    with pytest.raises(HistoryError, match="or offloads"):
        SchedulerHistory(deployment, {"a": Arrival(PROMPT, (90,), loads=8)})
    with pytest.raises(HistoryError, match=r"set connector\.offloads"):
        replace(deployment, connector=Connector(chunk=2))
    with pytest.raises(HistoryError, match="omit offloads or store"):
        replace(deployment, connector=Connector(offloads=2, store=True))
    with pytest.raises(HistoryError, match="omit lazy"):
        replace(deployment, connector=Connector(offloads=2, chunk=1, lazy=True))
    with pytest.raises(HistoryError, match="omit later"):
        replace(deployment, connector=Connector(beside=Connector(later=1)))
    with pytest.raises(HistoryError, match="omit layers or offloads"):
        replace(deployment, layers=(Layers(),))

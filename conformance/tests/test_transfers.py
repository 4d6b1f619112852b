"""What a KV connector loads and sends: plans are followed, and each fault of them is seen."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    SchedulerHistory,
)
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scheduling.runner import Done, ModelRunner, about
from hitproof.conformance.scheduling.transfers import ConnectorTransfers
from hitproof.conformance.subject.schedulers import (
    Loading,
    Plan,
    PoolState,
    Scheduled,
    Told,
    Transfers,
)
from hitproof.spec.groups import Group, GroupKind

SIZE = 4
GROUP = Group(GroupKind.FULL_ATTENTION, SIZE)
ENGINE = EngineConfiguration((GROUP,), 20, SIZE, 64)
ARRIVALS = {
    "a": Arrival(tuple(range(1, 10)), (90, 91), loads=8, invalid_blocks=(1,)),
    "b": Arrival(tuple(range(1, 10)), (90, 91), loads=8, load_steps=1),
    "c": Arrival(tuple(range(1, 10)), (90, 91)),
    "d": Arrival(tuple(range(1, 10)), (90,), send_steps=1),
}
TABLE = ((1, 2, 3),)
LOADING = Loading(0, 8, TABLE)
NONE = Transfers({}, {})


class Runner:
    """A model runner that is told hand-made plans; every block is held unless said."""

    def __init__(
        self,
        policy: Literal["fail", "recompute"] = "recompute",
        engine: EngineConfiguration = ENGINE,
    ) -> None:
        deployment = Deployment((GROUP,), 20, 64, 64, connector=Connector(policy))
        requests = {name: each.request for name, each in ARRIVALS.items()}
        policies = JudgedPolicies()
        judge = Judge(engine, requests, Prefixes(requests, SIZE, 0), policies)
        content = ContentModel(
            engine, requests, lambda group, _c, defect, _d: judge.of_group(group, "x", defect)
        )
        assert deployment.connector is not None
        self.transfers = ConnectorTransfers(engine, deployment.connector, ARRIVALS, content)
        self.runner = ModelRunner(
            engine, ARRIVALS, content, about(deployment), transfers=self.transfers
        )
        self.held = frozenset(range(1, 20))

    def step(self, told: Transfers, *scheduled: Scheduled) -> tuple[Done, list[Code]]:
        """A step, and the codes of what is wrong with it."""
        pool = PoolState({}, 0, self.held)
        plan = Plan(scheduled, transfers=told)
        done, wrong = self.runner.execute(plan, pool)
        self.runner.sample(plan, done, {})
        return done, codes(wrong)

    def taken_up(self, done: Done, **delivered: list[int]) -> list[Violation]:
        """The step's results are processed."""
        return list(self.runner.taken_up(done, delivered))


def codes(wrong: list[Violation]) -> list[Code]:
    return [each.signature.defect.code for each in wrong]


def first(name: str, start: int, count: int, *blocks: int) -> Scheduled:
    return Scheduled(name, start, count, 0, (blocks or TABLE[0],), True, True)


def test_a_load_that_is_left_alone_is_right() -> None:
    runner = Runner()
    done, wrong = runner.step(Transfers({"b": LOADING}, {}), first("c", 0, 9, 4, 5, 6))
    assert not wrong
    assert done.host is not None
    assert done.host.loaded == ()
    runner.taken_up(done, c=[90])
    done, wrong = runner.step(NONE)
    assert done.host is not None
    assert done.host.loaded == ("b",)
    assert runner.transfers.is_busy
    runner.taken_up(done)
    assert not runner.transfers.is_busy
    done, wrong = runner.step(NONE, first("b", 8, 1))
    assert not wrong


def test_a_load_into_a_page_of_a_step_is_found() -> None:
    runner = Runner()
    _, wrong = runner.step(Transfers({"b": LOADING}, {}), first("c", 0, 9, 4, 5, 2))
    assert wrong == [Code.TRANSFERRED_PAGE_USED]


def test_a_load_into_a_page_of_a_step_that_still_runs_is_found() -> None:
    for still_runs in (True, False):
        runner = Runner()
        done, wrong = runner.step(NONE, first("c", 0, 9))
        assert not wrong
        if not still_runs:
            runner.taken_up(done, c=[90])
        _, wrong = runner.step(Transfers({"b": LOADING}, {}))
        assert wrong == [Code.TRANSFERRED_PAGE_USED] * still_runs


def test_a_load_of_what_a_connector_was_to_forget_is_found() -> None:
    for forgotten in (["b"], ["a"], []):
        runner = Runner()
        runner.transfers.forget(forgotten)
        _, wrong = runner.step(Transfers({"b": LOADING}, {}))
        assert wrong == [Code.CONNECTOR_RESET_WRONG] * ("b" in forgotten)


def test_a_page_that_workers_zero_as_its_load_begins_is_found() -> None:
    for zeroed in ((2,), (4,), None):
        runner = Runner()
        plan = Plan((), transfers=Transfers({"b": LOADING}, {}), zeroed=zeroed)
        _, wrong = runner.runner.execute(plan, PoolState({}, 0, runner.held))
        assert codes(wrong) == [Code.TRANSFERRED_PAGE_USED] * (zeroed == (2,))


def test_blocks_that_a_connector_is_not_handed_or_too_many_are_found() -> None:
    for blocks, is_wrong in (((), True), ((1,), True), ((1, 2), False), ((1, 2, 3), True)):
        runner = Runner()
        runner.runner._arrivals = {"c": Arrival(tuple(range(8)), (90,))}
        runner.runner._sampled["c"] = 1
        sent = Plan((), transfers=Transfers({}, {"c": (blocks,)}))
        _, wrong = runner.runner.execute(sent, PoolState({}, 0, runner.held))
        assert codes(wrong) == [Code.HANDED_BLOCKS_WRONG] * is_wrong


def test_blocks_of_others_that_a_connector_is_given_at_an_end_are_found() -> None:
    for blocks, is_wrong in (((4, 5, 6), False), ((0, 5, 6), False), ((), False), ((4, 6), True)):
        runner = Runner()
        done, _ = runner.step(NONE, first("c", 0, 9, 4, 5, 6))
        runner.taken_up(done, c=[90])
        told = (Told("end", "c", 0, (blocks,)),)
        plan = Plan((), ("c",), transfers=NONE, told=told)
        _, wrong = runner.runner.execute(plan, PoolState({}, 0, runner.held))
        assert codes(wrong) == [Code.HANDED_BLOCKS_WRONG] * is_wrong


def test_drafts_that_are_proposed_behind_the_end_of_a_table_are_found() -> None:
    engine = replace(ENGINE, num_speculative_tokens=2, num_lookahead_tokens=2)
    for tokens, blocks, is_short in ((8, (1, 2), True), (8, (1, 2, 3), False), (7, (1, 2), False)):
        runner = Runner(engine=engine)
        arrival = Arrival(tuple(range(tokens)), (90, 91, 92))
        runner.runner._arrivals = {"c": arrival}
        plan = Plan((first("c", 0, tokens, *blocks),), transfers=NONE)
        done, _ = runner.runner.execute(plan, PoolState({}, 0, runner.held))
        wrong = runner.runner.sample(plan, done, {})
        assert codes(wrong) == [Code.NULL_PAGE_WRITTEN] * is_short


def test_a_page_that_is_freed_while_it_is_loaded_is_found() -> None:
    runner = Runner()
    runner.held -= {2}
    assert runner.step(Transfers({"b": LOADING}, {}))[1] == [Code.TRANSFERRED_PAGE_USED]


def test_who_reads_what_is_on_its_way_is_wrong() -> None:
    runner = Runner()
    runner.step(Transfers({"b": LOADING}, {}))
    _, wrong = runner.step(NONE, first("c", 8, 1))
    assert Code.OTHER_CONTENT_READ in wrong


@pytest.mark.parametrize("freed", [False, True])
def test_pages_that_are_sent_are_held_and_not_written(freed: bool) -> None:
    runner = Runner()
    done, wrong = runner.step(NONE, first("d", 0, 9))
    runner.taken_up(done, d=[90])
    done, wrong = runner.step(Transfers({}, {"d": TABLE}))
    assert not wrong
    runner.taken_up(done)
    runner.held -= {1} if freed else set()
    done, wrong = runner.step(NONE, *([] if freed else [first("c", 0, 9)]))
    assert wrong == [Code.TRANSFERRED_PAGE_USED]
    assert done.host is not None
    assert done.host.sent == ("d",)


def test_tokens_of_a_failed_load_are_wrong_if_they_are_delivered() -> None:
    for delivered in ([], [90]):
        runner = Runner()
        done, wrong = runner.step(Transfers({"a": LOADING}, {}), first("a", 8, 1))
        assert not wrong
        assert done.host is not None
        assert done.host.invalid == (2,)
        found = codes(runner.taken_up(done, a=delivered))
        assert found == [Code.FAILED_LOAD_DELIVERED] * bool(delivered)


def test_who_is_computed_again_samples_again() -> None:
    runner = Runner()
    done, _ = runner.step(Transfers({"a": LOADING}, {}), first("a", 8, 1))
    runner.taken_up(done)
    again = Scheduled("a", 4, 5, 0, ((),), False, False)
    done, wrong = runner.step(NONE, again)
    assert not wrong
    assert done.sampled == {"a": [90]}
    assert not runner.taken_up(done, a=[90])


def test_who_hits_blocks_of_a_failed_load_is_wrong() -> None:
    runner = Runner("fail")
    done, _ = runner.step(Transfers({"a": LOADING}, {}), first("a", 8, 1))
    runner.taken_up(done)
    assert runner.transfers.may_fail("a")
    assert not runner.transfers.may_fail("c")
    done, wrong = runner.step(NONE, first("c", 8, 1))
    assert not wrong
    found = runner.taken_up(done, c=[90])
    assert [dict(each.signature.defect.parameters) for each in found] == [
        {"of": "other", "policy": "fail"}
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"connector": None}, "or connector"), ({"groups": (GROUP, GROUP)}, "set load_fails")],
)
def test_what_no_connector_does_is_refused(changes: dict[str, Any], reason: str) -> None:
    deployment = Deployment((GROUP,), 20, 64, 64, connector=Connector())
    asked = {"a": ARRIVALS["a"]}
    SchedulerHistory(deployment, asked)
    with pytest.raises(HistoryError, match=reason):
        SchedulerHistory(replace(deployment, **changes), asked)
    failing = replace(asked["a"], load_fails=True)
    with pytest.raises(HistoryError, match="set load_steps"):
        SchedulerHistory(deployment, {"a": failing})


def test_failed_blocks_are_reported_when_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    late = replace(ARRIVALS["b"], load_steps=2, invalid_blocks=(0,))
    for early, reported in ((None, [(), (), (1,)]), (1, [(), (1,), ()])):
        monkeypatch.setitem(ARRIVALS, "b", replace(late, invalid_steps=early))
        runner, found = Runner(), []
        for told in (Transfers({"b": LOADING}, {}), NONE, NONE):
            done, wrong = runner.step(told)
            assert not wrong
            assert done.host is not None
            found.append(done.host.invalid)
            assert not runner.transfers.loaded
            runner.taken_up(done)
        assert found == reported
        assert runner.transfers.loaded == {"b"}


def test_what_is_not_loaded_does_not_fail() -> None:
    for blocks in ((1, 2, 3), (1, 0, 3)):
        runner = Runner()
        runner.step(Transfers({"a": Loading(0, 8, (blocks,))}, {}), first("a", 8, 1, *blocks))
        assert runner.transfers.fails("a") == (0 not in blocks)


def test_a_null_block_is_read_after_a_load_or_a_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARRIVALS, "c", replace(ARRIVALS["a"], invalid_blocks=()))
    for name, after in (("a", "failed-load"), ("c", "load")):
        runner, table = Runner(), (0, 2, 3)
        told = Transfers({name: Loading(0, 8, (table,))}, {})
        plan = Plan((first(name, 8, 1, *table),), transfers=told)
        _, wrong = runner.runner.execute(plan, PoolState({}, 0, runner.held))
        found = {each.signature.defect for each in wrong}
        assert Defect.of(Code.NULL_BLOCK_READ, after=after) in found


def test_padding_of_a_request_that_resumes_is_not_taken_from_its_failed_load() -> None:
    for whole, found in ((True, []), (False, [Code.FAILED_LOAD_DELIVERED])):
        runner = Runner()
        done, _ = runner.step(Transfers({"a": LOADING}, {}), first("a", 8, 1))
        runner.taken_up(done)
        done, wrong = runner.step(NONE, Scheduled("a", 4, 5, 0, ((),), False, False))
        assert not wrong
        assert not runner.taken_up(done, a=[90])
        blocks = TABLE if whole else ((),)
        done, _ = runner.step(NONE, Scheduled("a", 9, 2, 1, blocks, whole, False))
        assert codes(runner.taken_up(done, a=[91])) == found

"""Blocks in the hands of KV connectors and others: the reference passes, broken managers do not."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    HistoryError,
    Hold,
    Load,
    Loaded,
    Lookup,
    Release,
    RequestInput,
    Schedule,
    Sent,
    Step,
    Take,
)
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.lockstep.playing import run
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.broken_managers import Broken, Wrapped
from hitproof.conformance.tests.editing import cases
from hitproof.conformance.tests.test_replay import REFERENCE, expected, shown
from hitproof.spec.groups import Group, GroupKind

CONNECTIONS = series("connections")
FULL = Group(GroupKind.FULL_ATTENTION, 2)
ENGINE = EngineConfiguration((FULL,), 12, 2, 40)


def played(*steps: Step, engine: EngineConfiguration = ENGINE) -> History:
    """A history of requests `a`, `b`, which share 8 tokens, and `c`, which is another."""
    requests = {
        "a": RequestInput(tuple(range(1, 13)), (90, 91)),
        "b": RequestInput((*range(1, 9), 50, 51), (92,)),
        "c": RequestInput(tuple(range(60, 70)), (93,)),
    }
    return History(engine, requests, steps)


def test_the_reference_passes() -> None:
    done = Counter[str]()
    for each in CONNECTIONS:
        outcome = replay(each, REFERENCE)
        assert shown(outcome) == expected(each, outcome)
        done.update(
            step.do
            for step, how in zip(each.steps, outcome.steps, strict=True)
            if not how.startswith(("skipped", "no space"))
        )
    kinds = {step.do for each in CONNECTIONS for step in each.steps}
    assert {"sent", "hold", "take", "release", "load", "loaded"} < kinds
    assert min(done[kind] for kind in kinds) >= len(CONNECTIONS) // 2, done


@pytest.mark.long(keep=1)
@cases("fault, code")
def test_a_broken_manager_is_caught(fault: str, code: str) -> None:
    found = Counter[str]()
    for each in CONNECTIONS:
        found.update(shown(replay(each, broken.named(fault))))
    assert any(text.startswith(code) for text in found), found


def test_what_is_sent_is_hit_and_never_handed_out() -> None:
    sent = played(
        *(Schedule("a"), Finish("a", sending=True), Take(), Lookup("b")),
        *(Finish("a"), Sent("a"), Sent("a"), Schedule("b"), Release()),
    )
    outcome = replay(sent, REFERENCE)
    assert shown(outcome) == []
    assert [look.served for look in outcome.lookups] == [0, 8, 8]
    skipped = [n for n, how in enumerate(outcome.steps) if how.startswith("skipped")]
    assert skipped == [4, 6]


def test_what_is_held_outside_survives_and_the_rest_goes() -> None:
    kept: list[Step] = [Schedule("a"), Finish("a"), Hold("a", 0, (0, 1)), Take(holder="other")]
    outcome = replay(played(*kept, Lookup("b"), Release()), REFERENCE)
    assert [look.served for look in outcome.lookups] == [0, 4]
    assert outcome.steps[-1] == ""
    outcome = replay(played(*kept[:2], *kept[3:], Lookup("b")), REFERENCE)
    assert [look.served for look in outcome.lookups] == [0, 0]


def test_a_block_that_is_held_twice_is_free_when_both_are_given_back() -> None:
    twice = Hold("a", 0, (0, 2)), Hold("a", 0, (0, 1))
    steps = Schedule("a"), Finish("a"), *twice, Take(), Release()
    assert shown(replay(played(*steps), REFERENCE)) == []


def test_generated_histories_have_holders_outside() -> None:
    kinds, made = {"hold", "take", "release", "sent"}, [history(f"1:{n}") for n in range(60)]
    with_them = [each for each in made if kinds.intersection(step.do for step in each.steps)]
    assert 6 <= len(with_them) <= 24
    for each in with_them:
        outcome = replay(each, REFERENCE)
        assert shown(outcome) == expected(each, outcome)


@pytest.mark.parametrize("recompute", [True, False])
def test_invalid_blocks_take_computed_tokens_back(recompute: bool) -> None:
    lost = Schedule("a", external=7, exactly=True, valid=5, recompute=recompute)
    outcome = replay(played(lost, Schedule("a"), Lookup("b")), REFERENCE)
    assert shown(outcome) == []
    again = "" if recompute else "skipped: the request does not wait or run"
    assert outcome.steps == ["", again, ""]
    assert [look.served for look in outcome.lookups] == [0, 8 if recompute else 4]


def test_who_reads_an_invalid_load_is_wrong() -> None:
    # While the request computes it anew in several steps, others hit what is still invalid.
    slow = replace(ENGINE, num_gpu_blocks=40, max_num_batched_tokens=2)
    lost = Schedule("a", external=8, exactly=True, valid=1, recompute=True)
    outcome = replay(played(lost, Schedule("a"), Schedule("b"), engine=slow), REFERENCE)
    assert shown(outcome) == ["unsound: other-content-read(of=invalid-load)"]


def test_blocks_are_reserved_for_others() -> None:
    loads = [Load("a", 8, reserved_blocks=blocks) for blocks in (8, 7)]
    outcome = replay(played(*loads, Loaded("a")), REFERENCE)
    assert (shown(outcome), outcome.steps) == ([], ["no space", "", ""])


def test_a_loading_request_can_be_aborted() -> None:
    steps = Load("a", 8), Finish("a", sending=True), Loaded("a"), Sent("a"), Take(11)
    outcome = replay(played(*steps), REFERENCE)
    assert shown(outcome) == []
    assert outcome.steps[2].startswith("skipped")
    assert outcome.steps[-1] == ""


def test_what_is_done_otherwise_is_said() -> None:
    steps = (
        Schedule("a", external=5),
        Take(50),
        Hold("a", 0, (0, 40)),
        Finish("c", sending=True),
        Schedule("b", external=2, valid=1),
    )
    outcome = replay(played(*steps, engine=replace(ENGINE, num_gpu_blocks=8)), REFERENCE)
    assert outcome.steps == [
        "4 external tokens are taken, not 5",
        "1 blocks are taken, not 50",
        "1 blocks are held, not 2",
        "0 requests are sent, not 1",
        "no space; 0 external tokens are taken, not 2",
    ]


def test_the_local_prefix_is_admitted_with_what_is_loaded() -> None:
    states = Group(GroupKind.MAMBA, 2)
    hybrid = replace(ENGINE, groups=(FULL, states), num_gpu_blocks=40)
    gone = Evict("a", 1, tuple(range(6)))
    first: list[Step] = [Schedule("a"), Schedule("a"), Finish("a"), gone]
    loads = Schedule("b", external=1, exactly=True, local_prefix=True)
    outcome = replay(played(*first, loads, engine=hybrid), REFERENCE)
    assert (shown(outcome), len(outcome.lookups)) == ([], 1)
    # Nothing is loaded, and the state is missing: the usual hit is looked up.
    alone = Schedule("b", local_prefix=True)
    outcome = replay(played(*first, alone, engine=hybrid), REFERENCE)
    assert (shown(outcome), len(outcome.lookups)) == ([], 2)


def test_lockstep_plays_them() -> None:
    for each in CONNECTIONS[::4]:
        outcome = run(each, REFERENCE, ReferenceManagers(), JudgedPolicies())
        assert (outcome.findings, outcome.fault, outcome.steps) == ([], None, len(each.steps))
    for fault in (broken.TakesFromTheBack, broken.KeepsOneBack, broken.FreesNothing):
        differs = [run(e, Broken(fault), REFERENCE, JudgedPolicies()) for e in CONNECTIONS[::4]]
        assert any(outcome.findings for outcome in differs), fault


def test_a_subject_whose_blocks_nobody_can_hold() -> None:
    class Alone(Wrapped):
        def __getattr__(self, name: str) -> Any:
            if name == "hold_blocks":
                raise AttributeError(name)
            return super().__getattr__(name)

    with pytest.raises(CannotJudge, match="held from outside"):
        replay(played(Take()), Broken(Alone))


def test_valid_tokens_need_external_ones() -> None:
    step: Step = Schedule("a", valid=1)
    with pytest.raises(HistoryError, match="set external"):
        History(ENGINE, {"a": RequestInput((1,))}, (step,))

"""Replay passes the reference, and tells what is wrong with broken managers."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.judge.replay import ReplayOutcome, replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.tests import broken_managers as broken
from hitproof.reference.policies import VLLM_0_23, Policies
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import HitGranularity
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import Junctions, SparseRetention

REFERENCE = ReferenceManagers(Policies())
HISTORIES = 60


def histories(count: int = HISTORIES) -> list[History]:
    return [history(f"replay:{number}") for number in range(count)]


def shown(outcome: ReplayOutcome) -> list[str]:
    return [f"{f.signature.divergence}: {f.signature.pattern}" for f in outcome.findings]


def expected(played: History, outcome: ReplayOutcome) -> list[str]:
    """What is known of the reference, as of vLLM, and no lookup or mask can mend.

    A draft layer's entry hangs on a token that the block's hash does not cover; and after a load of
    the whole prompt the last token reads what was never allocated.
    """
    known = []
    for text in shown(outcome):
        about_drafts = played.engine.use_eagle and "a draft layer's entry hangs" in text
        if about_drafts or text.endswith("a block that is read was freed after a load"):
            known.append(text)
    return known


def test_the_reference_passes() -> None:
    num_lookups = 0
    for played in histories(200):
        outcome = replay(played, REFERENCE)
        assert shown(outcome) == expected(played, outcome)
        assert len(outcome.told) == len(played.steps)
        assert all(lookup.due == lookup.served for lookup in outcome.lookups)
        num_lookups += sum(lookup.served > 0 for lookup in outcome.lookups)
    assert num_lookups > 100


def test_the_reference_passes_under_the_policies_of_an_older_release() -> None:
    older = JudgedPolicies(
        horizon=LookaheadHorizon.CAPPED,
        sparse_retention=SparseRetention.WINDOWS,
        junctions=Junctions.DROPPED,
    )
    seen: Counter[str] = Counter()
    for played in histories(100):
        outcome = replay(played, ReferenceManagers(VLLM_0_23), older)
        seen.update(set(shown(outcome)) - set(expected(played, outcome)))
    # What it registers without need, and forgets of what retention promises.
    assert {text.split(":")[0] for text in seen} == {Divergence.WASTE, Divergence.LOST_HIT}
    assert not any("the prefix block" in text for text in seen)


FAULTS: list[tuple[type[broken.Wrapped], str]] = [
    (broken.ShorterHit, "lost hit: whole run, one boundary short"),
    (broken.StaleHit, "unsound: longer than"),
    (broken.StaleHit, "unsound: a block that is read holds something else"),
    (broken.OtherBlock, "unsound: block table holds another block"),
    (broken.OtherBlock, "unsound: a block that is read holds something else"),
    (broken.FreesWindow, "unsound: a block that is read was freed"),
    (broken.FreesWindow, "unsound: a block that is read was freed"),
    (broken.Forgets, "lost hit: the prefix block is left out"),
    (broken.Leaks, "unsound: no block leaks|unsound: a reference count"),
    (broken.FreesTwice, "unsound: a reference count is the number of tables' entries"),
    (broken.Crashes, "crash: raises AssertionError"),
    (broken.SharesKeys, "unsound: two contents share a key"),
    (broken.ChangesKeys, "lost hit: one content has two keys"),
    (broken.WrongUsage, "unsound: usage is the share of blocks in use"),
    (broken.ResetsInUse, "unsound: the cache is reset while blocks are in use"),
    (broken.ResetsOnlyAnswers, "unsound: a key finds a block after reset_prefix_cache"),
    (broken.EvictsNothing, "unsound: a key finds a block after evict_blocks"),
    (broken.RegistersEarly, "unsound: a key is registered over other content"),
    (broken.ForgetsSteps, "unsound: a state is read in the step that computes it"),
    (broken.SharesFresh, "unsound: a block that is read holds something else"),
    (broken.TellsTooMuch, "waste: a prefix is told to be shared that is not"),
]


@pytest.mark.parametrize(
    ("manager", "words"), FAULTS, ids=[f"{b.__name__}-{n}" for n, (b, _) in enumerate(FAULTS)]
)
def test_a_broken_manager_is_caught(manager: type[broken.Wrapped], words: str) -> None:
    seen: Counter[str] = Counter()
    for number in range(300):
        played = history(f"replay:{number}")
        outcome = replay(played, broken.Broken(manager))
        seen.update(set(shown(outcome)) - set(expected(played, outcome)))
        if any(text.startswith(word) for text in seen for word in words.split("|")):
            return
    raise AssertionError(seen)


LOOKAHEAD = read(
    """{"engine": {"groups": [{"kind": "sliding_window", "block_size": 2, "window": 3}],
                   "num_gpu_blocks": 9, "hash_block_size": 2, "max_model_len": 8,
                   "use_eagle": true, "num_hash_lookahead_tokens": 1, "num_speculative_tokens": 2},
        "requests": {"a": {"prompt": [1, 2, 3], "output": [[4, 8]]},
                     "b": {"prompt": [1, 2, 4]}},
        "steps": [{"do": "schedule", "request": "a"},
                  {"do": "lookup", "request": "b"},
                  {"do": "schedule", "request": "a", "drafts": 2, "accepted": 2},
                  {"do": "schedule", "request": "a"}]}"""
)


def test_hashes_that_look_ahead() -> None:
    good = replay(LOOKAHEAD, REFERENCE)
    assert [lookup.served for lookup in good.lookups] == [0, 0]
    assert shown(good) == []
    assert "unsound: two contents share a key" in shown(replay(LOOKAHEAD, broken.LooksNotAhead()))
    late = replay(LOOKAHEAD, ReferenceManagers(Policies(), broken.FreesBeforeItRegisters))
    assert shown(late) == ["lost hit: the tail block is left out, gone before its hash is known"]


def test_what_is_registered_without_need_is_waste() -> None:
    wasteful = ReferenceManagers(replace(Policies(), thinned_kinds=frozenset()))
    seen = [text for played in histories() for text in shown(replay(played, wasteful))]
    assert any(text.startswith("waste: a block between runs") for text in seen)


def test_a_crash_ends_the_history() -> None:
    for played in histories():
        outcome = replay(played, broken.Broken(broken.Crashes))
        if outcome.findings:
            crash = outcome.findings[-1]
            assert (crash.signature.divergence, crash.call) == (Divergence.CRASH, "free")
            assert len(outcome.told) == crash.step
            return
    raise AssertionError


def test_equal_violations_are_told_once_and_counted() -> None:
    outcomes = [replay(played, broken.Broken(broken.ShorterHit)) for played in histories()]
    for outcome in outcomes:
        signatures = [finding.signature for finding in outcome.findings]
        assert len(signatures) == len(set(signatures))
    assert any(finding.times > 1 for outcome in outcomes for finding in outcome.findings)


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        (JudgedPolicies(granularity=HitGranularity.FINE), "may end inside blocks"),
        (JudgedPolicies(sparse_retention=SparseRetention.NONE), "has no retention interval"),
    ],
)
def test_what_cannot_be_judged_says_why(policies: JudgedPolicies, sentence: str) -> None:
    groups: tuple[Any, ...] = (
        Group(GroupKind.FULL_ATTENTION, 4),
        Group(GroupKind.MAMBA, 4),
        Group(GroupKind.SLIDING_WINDOW, 2, window=4),
    )
    played = history("replay:0")
    engine = replace(
        played.engine,
        groups=groups,
        hash_block_size=2,
        max_model_len=4096,
        use_eagle=False,
        num_speculative_tokens=0,
        retention_interval=0,
    )
    with pytest.raises(CannotJudge, match=sentence):
        replay(replace(played, engine=engine, steps=()), REFERENCE, policies)

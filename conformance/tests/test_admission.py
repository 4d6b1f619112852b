"""Admission: a request that is admitted as a whole fits, and gets the blocks of its prompt."""

from collections import Counter

import pytest

from hitproof.conformance.emulation.releases import VLLM_0_33
from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import Schedule
from hitproof.conformance.judge.admission import Admitted, least_needed
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.managers import Allocation, ManagerSubject, Observation
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_replay import REFERENCE, shown
from hitproof.spec.groups import Group, GroupKind

EDGES = series("edges")


def test_the_reference_keeps_what_it_promises_at_the_edge() -> None:
    admitted = 0
    for played in EDGES:
        outcome = replay(played, REFERENCE)
        assert shown(outcome) == []
        admitted += outcome.steps[0] == ""
    assert 10 < admitted < len(EDGES) - 10


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "code"),
    [
        (broken.Broken(broken.AdmitsInPart), "admitted-without-space"),
        (broken.Broken(broken.AdmitsInPart), "admission-not-kept"),
        (broken.CountsOneStepForAdmission(), "admission-not-kept"),
    ],
)
def test_a_manager_that_admits_too_much_is_caught(subject: ManagerSubject, code: str) -> None:
    seen: Counter[str] = Counter()
    for played in EDGES:
        seen.update(shown(replay(played, subject)))
    assert seen[f"waste: {code}"]


def test_a_step_after_a_hit_is_shorter_than_modules_look_ahead() -> None:
    played = EDGES[61]
    assert played.engine.num_prefill_lookahead > 2
    served = {look.request: look.served for look in replay(played, REFERENCE).lookups}
    assert served["second"]
    assert Schedule("second", 1) in played.steps


def test_blocks_of_other_sizes_beside_states_show_what_passes_a_boundary() -> None:
    seen = shown(replay(EDGES[62], broken.Broken(broken.ConnectorPassesBoundaries)))
    assert "unsound: local-prefix-off-boundary" in seen


STATES = read(
    """{"engine": {"groups": [{"kind": "mamba", "block_size": 2}], "num_gpu_blocks": 2,
                   "hash_block_size": 2, "max_model_len": 8, "max_num_batched_tokens": 2,
                   "full_sequence_must_fit": true},
        "requests": {"a": {"prompt": [1, 2, 3, 4]}},
        "steps": [{"do": "schedule", "request": "a"}, {"do": "schedule", "request": "a"}]}"""
)


def test_one_state_is_not_enough() -> None:
    release = ReferenceManagers(VLLM_0_33)
    assert shown(replay(STATES, release)) == ["waste: admission-not-kept"]
    outcome = replay(STATES, REFERENCE)
    assert (shown(outcome), outcome.steps) == ([], ["no space", "no space"])


def test_the_fewest_blocks_that_a_request_needs() -> None:
    engine = STATES.engine.__class__(
        groups=(
            Group(GroupKind.FULL_ATTENTION, 2),
            Group(GroupKind.SLIDING_WINDOW, 2, window=3),
            Group(GroupKind.MAMBA, 2),
        ),
        num_gpu_blocks=100,
        hash_block_size=2,
        max_model_len=64,
    )
    seen = Observation({}, {7: 1}, {}, (), 0, 0, None, None, {})
    assert least_needed(engine, seen, ((), (), ()), 9) == 5 + 2 + 1
    # Of the hit only block 7 is in use. The window reads no hit block but the last.
    assert least_needed(engine, seen, ((7, 8), (0, 9), (0, 10)), 9) == 3 + 1 + 2 + 1
    assert least_needed(engine, seen, ((7, 8), (0, 9), (0, 10)), 5) == 1 + 1 + 1 + 1 + 1


def test_a_promise_ends_when_another_request_takes_blocks() -> None:
    admitted = Admitted()
    admitted.allocated("a", Allocation(4, full_sequence_must_fit=True), 9, 2)
    admitted.allocated("b", Allocation(4), 9, 0)
    assert admitted.is_promised("a", 9)
    assert not admitted.is_promised("a", 10)
    assert not admitted.is_promised("b", 1)
    admitted.allocated("b", Allocation(4), 9, 1)
    assert not admitted.is_promised("a", 1)
    admitted.allocated("c", Allocation(4, full_sequence_must_fit=True), 9, 2)
    admitted.freed("c")
    assert not admitted.is_promised("c", 1)


@pytest.mark.parametrize(
    "others", ['{"do": "take"}', '{"do": "hold", "request": "a", "group": 0, "blocks": [0]}']
)
def test_a_promise_ends_when_others_take_blocks(others: str) -> None:
    taken = read(
        """{"engine": {"groups": [{"kind": "full_attention", "block_size": 1}],
                       "num_gpu_blocks": 7, "hash_block_size": 1, "max_model_len": 6,
                       "max_num_batched_tokens": 4, "full_sequence_must_fit": true},
            "requests": {"a": {"prompt": [1]}, "b": {"prompt": [2, 3, 4, 5, 6, 7]}},
            "steps": [{"do": "schedule", "request": "a"}, {"do": "finish", "request": "a"},
                      {"do": "schedule", "request": "b"}, OTHERS,
                      {"do": "schedule", "request": "b"}]}""".replace("OTHERS", others)
    )
    outcome = replay(taken, REFERENCE)
    assert (shown(outcome), outcome.steps[-1]) == ([], "preempted b")

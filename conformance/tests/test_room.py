"""Histories at the end of the room that there is, and what such deployments may say."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.contended_workloads import contended_workload
from hitproof.conformance.histories.resumed_workloads import resumed_workload
from hitproof.conformance.histories.room_workloads import room_workload
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.situations import copies_of_last_blocks
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.judge.replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.reference.policies import Policies

ROOM = [room_workload(f"1:{number}") for number in range(30)]


def test_histories_are_of_each_sort_and_can_be_written() -> None:
    assert all(read_workload(write_workload(each)) == each for each in ROOM)
    wanted = [(each, r) for each in ROOM for r in each.requests.values() if r.min_tokens]
    assert any(r.min_tokens > len(r.output) for _, r in wanted)
    assert any(r.min_tokens < len(r.output) for _, r in wanted)
    assert any(each.deployment.num_gpu_blocks_override for each in ROOM)
    assert {each.deployment.blocks_of_ranks for each in ROOM if each.deployment.ranks == 2}


def test_who_is_preempted_in_flight_finds_room() -> None:
    resumed = [resumed_workload(f"1:{number}") for number in range(30)]
    assert all(read_workload(write_workload(each)) == each for each in resumed)
    assert {each.requests["b"].aborted is None for each in resumed} == {True, False}
    assert {each.deployment.ranks for each in resumed} == {2, 3}


def test_what_has_no_layers_derives_nothing() -> None:
    plain, ranks = ROOM[0], ROOM[2]
    with pytest.raises(HistoryError, match="add layers"):
        replace(plain.deployment, num_gpu_blocks_override=4)
    with pytest.raises(HistoryError, match="one entry for each rank"):
        replace(ranks.deployment, rank_blocks=(20,))
    with pytest.raises(HistoryError, match="lower min_tokens"):
        replace(plain, requests={"a": Arrival((1, 2), (3,), min_tokens=2)})


def test_who_is_next_gives_up_while_others_wait() -> None:
    made = contended_workload("1:7")
    first = [name for name, each in made.requests.items() if each.aborted is not None]
    priorities = {name: each.priority for name, each in made.requests.items()}
    assert [priorities[name] for name in first] == [1]
    assert made.deployment.max_num_seqs == 1


def test_the_reference_copies_the_last_blocks() -> None:
    for history in copies_of_last_blocks():
        assert not replay(history, ReferenceManagers(Policies())).findings

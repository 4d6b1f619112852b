"""Histories of what a release does not have: that nothing was judged in them is said."""

from itertools import count

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import limits

HOST = [Play(Origin.SCENARIOS, f"1:{number}") for number in (9, 46, 83)]
assert all(play.workload().deployment.host for play in HOST)
GENERATED = Play(Origin.GENERATED, "1:0")
MADE = (Play(Origin.LAYERS, f"1:{number}") for number in count())
LAYERS = next(play for play in MADE if not play.workload().requests)
"""Judged by the groups that start-up derives, without a request."""
STATES = [
    play
    for play in (Play(Origin.SCENARIOS, f"1:{number}") for number in range(40))
    if play.workload().deployment.has_mamba
]
SEVERAL = Play(Origin.GENERATED, "1:18")
"""A load in two groups, of which one gives its first blocks up: its events come before theirs."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize(("release", "left_out"), [("0.31.0", True), ("0.33.0", False)])
def test_host_pools_are_left_out_before_releases_have_them(release: str, left_out: bool) -> None:
    with opened(Run(resolve(release), Profile.QUICK, limits=limits())) as sessions:
        _, played = sessions.settle([], [*HOST, GENERATED, LAYERS], lambda *_: None)
    assert not played.pop().left_out
    assert not any(each.unsettled for each in played)
    assert [each.left_out for each in played] == [left_out] * len(HOST) + [False]
    assert [each.steps > 0 for each in played] == [not left_out] * len(HOST) + [True]


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize(("release", "left_out"), [("0.14.0", True), ("0.15.0", False)])
def test_states_are_left_out_before_chunks_end_at_them(release: str, left_out: bool) -> None:
    with opened(Run(resolve(release), Profile.QUICK, limits=limits())) as sessions:
        _, played = sessions.settle([], STATES, lambda *_: None)
    assert not any(each.unsettled for each in played)
    assert {each.left_out for each in played} == {left_out}
    assert any(each.steps for each in played) is not left_out


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.19.1", "0.20.0"])
def test_events_of_groups_that_they_do_not_name_are_left_out(release: str) -> None:
    with opened(Run(resolve(release), Profile.QUICK, limits=limits())) as sessions:
        _, (played,) = sessions.settle([], [SEVERAL], lambda *_: None)
    assert played.steps
    assert Code.EVENTS_WRONG not in {signature.code for signature in played.signatures}

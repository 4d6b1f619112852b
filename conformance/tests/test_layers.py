"""Deployments that say layers: what is derived from them is judged, and so is a refusal."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.derivation import Derived, Rank
from hitproof.conformance.histories.corpus import num_of, workload_of
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.histories.workloads import Arrival, Deployment, Layers, SchedulerHistory
from hitproof.conformance.scheduling.deriving import wrong_groups
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.subject.schedulers import StartupRefused
from hitproof.conformance.tests.test_derivation import LAID_OUT, PLACES, POOL
from hitproof.conformance.tests.test_scheduling import DEPLOYMENT, Small
from hitproof.spec.claims import Divergence

HISTORY = SchedulerHistory(
    replace(DEPLOYMENT, layers=(Layers(2),)), {"a": Arrival(tuple(range(10)), (100, 101))}
)


class Derives:
    def __init__(self, derived: Derived) -> None:
        self._derived = derived

    def start(self, deployment: Deployment) -> Small:
        started = Small(deployment)
        started.derived = self._derived
        return started


class Refuses:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self, deployment: Deployment) -> Small:
        del deployment
        raise StartupRefused(self._reason)


def test_what_is_derived_is_judged_when_a_scheduler_starts() -> None:
    assert not play(HISTORY, Derives(LAID_OUT)).findings
    missing = replace(LAID_OUT, members=(("a",), ("c",)))
    found = play(HISTORY, Derives(missing)).findings
    assert "derived-groups-wrong(rule=layers)" in {str(f.signature.defect) for f in found}
    wasteful = replace(LAID_OUT, unit=4)
    (wrong,) = wrong_groups(wasteful)
    assert wrong.signature.divergence is Divergence.WASTE
    of_others = Rank(10, POOL, POOL, PLACES, frozenset("ab"))
    (fatal,) = wrong_groups(replace(LAID_OUT, ranks=(of_others,)))
    assert fatal.signature.divergence is Divergence.CRASH


@pytest.mark.parametrize(
    ("reason", "error", "divergence"),
    [
        ("KeyError: 512", "KeyError", Divergence.CRASH),
        ("ValueError: more memory is needed", "ValueError", Divergence.WASTE),
        ("the pool is too small", "TooFewBlocks", Divergence.WASTE),
    ],
)
def test_layers_that_fit_are_not_refused(reason: str, error: str, divergence: Divergence) -> None:
    outcome = play(HISTORY, Refuses(reason))
    assert [f.signature.divergence for f in outcome.findings] == [divergence]
    assert [str(f.signature.defect) for f in outcome.findings] == [f"layers-refused(error={error})"]
    again = play(HISTORY, Refuses(f"{reason} in other words"))
    assert [f.footprint for f in again.findings] == [f.footprint for f in outcome.findings]
    assert not play(replace(HISTORY, deployment=DEPLOYMENT), Refuses(reason)).findings
    little = replace(HISTORY.deployment, num_gpu_blocks=39)
    assert not play(replace(HISTORY, deployment=little), Refuses(reason)).findings


def test_layers_are_written_and_read() -> None:
    for number in range(0, num_of("layers"), 5):
        history = workload_of("layers", number)
        assert read_workload(write_workload(history)) == history


def test_layers_are_spread_over_ranks() -> None:
    of_models = [workload_of("spread_layers", number).deployment for number in range(36)]
    assert len(set(of_models)) == 36
    assert {each.ranks for each in of_models} == {1, 2, 4}


def test_layers_have_a_sort_each() -> None:
    with pytest.raises(HistoryError, match="one entry for each group"):
        replace(DEPLOYMENT, layers=(Layers(), Layers()))
    with pytest.raises(HistoryError, match="add layers"):
        replace(DEPLOYMENT, disable_hybrid_kv_cache_manager=True)

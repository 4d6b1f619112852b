"""Campaigns on a Ray cluster of two nodes, one of which is lost."""

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitproof.vllm_integration.campaign.engines import EngineError, OnRay
from hitproof.vllm_integration.campaign.running import Live, Until, run
from hitproof.vllm_integration.campaign.store import Store
from hitproof.vllm_integration.tests import sums
from hitproof.vllm_integration.tests.sums import GIVEN, SUMS, question
from hitproof.vllm_integration.tests.test_campaign import campaign, merged
from hitproof.vllm_integration.verdict import Verdict

_JOBS = {"each": "100", "rounds": "2", "sleep": "0.02"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of one node with one processor; tests add others."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    logging.getLogger("ray").setLevel(logging.ERROR)
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    made.shutdown()


@pytest.mark.long
def test_a_lost_node_changes_no_byte(cluster: Any, tmp_path: Path) -> None:
    campaign(tmp_path / "here", None, None, **_JOBS)
    lost = cluster.add_node(num_cpus=1)
    workers = set()

    def progress(live: Live) -> None:
        if live.done == 40:
            workers.add(engine.workers)
            cluster.remove_node(lost, allow_graceful=False)

    given = replace(GIVEN, options=_JOBS)
    with (
        closing(OnRay(cluster.address, sums.work, GIVEN.setting)) as engine,
        closing(Store(tmp_path / "there")) as kept,
    ):
        found = run(SUMS, given, kept, engine, Until(), progress)
        log = kept.log()
    assert workers == {2}
    assert len({ended.worker for ended in log}) > 1
    assert (len(found.jobs), found.left, len(log)) == (200, 0, 200)
    assert merged(tmp_path / "there") == merged(tmp_path / "here")
    # On the same cluster: what cannot be run there.
    older = replace(GIVEN.setting, version="older")
    with (
        closing(OnRay(cluster.address, sums.work, older)) as engine,
        pytest.raises(EngineError, match="has another hitproof") as caught,
    ):
        campaign(tmp_path / "older", engine)
    assert caught.value.verdict is Verdict.USAGE
    with (
        closing(OnRay(cluster.address, sums.work, GIVEN.setting)) as engine,
        pytest.raises(EngineError, match="lost a job for good") as caught,
    ):
        list(engine.answers(iter([question(1, ends=True)]), {}))
    assert caught.value.verdict is Verdict.INCONCLUSIVE

"""Deployments at the end of the room that there is: what they may say, and copies of blocks."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workloads import Arrival, Encoder, Layers, SchedulerHistory
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.tests.test_scheduling import DEPLOYMENT


def test_what_no_deployment_has_is_refused() -> None:
    with pytest.raises(HistoryError, match="add layers"):
        replace(DEPLOYMENT, num_gpu_blocks_override=4)
    with pytest.raises(HistoryError, match="one entry for each rank"):
        replace(DEPLOYMENT, ranks=2, layers=(Layers(2),), rank_blocks=(20,))
    with pytest.raises(HistoryError, match="raise its budget and cache_size to 6"):
        replace(
            DEPLOYMENT,
            max_num_batched_tokens=6,
            enable_chunked_prefill=False,
            encoder=Encoder(5, 6),
        )
    with pytest.raises(HistoryError, match="set v2_model_runner"):
        replace(DEPLOYMENT, ranks=2, async_scheduling=True)
    with pytest.raises(HistoryError, match="lower min_tokens"):
        SchedulerHistory(DEPLOYMENT, {"a": Arrival((1, 2), (3,), min_tokens=2)})


def test_the_reference_copies_the_last_blocks() -> None:
    for history in series("fine_situations")[17:25]:
        assert not replay(history, ReferenceManagers()).findings

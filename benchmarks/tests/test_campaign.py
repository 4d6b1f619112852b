"""The benchmark of campaigns, on an engine whose overhead is known."""

import time
from collections.abc import Iterator

import pytest

from benchmarks.campaign import measured
from hitproof.vllm_integration.campaign.engines import Targets
from hitproof.vllm_integration.campaign.jobs import Job
from hitproof.vllm_integration.campaign.serving import Answer
from hitproof.vllm_integration.verdict import Verdict


class Slow:
    """Gives each answer as if half of the time had been the job's."""

    name = "slow"
    workers = 1
    refused = ""

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        del targets
        for job in jobs:
            started = time.perf_counter()
            time.sleep(0.01)
            spent = (time.perf_counter() - started) / 2
            yield job, Answer({}, spent, "here", self.refused, Verdict.USAGE)

    def close(self) -> None:
        """Nothing is open."""


JOBS = [Job("wait", "", "", {"n": n}) for n in range(4)]


def test_overhead_is_what_workers_do_not_account_for() -> None:
    found = measured(Slow(), JOBS, {})
    assert found["jobs"] == 3  # the first starts the worker
    assert found["overhead in percent"] >= 100


def test_what_cannot_be_run_is_not_timed() -> None:
    slow = Slow()
    slow.refused = "no"
    with pytest.raises(RuntimeError, match="no"):
        measured(slow, JOBS, {})

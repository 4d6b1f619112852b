"""A campaign from start to end: what is not in the store is run, and kept as soon as it ends."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hitproof.vllm_integration.campaign.engines import Engine, EngineError
from hitproof.vllm_integration.campaign.jobs import Job
from hitproof.vllm_integration.campaign.plans import Given, Kind, Summary
from hitproof.vllm_integration.campaign.store import Ended, Store
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class Until:
    """When a campaign ends: after a number of jobs in all, or of hours of this run."""

    jobs: int | None = None
    hours: float | None = None


@dataclass(frozen=True)
class Live:
    """What is known while a campaign runs: jobs done and planned, and what they show.

    Planned are those of the rounds so far, or as many as are wanted of a campaign without end.
    """

    done: int
    planned: int
    seen: Counter[str]


@dataclass(frozen=True)
class Campaign:
    """What became of a campaign.

    Attributes:
        kind: its kind.
        given: what it was about.
        jobs: its jobs, in order, as far as they were planned.
        summary: what the results say.
        left: how many of the jobs have no result.
        whole: whether there are no further jobs.
        engine: what ran it: the engine's name, and how many workers it had.
    """

    kind: Kind
    given: Given
    jobs: list[Job]
    summary: Summary
    left: int
    whole: bool
    engine: tuple[str, int]

    @property
    def verdict(self) -> Verdict:
        """The verdict on what was judged; inconclusive without that, or if no end was reached."""
        nothing = self.left == len(self.jobs)
        reached = self.whole or self.kind.endless
        if self.summary.verdict is Verdict.CONFORMS and (nothing or not reached):
            return Verdict.INCONCLUSIVE
        return self.summary.verdict


def run(
    kind: Kind,
    given: Given,
    store: Store,
    engine: Engine,
    until: Until,
    progress: Callable[[Live], None],
) -> Campaign:
    """Run a campaign to its end or its limit. Raises `EngineError` and `StoreError`.

    However it ends, finished jobs are kept and merged.
    """
    end = None if until.hours is None else time.monotonic() + 3600 * until.hours
    planned: list[Job] = []
    seen: Counter[str] = Counter()
    rounds = kind.plan(given)
    whole = False
    try:
        jobs = next(rounds, [])
        while jobs:
            some = jobs if until.jobs is None else jobs[: until.jobs - len(planned)]
            planned += some
            for job in some:
                if job in store:
                    seen.update(kind.seen(given, store.result(job)))
            todo = (job for job in some if job not in store and not _over(end))
            done = sum(job in store for job in planned)
            total = (until.jobs if kind.endless else None) or len(planned)
            progress(Live(done, total, seen))
            for job, answer in engine.answers(todo, given.targets):
                if answer.result is None:
                    raise EngineError(answer.refused, answer.verdict)
                ended = Ended(job.name, time.time(), answer.seconds, answer.worker)
                store.keep(job, answer.result, ended)
                seen.update(kind.seen(given, answer.result))
                done += 1
                progress(Live(done, total, seen))
            if len(some) < len(jobs) or done < len(planned):
                break
            try:
                jobs = rounds.send([store.result(job) for job in jobs])
            except StopIteration:
                whole = True
                break
    finally:
        rounds.close()
        store.merge(planned)
    ended_jobs = [(job, store.result(job)) for job in planned if job in store]
    summary = kind.fold(given, ended_jobs)
    for name in sorted(store.differing & {job.name for job in planned}):
        summary.cannot[f"the job {name} gave different results in two runs"] += 1
    for path, text in summary.files.items():
        store.write(path, text)
    left = len(planned) - len(ended_jobs)
    return Campaign(kind, given, planned, summary, left, whole, (engine.name, engine.workers))


def _over(end: float | None) -> bool:
    return end is not None and time.monotonic() > end

"""Scheduler histories on a host's pool, which backs pages on the device (HiSparse).

Some have little room on the device or on the host, so that pages are given up and requests are
preempted, and some have a KV connector that loads prefixes onto the host, and may fail. In some the
prefix cache is reset while requests run.
"""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    HostPool,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_SIZE = 4


def host_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof host {seed}")
    longest = random.randint(5, 12) * _SIZE
    loads = random.random() < 0.5
    groups = random.choice((1, 1, 2))
    chunk = random.choice((2, 3, 4, 16)) * _SIZE
    pages = -(-longest // _SIZE)
    hot = random.randint(1, 3)
    # Room for one request, with what its steps in flight have on the device.
    needed = pages + groups * (hot + min(pages, 1 + 2 * chunk // _SIZE))
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcdef"[: random.randint(3, 6)]:
        num_output = random.randint(1, 2 * _SIZE)
        most = longest - num_output
        prompt: tuple[int, ...] = ()
        after = None
        if requests and random.random() < 0.7:
            donor = random.choice(list(requests))
            known = requests[donor].prompt + requests[donor].output
            prompt = known[: random.choice((most, random.randint(1, most)))]
            after = random.choice((None, donor))
        length = max(len(prompt) + (not prompt), random.randint(_SIZE, most))
        more = range(fresh, fresh + length - len(prompt))
        if random.random() < 0.8 or not prompt:
            prompt += tuple(more)
        fresh += length
        has = random.choice((0, len(prompt), random.randint(0, len(prompt)))) if loads else 0
        requests[name] = Arrival(
            prompt,
            tuple(range(fresh, fresh + num_output)),
            random.choice((0, 0, 1, 2, 5)),
            after,
            aborted=random.randint(1, 6) if random.random() < 0.15 else None,
            loads=has,
            load_fails=has > 0 and random.random() < 0.25,
        )
        fresh += num_output
    host = HostPool(
        2 + pages + random.choice((0, 1, pages // 2, 2 * pages, 4 * pages)),
        hot,
        groups,
        random.random() < 0.5,
        random.choice((0, 0, 1, 3)),
        loads,
    )
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, _SIZE),),
        1 + needed + random.choice((0, 2, needed // 2, needed, 3 * needed)),
        longest,
        chunk,
        max_num_seqs=random.choice((1, 2, 4)),
        async_scheduling=random.random() < 0.3,
        v2_model_runner=True,
        policy=random.choice(("fcfs", "priority")),
        host=host,
    )
    resets = Random(f"hitproof host resets {seed}")
    if not deployment.async_scheduling and not host.delay and resets.random() < 0.7:
        last = resets.choice(list(requests)[1:])
        requests[last] = replace(requests[last], after_reset=True)
    return SchedulerHistory(deployment, requests)

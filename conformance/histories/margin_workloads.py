"""Scheduler histories with a watermark: blocks that stay free when a request is admitted.

There is room for two or three of the requests. They decode while others wait, so that some are
preempted, and are admitted again beside those that run.
"""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_NAMES = "abcde"


def margin_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof margins {seed}")
    size = random.choice((2, 4))
    groups = [Group(GroupKind.FULL_ATTENTION, size)]
    if random.random() < 0.3:
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 2 * size)))
    longest = random.randint(4, 8) * size
    one = len(groups) * -(-longest // size) + 2 * (len(groups) - 1)
    blocks = 1 + one + random.randint(one // 4, 3 * one // 2)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in _NAMES[: random.randint(3, 5)]:
        num_output = random.randint(1, 3 * size)
        length = random.randint(1, longest - num_output)
        prompt = tuple(range(fresh, fresh + length))
        if requests and random.random() < 0.3:
            prompt = (requests["a"].prompt[: 2 * size] + prompt)[:length]
        output = tuple(range(fresh + length, fresh + length + num_output))
        fresh += length + num_output
        requests[name] = Arrival(prompt, output, random.choice((0, 0, 0, 1, 2)))
    deployment = Deployment(
        tuple(groups),
        blocks,
        longest,
        random.choice((size + 3, 2 * size + 3, 4 * size + 1, 2 * longest)),
        max_num_seqs=random.choice((2, 3, 5)),
        # A request that is alone is admitted all the same.
        watermark=(random.randint(1, max(1, blocks - one)) + 0.5) / blocks,
        async_scheduling=random.random() < 0.3,
    )
    return SchedulerHistory(deployment, requests)

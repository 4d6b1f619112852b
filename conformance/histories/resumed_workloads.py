"""Scheduler histories of decodes that are preempted in flight, with room for them in the next step.

Several ranks are scheduled ahead. The first request and the last one are computed in turns, and
between them are some that end as soon as the first one has taken the blocks of the last one: by
themselves, or as their users give up. What the last one has in flight is then not delivered yet.
"""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind


def resumed_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof resumed {seed}")
    size, ranks = random.choice((2, 4)), random.choice((2, 2, 3))
    rounds = random.randint(0, size - 1)
    # A decode waits until the token before it is back from the last rank.
    taken = ranks * (rounds + 1)
    lengths = {
        "a": random.randint(1, 3) * size - rounds,
        "b": random.randint(1, 2) * size + 1,
        "c": random.randint(0, 1) * size + size - rounds,
    }
    arrives = {"a": 0, "b": 0, "c": random.randint(1, ranks - 1)}
    gives_up = random.random() < 0.5
    requests = {}
    for place, (name, length) in enumerate(lengths.items()):
        tokens = tuple(range(1000 * place, 1000 * place + length + 3 * size))
        num_output = rounds + 1 if name == "b" and not gives_up else 3 * size
        requests[name] = Arrival(
            tokens[:length],
            tokens[length : length + num_output],
            arrives[name],
            aborted=taken + 1 - arrives[name] if name == "b" and gives_up else None,
        )
    ends = {name: length + rounds for name, length in lengths.items()}
    pool = sum(-(-end // size) for end in ends.values())
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + pool,
        max(lengths.values()) + 3 * size,
        8 * size,
        max_num_seqs=4,
        async_scheduling=True,
        ranks=ranks,
        v2_model_runner=True,
    )
    return SchedulerHistory(deployment, requests)

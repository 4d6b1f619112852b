"""Scheduler histories under context parallelism: ranks share the tokens of a block or a chunk."""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind


def rank_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed: of several groups in two of three."""
    random = Random(f"hitproof ranks {seed}")
    number = int(str(seed).rpartition(":")[2])
    size = random.choice((2, 4))
    sizes = ((size,), (size, 2 * size), (size, size, 4 * size))[(number + 1) % 3]
    decode, prefill = ((2, 2), (2, 1), (1, 2), (4, 1))[number // 3 % 4]
    longest = random.randint(40, 90)
    length = longest - random.randint(8, 30)
    needed = sum(-(-longest // (each * decode)) for each in sizes)
    prompt = tuple(range(1, length + 1))
    fork = random.randint(1, length)
    return SchedulerHistory(
        Deployment(
            tuple(Group(GroupKind.FULL_ATTENTION, each) for each in sizes),
            2 + needed * random.choice((1, 2, 4)),
            longest,
            random.choice((16, 24, 100)),
            max_num_seqs=4,
            async_scheduling=random.random() < 0.3,
            decode_context_parallel_size=decode,
            prefill_context_parallel_size=prefill,
        ),
        {
            "a": Arrival(prompt, (901, 902, 903)),
            "b": Arrival((*prompt, 901, 902), (904,), after="a"),
            "c": Arrival((*prompt[:fork], *range(500, 508)), (905, 906), random.choice((0, 1, 3))),
            "d": Arrival(prompt, (907,), after="c"),
        },
    )

"""Scheduler histories with a KV connector that keeps in host memory what is computed.

Prompts share beginnings, and the pool on the device has room for little more than one request: the
ends of prefixes are evicted first, so that a hit goes on in host memory where that on the device
ends. There is room there for all, or for some. Groups have blocks of one size or of two.
"""

from random import Random

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_SIZE = 4
_FULL = Group(GroupKind.FULL_ATTENTION, _SIZE)
_LARGE = Group(GroupKind.FULL_ATTENTION, 2 * _SIZE)


def offload_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof offloads {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 5
    window = Group(GroupKind.SLIDING_WINDOW, _SIZE, window=random.randint(2, 3 * _SIZE))
    wide = Group(GroupKind.SLIDING_WINDOW, 2 * _SIZE, window=random.randint(2, 4 * _SIZE))
    groups = (
        (_FULL,),
        (_LARGE, window),
        (_FULL, wide),
        (_FULL, Group(GroupKind.MAMBA, _SIZE)),
        (_LARGE, _FULL, window),
    )[turn]
    longest = random.randint(8, 14) * _SIZE
    budget = random.choice((2, 4, 20)) * _SIZE
    one = sum(blocks_needed(group, longest, budget, 0) for group in groups)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcdefgh"[: random.randint(4, 8)]:
        num_output = random.randint(1, _SIZE)
        most = longest - num_output
        prompt: tuple[int, ...] = ()
        after = None
        if requests:
            *_, last = requests
            after = last if random.random() < 0.7 else random.choice((None, *requests))
            donor = requests[random.choice(list(requests)[:2])]
            known = donor.prompt + donor.output
            # The second takes the blocks of the first; then its beginning is used, then all.
            match len(requests) % 4 if random.random() < 0.85 else random.randrange(4):
                case 2:
                    prompt = known[: random.randint(1, max(len(known) // 2, 1))]
                case 3:
                    prompt = known[:most]
        least = max(len(prompt), _SIZE)
        length = random.choice((most, random.randint(least, most)))
        if prompt:
            length = min(least + random.randint(1, _SIZE), most)
        prompt += tuple(range(fresh, fresh + length - len(prompt)))
        fresh += length
        requests[name] = Arrival(
            prompt,
            tuple(range(fresh, fresh + num_output)),
            random.choice((0, 0, 1, 3)),
            after,
            aborted=random.randint(1, 8) if random.random() < 0.1 else None,
        )
        fresh += num_output
    room = random.choice((one, 4 * one, 8 * one))
    deployment = Deployment(
        groups,
        1 + one + random.choice((0, one // 4, one // 2, one // 2, 3 * one // 4)),
        longest,
        budget,
        max_num_seqs=random.choice((1, 2, 4)),
        async_scheduling=random.random() < 0.3,
        retention_interval=random.choice((None, "dense", "dense", "dense")),
        connector=Connector(
            offloads=2 + max(room, len(groups) + 2), delay=random.choice((0, 0, 1, 3))
        ),
    )
    return SchedulerHistory(deployment, requests)

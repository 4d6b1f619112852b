"""Scheduler histories of what is served beside plain text: LoRA adapters, and new weights.

Requests of several adapters share prompts, more adapters than a step may have. Of every second
history some requests arrive after a reset of the prefix cache, while others run, most with steps in
flight.
"""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind


def adapter_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof adapters {seed}")
    number = int(str(seed).rpartition(":")[2])
    size = random.choice((4, 8))
    groups = [Group(GroupKind.FULL_ATTENTION, size)]
    if random.random() < 0.4:
        window = random.randint(2, 3 * size)
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=window))
    most = random.choice((1, 1, 2))
    adapters = (*"xyz"[: most + 1], None)
    resets = number % 2 == 1
    prompts = [tuple(range(1, random.randint(3 * size, 5 * size)))]
    prompts.append((*prompts[0][: 2 * size], *range(200, 200 + 2 * size)))
    requests: dict[str, Arrival] = {}
    for place, name in enumerate("abcdef"):
        requests[name] = Arrival(
            random.choice(prompts),
            tuple(range(300 + 20 * place, 300 + 20 * place + random.randint(1, 6))),
            random.choice((0, 0, 1, 2)) if place < 4 else random.choice((0, 1)),
            after=None if place < 4 else "ab"[place - 4],
            lora_name=random.choice(adapters),
            after_reset=resets and place in (2, 3, 5),
        )
    # Two resets may come before a step that was planned ahead of both is taken up.
    ahead = random.random() < (0.7 if resets else 0.4)
    ranks = random.choice((1, 2)) if ahead and resets else 1
    deployment = Deployment(
        tuple(groups),
        100,
        5 * size + 8,
        random.choice((8, 3 * size, 8 * size)),
        max_num_seqs=random.choice((3, 6)),
        max_loras=most,
        async_scheduling=ahead,
        v2_model_runner=ahead and ranks > 1,
        ranks=ranks,
        policy=random.choice(("fcfs", "priority")),
    )
    return SchedulerHistory(deployment, requests)

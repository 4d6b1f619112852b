"""Scheduler histories in which the encoder's cache is reset while images are half computed.

Prompts have up to four images side by side, the same or others, which take several steps, so that
a step ends one and begins the next. Requests wait for room, are preempted, or give up.
"""

from random import Random

from hitproof.conformance.histories.schema import Image
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Encoder,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_PLACEHOLDER = 1


def encoder_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof encoder {seed}")
    size = random.choice((4, 8))
    budget = random.randint(4, size)
    lengths = {name: random.randint(budget // 2, 3 * budget) for name in ("cat", "dog", "cow")}
    by_priority = random.random() < 0.4
    requests: dict[str, Arrival] = {}
    for place, name in enumerate("abcd"[: random.randint(2, 4)]):
        prompt, images = list(range(10 * place, 10 * place + random.choice((0, 1, 3)))), []
        for image in random.choices(tuple(lengths), k=random.randint(2, 4)):
            images.append(Image(image, len(prompt), lengths[image]))
            prompt += [_PLACEHOLDER] * lengths[image]
            prompt += range(500, 500 + random.choice((0, 0, 1)))
        prompt.append(600 + place)
        output = tuple(range(100 + 50 * place, 100 + 50 * place + random.randint(1, size)))
        requests[name] = Arrival(
            tuple(prompt),
            output,
            random.choice((0, 0, 1, 3)),
            after=random.choice((None, None, *requests)),
            aborted=random.randint(2, 8) if random.random() < 0.2 else None,
            priority=4 - place if by_priority else 0,
            images=tuple(images),
        )
    longest = max(len(each.prompt) + len(each.output) for each in requests.values())
    one, largest = -(-longest // size), max(lengths.values())
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + one + (random.randint(0, one) if by_priority else 3 * one),
        longest,
        budget,
        max_num_seqs=random.choice((1, 2, 4)),
        async_scheduling=random.random() < 0.3,
        v2_model_runner=random.random() < 0.3,
        policy="priority" if by_priority else "fcfs",
        encoder=Encoder(
            largest + random.choice((0, largest)),
            largest + random.choice((0, largest, largest, 2 * largest)),
        ),
    )
    steps = range(1, 2 + sum(len(each.prompt) for each in requests.values()) // (2 * budget))
    resets = random.sample(steps, min(len(steps), random.randint(2, 5)))
    return SchedulerHistory(deployment, requests, encoder_resets=tuple(sorted(resets)))

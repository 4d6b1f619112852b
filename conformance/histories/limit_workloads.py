"""Scheduler histories at the limits of steps: budgets, thresholds, drafts, places and blocks.

Requests are few and short, and so are budgets: each step meets some limit. Two of three histories
have drafts; of every second one there is room for little more than one request, so that others are
preempted, and that by requests which run after them where it goes by priority. Every fifth has
recurrent states, with blocks that are larger than what a step computes. Some users give up, while
their request waits, runs or is in flight.
"""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.workloads import (
    DRAFT_HEADS,
    Arrival,
    Deployment,
    Method,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_DRAFTED: tuple[Method, ...] = ("draft_model", "draft_model", "eagle", "ngram")
_NAMES = "abcde"


def limit_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof limits {seed}")
    number = int(str(seed).rpartition(":")[2])
    size = random.choice((8, 16)) if number % 5 == 0 else random.choice((2, 4))
    drafted, crowded = number % 3 != 0, number % 2 == 0
    method = random.choice(_DRAFTED) if drafted else None
    drafts = random.randint(1, 3) if drafted else 0
    groups = [Group(GroupKind.FULL_ATTENTION, size, eagle=method in DRAFT_HEADS)]
    if random.random() < 0.3:
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 3 * size)))
    states = number % 5 == 0
    if states:
        groups = [groups[0], Group(GroupKind.MAMBA, size)]
    unit = size // 2 if states and random.random() < 0.5 else None
    longest = random.randint(5 * size, 9 * size)
    blocks = -(-(longest + drafts) // size) + 1
    needed = blocks + (2 + drafts if states else blocks * (len(groups) - 1))
    batched = random.randint(drafts + 4, max(20, size))
    planned = random.choice((None, None, random.randint(drafts + 2, batched)))
    threshold = random.choice((0, 1, 2, size + 1))
    in_turn = random.random() < 0.7
    deployment = Deployment(
        tuple(groups),
        1 + needed + (random.randint(0, min(size, 5)) if crowded else 4 * needed),
        longest,
        batched,
        max_num_seqs=random.choice((2, 3, 4)),
        prefix_match_unit=unit,
        speculative_method=method,
        num_speculative_tokens=drafts,
        async_scheduling=not in_turn,
        v2_model_runner=random.random() < 0.7,
        long_prefill_token_threshold=threshold,
        long_prefill_token_threshold_adaptive=bool(threshold) and random.random() < 0.5,
        max_num_scheduled_tokens=planned,
        policy="priority" if random.random() < 0.5 else "fcfs",
    )
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in _NAMES[: random.randint(2, 5)]:
        num_output = random.choice((1, 2, 3, random.randint(1, 2 * size)))
        room = longest - num_output
        length = random.choice((room, random.randint(1, size), random.randint(1, room)))
        prompt, output = _tokens(fresh, length), _tokens(fresh + length, num_output)
        fresh += length + num_output
        requests[name] = Arrival(
            prompt,
            output,
            random.choice((0, 0, 1, 2, 4)),
            accepted=tuple(random.randint(0, drafts) for _ in range(2)) if drafts else (),
            aborted=random.randint(1, 12) if random.random() < 0.1 else None,
            priority=max(0, 2 - len(requests)) if deployment.policy == "priority" else 0,
        )
    last = list(requests)[-1]
    if random.random() < 0.3:
        room = longest - len(requests[last].output)
        requests[last] = replace(requests[last], prompt=requests["a"].prompt[:room])
    return SchedulerHistory(deployment, requests)


def _tokens(first: int, number: int) -> tuple[int, ...]:
    return tuple(range(first, first + number))

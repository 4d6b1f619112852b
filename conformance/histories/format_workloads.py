"""Scheduler histories of groups whose pages have several formats, which share blocks.

Precisions differ, or recurrent states are beside attention. There is room for little more than one
request, so that blocks go from group to group, and prompts end inside blocks. In turn: two
precisions; recurrent states; recurrent states beside two precisions; one precision after all.
"""

from random import Random
from typing import Literal

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Method,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_PRECISIONS: tuple[Literal["float32", "fp8"], ...] = ("float32", "fp8")


def format_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof formats {seed}")
    turn, size = int(str(seed).rpartition(":")[2]) % 4, random.choice((4, 8))
    method: Method | None = random.choice((None, None, "ngram", "mtp"))
    drafts = random.randint(1, 2) if method else 0
    full = Group(GroupKind.FULL_ATTENTION, size, eagle=method == "mtp")
    window = Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 2 * size))
    state = Group(GroupKind.MAMBA, size)
    groups = {0: (full, window), 1: (full, state), 2: (full, window, state)}.get(
        turn, (full, window)
    )
    first = random.choice(_PRECISIONS)
    other = first if turn == 3 else _PRECISIONS[first == "float32"]
    longest = 5 * size + drafts
    budget = random.choice((size + 1, 2 * size, longest)) + drafts + 2
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    return SchedulerHistory(
        Deployment(
            groups,
            2 + one + random.randint(0, one // 2),
            longest,
            budget,
            max_num_seqs=4,
            speculative_method=method,
            num_speculative_tokens=drafts,
            async_scheduling=random.random() < 0.5,
            v2_model_runner=random.random() < 0.3,
            precisions=() if turn == 1 else (first, other, first)[: len(groups)],
        ),
        _requests(random, size, drafts),
    )


def _requests(random: Random, size: int, drafts: int) -> dict[str, Arrival]:
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcde"[: random.randint(3, 5)]:
        length, number = random.randint(1, 3 * size), random.randint(1, 2 * size)
        tokens = tuple(range(fresh, fresh + length + number))
        fresh += len(tokens)
        before = random.choice(list(requests.values())) if requests else None
        prompt = tokens[:length]
        if before is not None and random.random() < 0.3:
            prompt = (before.prompt + tokens)[: 3 * size]
        requests[name] = Arrival(
            prompt,
            tokens[length:],
            arrives=random.choice((0, 1, 3)) + 2 * len(requests),
            accepted=tuple(random.randint(0, drafts) for _ in range(2)) if drafts else (),
        )
    return requests

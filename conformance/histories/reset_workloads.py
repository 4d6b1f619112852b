"""Scheduler histories in which the prefix cache is reset while blocks are held, and while none are.

Resets come in all combinations: what runs starts again or not, and a KV connector forgets what it
has or not, or answers that it could not. Requests of one prompt come before and after them. In
turn: a connector loads and sends; it does so with steps planned ahead; it keeps what is computed
here in host memory; and there is none.
"""

from random import Random
from typing import Any

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Reset,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_SIZE = 4
_LOADS, _AHEAD, _OFFLOADS, _NONE = range(4)


def reset_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof resets {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 4
    groups = [Group(GroupKind.FULL_ATTENTION, _SIZE)]
    if random.random() < 0.3:
        groups.append(Group(GroupKind.SLIDING_WINDOW, _SIZE, window=random.randint(2, 3 * _SIZE)))
    longest, budget = random.randint(6, 9) * _SIZE, random.choice((2, 3, 10)) * _SIZE
    one = sum(blocks_needed(group, longest, budget, 0) for group in groups)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcdefg"[: random.randint(4, 7)]:
        num_output = random.randint(1, 2 * _SIZE)
        length = random.randint(2 * _SIZE, longest - num_output)
        prompt = tuple(range(fresh, fresh + length))
        fresh += length
        if requests and random.random() < 0.75:
            prompt = (requests[random.choice(list(requests))].prompt + prompt)[:length]
        transfers = _transfers(random, length) if turn in (_LOADS, _AHEAD) else {}
        requests[name] = Arrival(
            prompt,
            tuple(range(fresh, fresh + num_output)),
            random.randint(0, 8),
            random.choice((None, None, *requests)),
            aborted=random.randint(1, 8) if random.random() < 0.1 else None,
            **transfers,
        )
        fresh += num_output
    connector = None
    if turn == _OFFLOADS:
        connector = Connector(offloads=2 + 6 * one, delay=random.choice((0, 0, 1, 3)))
    elif turn != _NONE:
        connector = Connector()
    deployment = Deployment(
        tuple(groups),
        1 + one + random.choice((0, one // 2, 4 * one)),
        longest,
        budget,
        max_num_seqs=random.choice((1, 2, 4)),
        async_scheduling=turn == _AHEAD or random.random() < 0.2,
        retention_interval="dense" if turn == _OFFLOADS else None,
        connector=connector,
    )
    resets = [
        Reset(
            at,
            reset_running_requests=random.random() < 0.35,
            reset_connector=connector is not None and random.random() < 0.7,
            connector_refuses=turn in (_LOADS, _AHEAD) and random.random() < 0.15,
        )
        for at in sorted(random.sample(range(1, 24), random.randint(2, 5)))
    ]
    return SchedulerHistory(deployment, requests, resets=tuple(resets))


def _transfers(random: Random, length: int) -> dict[str, Any]:
    """What a connector does for a request."""
    made: dict[str, Any] = {}
    if random.random() < 0.4:
        made["send_steps"] = random.randint(0, 6)
    if random.random() < 0.7:
        made["loads"] = random.choice((length, random.randint(1, length // _SIZE) * _SIZE))
        made["load_steps"] = random.choice((None, 0, 2, 4))
    return made

"""Scheduler histories with a KV connector, which loads prefixes and sends what was computed.

Loads are part of a step, or take some while the request waits; they fail in blocks or as a whole;
users give up meanwhile, and requests with the same prompt come at all times. In turn: there is room
for all, and parts of prompts are computed in turns; there is room for little more than one request;
steps are planned ahead; there are groups with windows, or with recurrent states; several requests
wait for parts of their prompts at a time, where there is little room, and what fails is reported
early; and the engine is paused while they do.
"""

from random import Random
from typing import Any

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Pause,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_SIZE = 4
_ROOMY, _NARROW, _AHEAD, _GROUPS, _TIGHT, _PAUSED = range(6)


def connector_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof connector {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 6
    drafts = random.choice((0, 0, 1, 3)) if turn in (_NARROW, _AHEAD) else 0
    groups = [Group(GroupKind.FULL_ATTENTION, _SIZE)]
    if turn == _GROUPS:
        window = Group(GroupKind.SLIDING_WINDOW, _SIZE, window=random.randint(2, 3 * _SIZE))
        groups.append(random.choice((window, window, Group(GroupKind.MAMBA, _SIZE))))
    longest = random.randint(5, 9) * _SIZE + drafts
    budget = random.choice((4, 10) if turn == _ROOMY else (2, 3, 4, 10)) * _SIZE + drafts
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    room = random.randint(0, one // 2 + 1) if turn in (_NARROW, _AHEAD, _TIGHT) else 3 * one
    if turn == _PAUSED:
        room = random.choice((one // 2, 12 * one))
    waits = turn in (_TIGHT, _PAUSED)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcdefg"[: random.randint(3, 7)]:
        num_output = random.randint(1, _SIZE)
        most = longest - num_output - drafts
        length = random.randint(_SIZE + 1, most)
        prompt = tuple(range(fresh, fresh + length))
        after = None
        if requests and random.random() < 0.7:
            donor = random.choice(("a", *requests))
            after = random.choice((None, None, donor))
            known = requests[donor].prompt + requests[donor].output
            prompt = (known[: random.choice((most, random.randint(1, most)))] + prompt)[:length]
        output = tuple(range(fresh + length, fresh + length + num_output))
        fresh += length + num_output
        transfers = _transfers(random, length, alone=len(groups) == 1)
        if waits and random.random() < 0.8:
            transfers = _waiting(random, length)
        if turn == _ROOMY and not requests:
            part = random.randrange(min(2, length // _SIZE))
            transfers |= {"loads": length, "load_steps": None, "invalid_blocks": (part,)}
        requests[name] = Arrival(
            prompt,
            output,
            random.choice((0, 0, 0, 1, 2) if waits else (0, 0, 1, 1, 2, 4)),
            after,
            accepted=(random.randint(0, drafts),) if drafts else (),
            aborted=random.randint(1, 8) if random.random() < 0.2 else None,
            priority=random.randint(0, 1),
            **transfers,
        )
    deployment = Deployment(
        tuple(groups),
        1 + one + room,
        longest,
        budget,
        max_num_seqs=random.choice((2, 4, 8)),
        speculative_method=random.choice(("ngram", "eagle")) if drafts else None,
        num_speculative_tokens=drafts,
        async_scheduling=turn == _AHEAD,
        long_prefill_token_threshold=random.choice((_SIZE, 2 * _SIZE)) if turn == _ROOMY else 0,
        policy=random.choice(("fcfs", "fcfs", "priority")),
        connector=Connector(random.choice(("fail", "recompute"))),
    )
    pauses = []
    if turn == _PAUSED:
        at = random.randint(1, 3)
        pauses.append(Pause(at, random.randint(3, 8), random.random() < 0.75))
        if random.random() < 0.3:
            pauses.append(Pause(at + 10, random.randint(1, 6), random.random() < 0.75))
    return SchedulerHistory(deployment, requests, tuple(pauses))


def _waiting(random: Random, length: int) -> dict[str, Any]:
    """What a connector does for a request that waits for a part of its prompt."""
    blocks = length // _SIZE
    steps = random.choice((0, 1, 2, 4))
    has = random.choice((length, random.randint(1, blocks) * _SIZE, _SIZE))
    made: dict[str, Any] = {"loads": has, "load_steps": steps}
    if random.random() < 0.3:
        made["invalid_blocks"] = (random.choice((0, 0, random.randrange(blocks))),)
        made["invalid_steps"] = random.choice((None, 0, random.randint(0, steps)))
    return made


def _transfers(random: Random, length: int, alone: bool) -> dict[str, Any]:
    """What a connector does for a request; ``alone`` is whether there is one group."""
    made: dict[str, Any] = {}
    if random.random() < 0.3:
        made["send_steps"] = random.randint(0, 5)
    if random.random() < 0.35:
        return made
    blocks = length // _SIZE
    has = random.choice((length, blocks * _SIZE, random.randint(1, blocks) * _SIZE))
    made |= {"loads": has, "load_steps": random.choice((None, None, 0, 1, 3))}
    if random.random() < 0.5:
        if alone:
            some = random.sample(range(blocks), random.randint(1, min(2, blocks)))
            made["invalid_blocks"] = tuple(sorted(some))
        elif made["load_steps"] is not None:
            made["load_fails"] = True
    return made

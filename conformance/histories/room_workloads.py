"""Scheduler histories at the end of the room that there is: the longest requests, the last blocks.

In turn: requests ask for more tokens than the longest may have, with and without drafts; the pool
has blocks for one request of that length, or one too few, by an override where there is memory for
more; of two ranks the one that has no layer with a window has the least memory; several ranks are
scheduled ahead, and decodes are preempted for want of blocks; and more requests wait than can run
while the engine is paused until those that run have ended.
"""

from random import Random

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    DRAFT_HEADS,
    Arrival,
    Deployment,
    Layers,
    Method,
    Pause,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_METHODS: tuple[Method | None, ...] = (None, "eagle", "ngram", "draft_model")
_LENGTH = 160
"""The longest request beside layers, in tokens."""
_BLOCK = 16


def room_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof room {seed}")
    turns = (_asking_for_more, _overridden, _on_ranks, _ahead, _queued)
    return turns[int(str(seed).rpartition(":")[2]) % len(turns)](random)


def _asking_for_more(random: Random) -> SchedulerHistory:
    size, method = random.choice((4, 8)), random.choice(_METHODS)
    drafts = random.randint(1, 3) if method else 0
    groups = [Group(GroupKind.FULL_ATTENTION, size, eagle=method in DRAFT_HEADS)]
    if random.random() < 0.5:
        window = Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 3 * size))
        groups.append(random.choice((window, Group(GroupKind.MAMBA, size))))
    longest = random.randint(3, 8) * size + drafts
    budget = 2 * size + drafts + 2
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    requests: dict[str, Arrival] = {}
    for place, name in enumerate("abc"[: random.randint(1, 3)]):
        num_output = random.randint(1, 2 * size)
        tokens = tuple(range(1000 * place, 1000 * place + longest))
        requests[name] = Arrival(
            tokens[:-num_output],
            tokens[-num_output:],
            random.choice((0, 0, 1, 3)),
            accepted=(random.randint(0, drafts),) if drafts else (),
            min_tokens=num_output + random.choice((-1, 0, 1, size)),
        )
    deployment = Deployment(
        tuple(groups),
        1 + random.choice((1, 2, 3)) * one,
        longest,
        budget,
        max_num_seqs=4,
        speculative_method=method,
        num_speculative_tokens=drafts,
        async_scheduling=random.random() < 0.5,
    )
    return SchedulerHistory(deployment, requests)


def _overridden(random: Random) -> SchedulerHistory:
    blocks = _LENGTH // _BLOCK + random.choice((0, 0, 1))
    return _served(
        random,
        Deployment(
            (Group(GroupKind.FULL_ATTENTION, _BLOCK),),
            4 * blocks,
            _LENGTH,
            random.choice((48, 64, 100)),
            async_scheduling=random.random() < 0.5,
            layers=(Layers(random.randint(1, 6)),),
            num_gpu_blocks_override=blocks,
        ),
    )


def _on_ranks(random: Random) -> SchedulerHistory:
    full = Group(GroupKind.FULL_ATTENTION, _BLOCK)
    window = Group(GroupKind.SLIDING_WINDOW, _BLOCK, window=random.randint(17, 60))
    blocks = _LENGTH // _BLOCK + random.randint(1, 8)
    return _served(
        random,
        Deployment(
            (full, window),
            blocks,
            _LENGTH,
            random.choice((48, 64, 100)),
            layers=(Layers(2), Layers(1)),
            ranks=2,
            rank_blocks=(4 * blocks, blocks),
        ),
    )


def _ahead(random: Random) -> SchedulerHistory:
    """Decodes that are preempted while steps of theirs are in flight, and soon have room again."""
    size, num_requests = 2, random.randint(6, 8)
    longest = 6 * size
    requests = {}
    for place, name in enumerate("abcdefgh"[:num_requests]):
        tokens = tuple(range(1000 * place, 1000 * place + longest))
        num_prompt = random.randint(1, 2 * size)
        num_output = random.randint(1, 3 * size)
        requests[name] = Arrival(
            tokens[:num_prompt],
            tokens[num_prompt : num_prompt + num_output],
            random.randint(0, 6),
            priority=random.choice((0, 0, 1)),
        )
    ranks = random.choice((2, 2, 3, 4))
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + 6 + random.randint(0, 6),
        longest,
        random.choice((4 * size, 8 * size)),
        max_num_seqs=num_requests,
        policy=random.choice(("fcfs", "priority")),
        async_scheduling=True,
        ranks=ranks,
        v2_model_runner=True,
    )
    return SchedulerHistory(deployment, requests)


def _queued(random: Random) -> SchedulerHistory:
    """Requests that wait for their turn in pauses that last."""
    size, num_running = 4, random.randint(1, 2)
    requests = {}
    for place, name in enumerate("abcd"):
        tokens = tuple(range(1000 * place, 1000 * place + 6 * size))
        num_prompt = random.randint(size, 4 * size)
        num_output = random.randint(1, size)
        output = tokens[num_prompt : num_prompt + num_output]
        requests[name] = Arrival(tokens[:num_prompt], output, random.choice((0, 0, 1, 2)))
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + 6 * random.randint(1, 3),
        6 * size,
        3 * size,
        max_num_seqs=num_running,
        async_scheduling=random.random() < 0.5,
    )
    starts = random.randint(1, 3)
    pauses = (Pause(starts, random.randint(12, 20), finishes_running=random.random() < 0.7),)
    return SchedulerHistory(deployment, requests, pauses=pauses)


def _served(random: Random, deployment: Deployment) -> SchedulerHistory:
    """One request of the greatest length, and its resend."""
    num_output = random.randint(1, 20)
    tokens = tuple(range(1, _LENGTH + 1))
    request = Arrival(tokens[:-num_output], tokens[-num_output:])
    resend = Arrival(request.prompt, (901,), after="a")
    return SchedulerHistory(deployment, {"a": request, "b": resend})

"""Scheduler histories of prompts with images, which an encoder computes before the model can.

Budgets and caches of the encoder have room for one or two images. Prompts have up to three, at the
edges of blocks and elsewhere, and share them: the same image in the same place, another one there,
and one in several places. Users give up while an image is half computed, and some requests take
nothing from the cache. In turn: text models with windows; drafts that look ahead; steps planned
ahead; preemption by priority; recurrent states; and images that one step computes whole.
"""

from random import Random

from hitproof.conformance.histories.schema import Image
from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Encoder,
    Method,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_PLAIN, _DRAFTS, _AHEAD, _PRIORITY, _STATES, _WHOLE = range(6)
_METHODS: tuple[Method, ...] = ("eagle", "mtp", "ngram")
_PLACEHOLDER = 1


def image_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof images {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 6
    size = random.choice((4, 8))
    drafting = turn == _DRAFTS or (turn in (_AHEAD, _WHOLE) and random.random() < 0.4)
    method = random.choice(_METHODS) if drafting else None
    drafts = random.randint(1, 3) if drafting else 0
    groups = [Group(GroupKind.FULL_ATTENTION, size, eagle=method in ("eagle", "mtp"))]
    if turn == _STATES:
        groups.append(Group(GroupKind.MAMBA, size))
    elif random.random() < 0.3:
        window = random.randint(2, 3 * size)
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=window))
    lengths = {name: random.randint(1, 2 * size) for name in ("cat", "dog", "cow", "map")}
    requests = _requests(random, size, lengths, by_priority=turn == _PRIORITY, drafts=drafts)
    longest = max(len(each.prompt) + len(each.output) for each in requests.values()) + drafts + 2
    largest = max(lengths.values())
    budget = random.choice((size + 1, 2 * size, 3 * size, 2 * longest)) + drafts + 2
    if turn == _WHOLE:
        budget = max(budget, largest + drafts + 2)
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    room = random.randint(0, one // 2) if turn == _PRIORITY else random.choice((0, one, 3 * one))
    deployment = Deployment(
        tuple(groups),
        1 + one + room,
        longest,
        budget,
        max_num_seqs=random.choice((2, 4)),
        speculative_method=method,
        num_speculative_tokens=drafts,
        lookahead_hashes=random.random() < 0.6,
        async_scheduling=turn == _AHEAD or random.random() < 0.15,
        v2_model_runner=random.random() < 0.3,
        policy="priority" if turn == _PRIORITY else "fcfs",
        encoder=Encoder(
            largest + random.choice((0, 0, 1, largest, 100)),
            largest + random.choice((0, 0, 1, largest, 100)),
            whole_images=turn == _WHOLE,
        ),
    )
    return SchedulerHistory(deployment, requests)


def _requests(
    random: Random, size: int, lengths: dict[str, int], *, by_priority: bool, drafts: int
) -> dict[str, Arrival]:
    """Prompts of text and images in turn, each of which shares some of its start with others."""
    text = tuple(range(2, 2 + 4 * size))
    parts = [random.choice((0, 1, size - 1, size, size + 2)) for _ in range(3)]
    requests: dict[str, Arrival] = {}
    for place, name in enumerate("abcde"[: random.randint(2, 5)]):
        prompt, images = list(text[: parts[0]]), []
        for part in parts[1 : 1 + random.randint(0 if place else 1, 2)]:
            image = random.choice(("cat", "cat", "dog", "cow", "map"))
            images.append(Image(image, len(prompt), lengths[image]))
            prompt += [_PLACEHOLDER] * lengths[image] + list(text[:part])
        prompt += text[: random.randint(1, 2 * size)]
        output = range(100 + 50 * place, 100 + 50 * place + random.randint(1, 2 * size))
        after = random.choice((None, None, None, *requests))
        requests[name] = Arrival(
            tuple(prompt),
            tuple(output),
            random.choice((0, 0, 1, 2, 4)),
            after,
            accepted=(random.randint(0, drafts), random.randint(0, drafts)) if drafts else (),
            aborted=random.randint(1, 4) if random.random() < 0.15 else None,
            # Who runs first is often who is preempted.
            priority=random.choice((0, 5 - place, 5 - place)) if by_priority else 0,
            images=tuple(images),
            skip_reading_prefix_cache=random.random() < 0.1,
        )
    return requests

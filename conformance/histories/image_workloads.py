"""Scheduler histories of prompts with images, which an encoder computes before the model can.

Budgets and caches of the encoder have room for one or two images. Prompts have up to three, at the
edges of blocks and elsewhere, and share them: the same image in the same place, another one there,
and one in several places. Users give up while an image is half computed, and some requests take
nothing from the cache. In turn: text models with windows; drafts that look ahead; steps planned
ahead; preemption by priority; recurrent states; images that one step computes whole; several MTP
modules; prompts that begin with the same image and wait for blocks; and whole images that barely
fit into a step, so that whoever decodes keeps them out.
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

_PLAIN, _DRAFTS, _AHEAD, _PRIORITY, _STATES, _WHOLE, _MODULES, _SCARCE, _TIGHT = range(9)
_METHODS: tuple[Method, ...] = ("eagle", "mtp", "ngram")
_PLACEHOLDER = 1
_SMALL = 3


def image_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof images {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 9
    size, whole = random.choice((4, 8)), turn in (_WHOLE, _TIGHT)
    drafting = turn in (_DRAFTS, _MODULES)
    drafting = drafting or (turn in (_AHEAD, _WHOLE, _TIGHT) and random.random() < 0.4)
    method = random.choice(_METHODS) if drafting else None
    drafts = random.randint(1, 3) if drafting else 0
    if turn == _MODULES:
        method, drafts, whole = "mtp", random.randint(2, 3), random.random() < 0.3
    groups = [Group(GroupKind.FULL_ATTENTION, size, eagle=method in ("eagle", "mtp"))]
    if turn == _STATES:
        groups.append(Group(GroupKind.MAMBA, size))
    elif random.random() < 0.3:
        window = random.randint(2, 3 * size)
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=window))
    # Small ones, so that several are near the end of a chunk, and such as fill a step.
    least, most = {_MODULES: (1, _SMALL), _TIGHT: (size, size)}.get(turn, (1, 2 * size))
    lengths = {name: random.randint(least, most) for name in ("cat", "dog", "cow", "map")}
    if turn == _SCARCE:
        requests = _sharing(random, size, lengths)
    else:
        requests = _requests(random, size, lengths, by_priority=turn == _PRIORITY, drafts=drafts)
    longest = max(len(each.prompt) + len(each.output) for each in requests.values()) + drafts + 2
    largest = max(lengths.values())
    budget = random.choice((size + 1, 2 * size, 3 * size, 2 * longest)) + drafts + 2
    if turn == _MODULES:
        budget = random.randint(size, size + 4) + drafts
    if whole:
        budget = max(budget, largest + drafts + 2)
    if turn == _TIGHT:
        budget = largest + random.randint(0, 2) + (drafts + 1 if drafts else 0)
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    room = random.choice((0, one, 3 * one))
    if turn in (_PRIORITY, _SCARCE):
        room = random.randint(0, one // (2 if turn == _PRIORITY else 4))
    spare = (0, 0, 1, largest, 100)
    kept = {_SCARCE: (0, 0, 1), _MODULES: (1, 2 * largest, 100, 100)}.get(turn, spare)
    deployment = Deployment(
        tuple(groups),
        1 + one + room,
        longest,
        budget,
        max_num_seqs=random.choice((2, 4)),
        speculative_method=method,
        num_speculative_tokens=drafts,
        num_mtp_modules=drafts if turn == _MODULES else 1,
        lookahead_hashes=random.random() < 0.6,
        async_scheduling=turn == _AHEAD or random.random() < 0.15,
        v2_model_runner=random.random() < 0.3,
        policy="priority" if turn == _PRIORITY else "fcfs",
        encoder=Encoder(
            largest + random.choice(spare[3:] if turn == _MODULES else spare),
            largest + random.choice(kept),
            whole_images=whole,
        ),
    )
    return SchedulerHistory(deployment, requests)


def _requests(
    random: Random, size: int, lengths: dict[str, int], *, by_priority: bool, drafts: int
) -> dict[str, Arrival]:
    """Prompts of text and images in turn, each of which shares some of its start with others."""
    text = tuple(range(2, 2 + 4 * size))
    small = max(lengths.values()) <= _SMALL
    gaps = (0, 1, 2, size - 1, size) if small else (0, 1, size - 1, size, size + 2)
    parts = [random.choice(gaps) for _ in range(5 if small else 3)]
    requests: dict[str, Arrival] = {}
    for place, name in enumerate("abcde"[: random.randint(2, 5)]):
        prompt, images = list(text[: parts[0]]), []
        fewest = 2 if small else int(not place)
        for part in parts[1 : 1 + random.randint(fewest, len(parts) - 1)]:
            image = random.choice(("cat", "dog" if small else "cat", "dog", "cow", "map"))
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


def _sharing(random: Random, size: int, lengths: dict[str, int]) -> dict[str, Arrival]:
    """Prompts of about one length that begin with one image and go on with others.

    They come while the first runs, which is between its images.
    """
    requests: dict[str, Arrival] = {}
    longest = sum(lengths.values()) + random.randint(2 * size, 4 * size)
    for place, name in enumerate("abcd"[: random.randint(2, 4)]):
        names = ("cat", *random.sample(("dog", "cow", "map"), random.randint(0 if place else 1, 2)))
        # With the same start they would hit, and need no image.
        prompt, images = [2 + place] * random.choice((1, size)), []
        for image in names:
            images.append(Image(image, len(prompt), lengths[image]))
            prompt += [_PLACEHOLDER] * lengths[image]
            prompt += range(
                10 + 2 * size * place, 10 + 2 * size * place + random.choice((0, 1, size))
            )
        length = max(len(prompt) + 1, longest - random.choice((0, 0, 1, size)))
        prompt += range(500, 500 + length - len(prompt))
        output = tuple(range(100 + 50 * place, 100 + 50 * place + random.randint(1, size)))
        arrives = random.choice((0, 1, 2, 3)) if place else 0
        requests[name] = Arrival(tuple(prompt), output, arrives, images=tuple(images))
    return requests

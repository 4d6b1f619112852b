"""Scheduler histories with images and an encoder cache connector, beside a KV connector.

The KV connector loads prompts with images in them, and sends what was computed: blocks that are
sent are held whatever the other one says. Others come in meanwhile, and there is little room, so
that blocks which are free too early are taken. In turn: text and images with plain attention; with
a window; and with steps that are planned ahead.
"""

from random import Random
from typing import Any

from hitproof.conformance.histories.schema import Image
from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Encoder,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_SIZE = 4
_PLAIN, _WINDOW, _AHEAD = range(3)
_PLACEHOLDER = 1


def ec_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof encoder caches {seed}")
    turn = int(str(seed).rpartition(":")[2]) % 3
    groups = [Group(GroupKind.FULL_ATTENTION, _SIZE)]
    if turn == _WINDOW:
        groups.append(Group(GroupKind.SLIDING_WINDOW, _SIZE, window=random.randint(2, 3 * _SIZE)))
    lengths = {name: random.randint(1, 2 * _SIZE) for name in ("cat", "dog", "cow")}
    requests: dict[str, Arrival] = {}
    fresh = 100
    for name in "abcdef"[: random.randint(3, 6)]:
        prompt = list(range(2, 2 + random.randint(0, _SIZE)))
        images = []
        for image in random.sample(sorted(lengths), random.randint(0, 2)):
            images.append(Image(image, len(prompt), lengths[image]))
            prompt += [_PLACEHOLDER] * lengths[image] + [7] * random.randint(0, _SIZE)
        prompt += range(fresh, fresh + random.randint(1, _SIZE + 2))
        output = tuple(range(fresh + 20, fresh + 20 + random.randint(1, _SIZE)))
        fresh += 50
        requests[name] = Arrival(
            tuple(prompt),
            output,
            random.choice((0, 0, 1, 2, 4)),
            random.choice((None, None, *requests)),
            aborted=random.randint(1, 6) if random.random() < 0.1 else None,
            images=tuple(images),
            **_transfers(random, len(prompt), whole=turn != _WINDOW),
        )
    longest = max(len(each.prompt) + len(each.output) for each in requests.values())
    budget = random.choice((2, 4, 10)) * _SIZE
    one = sum(blocks_needed(group, longest, budget, 0) for group in groups)
    largest = max(lengths.values())
    deployment = Deployment(
        tuple(groups),
        1 + one + random.choice((one // 2, one)),
        longest,
        budget,
        max_num_seqs=random.choice((2, 4)),
        async_scheduling=turn == _AHEAD,
        connector=Connector(),
        encoder=Encoder(
            largest + random.choice((0, 4, 100)),
            largest + random.choice((0, 4, 100)),
            ec_connector=random.random() < 0.85,
        ),
    )
    return SchedulerHistory(deployment, requests)


def _transfers(random: Random, length: int, *, whole: bool) -> dict[str, Any]:
    """What a KV connector does for a request, of which it may load the ``whole`` prompt."""
    made: dict[str, Any] = {}
    if random.random() < 0.7:
        made["send_steps"] = random.randint(1, 6)
    if random.random() < 0.35:
        blocks = (length - 1) // _SIZE
        part = random.randint(min(1, blocks), blocks) * _SIZE
        made["loads"] = random.choice((length, part)) if whole else part
        made["load_steps"] = random.choice((None, 0, 1, 3))
    return made

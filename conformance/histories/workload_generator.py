"""Generated scheduler histories: seeded, small, and steered at where a scheduler's parts meet.

Coverage: each layout of `_LAYOUTS` in rotation, with every way to draft, with and without
asynchronous scheduling. Budgets lie around block edges, pools around what one request needs, and
prompts around the ends of blocks. Requests share prefixes: there are resends, next turns and
siblings, at once and later; some are aborted, some take nothing from the cache, and some end before
all that would be sampled. Some have images, and prompts of some come as embeddings.
"""

import math
from dataclasses import replace
from random import Random

from hitproof.conformance.histories.schema import Embeddings, Image
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Encoder,
    Method,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.retention import SPARSE_KINDS

_NAMES = "abcdefgh"
_SAID = ("prompt", "output", "past_end", "stop")
"""What a request and its answer consist of."""


def workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof scheduler {seed}")
    number = int(str(seed).rpartition(":")[2])
    deployment = _deployment(random, number)
    requests = _skipping(seed, _requests(random, deployment))
    if number % 4 == 2:
        requests = with_ends(Random(f"hitproof ends {seed}"), requests)
    return _with_embeddings(seed, _with_images(seed, SchedulerHistory(deployment, requests)))


def _skipping(seed: int | str, requests: dict[str, Arrival]) -> dict[str, Arrival]:
    """The requests, of which in some histories one takes nothing from the cache."""
    random = Random(f"hitproof skipping {seed}")
    name = random.choice(list(requests))
    skips = random.random() < 0.1
    return requests | {name: replace(requests[name], skip_reading_prefix_cache=skips)}


def with_ends(random: Random, requests: dict[str, Arrival]) -> dict[str, Arrival]:
    """The requests, of which some end before all that the model would sample, most by a stop token.

    What comes after still follows what the user got, so that later requests may go on with it.
    """
    made = dict(requests)
    for name, each in requests.items():
        if len(each.output) > 1 and random.random() < 0.7:
            kept = random.randint(1, len(each.output) - 1)
            kept = random.choice((kept, max(kept, len(each.output) - 3)))
            stop = random.random() < 0.8
            made[name] = replace(
                each, output=each.output[:kept], past_end=each.output[kept:], stop=stop
            )
    return made


def _with_images(seed: int | str, history: SchedulerHistory) -> SchedulerHistory:
    """The history; some have images, one or another in each of two places of the prompts."""
    random = Random(f"hitproof images of schedulers {seed}")
    if random.random() > 0.12:
        return history
    deployment = history.deployment
    lengths = random.randint(1, 12), random.randint(1, 12)
    first = random.randint(0, deployment.max_model_len // 3)
    offsets = first, first + lengths[0] + random.choice((0, 1, random.randint(0, 20)))
    requests = {}
    for name, request in history.requests.items():
        images = tuple(
            Image(f"{random.choice(('cat', 'dog'))} {place}", offset, length)
            for place, (offset, length) in enumerate(zip(offsets, lengths, strict=True))
            if offset + length <= len(request.prompt) and random.random() < 0.8
        )
        requests[name] = replace(request, images=images)
    longest = max(lengths)
    parts = deployment.has_mamba or longest > deployment.max_num_batched_tokens
    encoder = Encoder(
        longest + random.choice((0, 0, 3, sum(lengths))),
        longest + random.choice((0, 0, 3, 2 * sum(lengths))),
        whole_images=not parts and random.random() < 0.2,
    )
    return replace(history, deployment=replace(deployment, encoder=encoder), requests=requests)


def _with_embeddings(seed: int | str, history: SchedulerHistory) -> SchedulerHistory:
    """The history; in some, prompts come as embeddings in whole, or for some of their tokens.

    Those of one token id are equal, but for an odd one. Some requests have token ids only.
    """
    random = Random(f"hitproof embeddings of schedulers {seed}")
    if history.deployment.encoder is not None or random.random() > 0.15:
        return history
    whole, (first, *others) = random.random() < 0.4, history.requests
    odd = random.choice(others)
    requests = {}
    for name, request in history.requests.items():
        if name == odd and random.random() < 0.6:  # else like the first, and its answer is
            same = {part: getattr(history.requests[first], part) for part in _SAID}
            request = replace(request, **same)
        prompt = request.prompt
        if name not in (first, odd) and random.random() < 0.2:
            requests[name] = request
            continue
        rows = {place: token for place, token in enumerate(prompt) if whole or token % 5 < 2}
        if name == odd and rows:
            place = random.choice(list(rows)[-random.choice((2, len(rows))) :])
            if whole or random.random() < 0.5:
                rows[place] += 1_000_000
            else:
                del rows[place]  # of its token id
        given = tuple(Embeddings(place, (value,)) for place, value in rows.items())
        ids = tuple(0 if place in rows else token for place, token in enumerate(prompt))
        requests[name] = replace(request, prompt=ids, embeddings=given)
    return replace(history, requests=requests)


def _full(size: int, _random: Random) -> Group:
    return Group(GroupKind.FULL_ATTENTION, size)


def _sliding(size: int, random: Random) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 4 * size + 1))


def _chunked(size: int, random: Random) -> Group:
    return Group(GroupKind.CHUNKED_LOCAL, size, chunk=size * random.randint(1, 4))


def _mamba(size: int, _random: Random) -> Group:
    return Group(GroupKind.MAMBA, size)


_LAYOUTS = (
    (_full,),
    (_full, _sliding),
    (_full, _mamba),
    (_sliding,),
    (_full, _sliding, _mamba),
    (_full, _chunked),
    (_full, _mamba),
    (_full, _sliding, _sliding),
)

_METHODS: tuple[Method | None, ...] = (
    None,
    None,
    "eagle",
    "mtp",
    "mtp",
    "ngram",
    "draft_model",
)


def _deployment(random: Random, number: int) -> Deployment:
    layout = _LAYOUTS[number % len(_LAYOUTS)]
    size = random.choice((4, 8, 16))
    sizes = [size] * len(layout)
    chunked = _chunked in layout
    # A hash unit smaller than blocks, so that hits may end inside them.
    unit = size // random.choice((2, 4)) if _mamba in layout and random.random() < 0.4 else None
    if len(layout) > 1 and not chunked and random.random() < 0.2:
        sizes[random.randrange(len(sizes))] *= 2 if size == 16 else random.choice((2, 4))
    groups = tuple(kind(b, random) for kind, b in zip(layout, sizes, strict=True))
    method: Method | None = random.choice(_METHODS)
    if chunked and method in ("eagle", "mtp"):
        method = "ngram"  # vLLM refuses draft heads beside chunked local attention
    drafts = random.randint(1, 3) if method else 0
    if method in ("eagle", "mtp"):
        flagged = random.randrange(len(groups))
        if groups[flagged].kind is not GroupKind.MAMBA:
            groups = tuple(
                replace(group, eagle=True) if place == flagged else group
                for place, group in enumerate(groups)
            )
    alignment = math.lcm(*sizes)
    longest = random.randint(2 * alignment, 6 * alignment) + drafts + 2
    budget = random.choice((size, alignment, alignment + 1, 2 * alignment - 1, 3 * alignment))
    budget = max(random.choice((budget, budget + random.randint(0, size), 4 * longest)), 4 + drafts)
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    # One request alone must fit; how tight the pool is, is drawn.
    pool = 1 + random.choice((one, one + random.randint(0, 3), 2 * one, 4 * one, 4 * one))
    fine = is_fine_grained(groups, unit or math.gcd(*sizes))
    modules = random.choice((1, drafts)) if method == "mtp" else 1
    if modules > 1 and not any(group.eagle for group in groups):
        groups = _drafted(groups)
    thinned = any(group.kind in SPARSE_KINDS for group in groups)
    return Deployment(
        groups,
        pool,
        longest,
        budget,
        max_num_seqs=random.choice((1, 2, 4, 4)),
        prefix_match_unit=unit,
        speculative_method=method,
        num_speculative_tokens=drafts,
        num_mtp_modules=modules,
        lookahead_hashes=random.random() < 0.6,
        async_scheduling=random.random() < 0.5,
        v2_model_runner=random.random() < 0.3,
        enable_chunked_prefill=budget < longest or random.random() < 0.9,
        long_prefill_token_threshold=random.choice((0, 0, 0, alignment, size + 1)),
        policy="priority" if random.random() < 0.2 else "fcfs",
        # Start-up refuses an interval that has no effect.
        retention_interval=(
            random.choice((None, None, None, "dense", alignment)) if thinned else None
        ),
        mamba_checkpoint_alignment=(
            unit or size if fine and modules == 1 and random.random() < 0.4 else None
        ),
        mamba_shared_prefix_checkpoint=fine and random.random() < 0.3,
    )


def _drafted(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups with the draft's layers in the first that may have them.

    vLLM finds none only where a draft has no KV cache of its own, and then it has one module.
    """
    first = next(place for place, group in enumerate(groups) if group.kind is not GroupKind.MAMBA)
    return (*groups[:first], replace(groups[first], eagle=True), *groups[first + 1 :])


def blocks_needed(group: Group, longest: int, budget: int, drafts: int) -> int:
    """Blocks that one request of the longest kind needs at most."""
    blocks = math.ceil((longest + drafts) / group.block_size)
    match group.kind:
        case GroupKind.MAMBA:
            return 3 + drafts
        case GroupKind.SLIDING_WINDOW:
            assert group.window is not None
            seen = group.window - 1 + 2 * (budget + drafts)
            return min(blocks, math.ceil(seen / group.block_size) + 1)
        case _:
            return blocks


def _requests(random: Random, deployment: Deployment) -> dict[str, Arrival]:
    unit = math.lcm(*(group.block_size for group in deployment.groups))
    most = deployment.max_model_len
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in _NAMES[: random.randint(2, 4)]:
        num_output = random.choice((1, 1, 2, 4, random.randint(1, 2 * unit)))
        num_output = min(num_output, most - 2)
        room = most - num_output
        near = unit * random.randint(1, max(room // unit, 1)) + random.randint(-1, 2)
        length = max(1, min(random.choice((near, near, random.randint(1, room), room)), room))
        earlier = random.choice(list(requests)) if requests and random.random() < 0.8 else None
        prompt: tuple[int, ...] = ()
        after = None
        if earlier is not None:
            donor = requests[earlier]
            after = earlier if random.random() < 0.7 else None
            match random.randrange(3):
                case 0:
                    prompt = donor.prompt
                case 1:
                    prompt = donor.prompt + donor.output
                case _:
                    prompt = donor.prompt[: random.randint(1, len(donor.prompt))]
            if len(prompt) > room or prompt != donor.prompt or random.random() < 0.2:
                prompt = prompt[:room]
                more = max(0, min(length - len(prompt), room - len(prompt)))
                prompt += tuple(range(fresh, fresh + more))
                fresh += more
        else:
            prompt = tuple(range(fresh, fresh + length))
            fresh += length
        output = tuple(range(fresh, fresh + num_output))
        fresh += num_output + 7
        accepted: tuple[int, ...] = ()
        if deployment.num_speculative_tokens:
            accepted = tuple(
                random.randint(0, deployment.num_speculative_tokens)
                for _ in range(random.randint(1, 3))
            )
        requests[name] = Arrival(
            prompt,
            output,
            arrives=random.choice((0, 0, 0, 1, 2, 5)),
            after=after,
            accepted=accepted,
            aborted=random.randint(1, 8) if random.random() < 0.08 else None,
            priority=random.randint(0, 2) if deployment.policy == "priority" else 0,
        )
    return requests

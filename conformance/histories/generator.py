"""Generated histories: legal and seeded, with small pools and shared prefixes for much activity.

`fine_history` generates those for hits inside blocks.

Coverage: each layout of `_LAYOUTS` in rotation (every kind alone where an engine can have it alone,
and the hybrids), with random block sizes, windows, EAGLE flags, retention, hash block sizes and
pool sizes; chunked prefill, decode, drafts (of EAGLE and of others), preemption, eviction, external
and delayed tokens, LoRA, salts and images are drawn for each request and step; in some histories
something outside holds blocks.

What is drawn, and what has to fit it, is one grammar: the module has more than 400 lines.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Hold,
    Image,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    Release,
    RequestInput,
    Reset,
    Results,
    Schedule,
    Sent,
    Step,
    Take,
)
from hitproof.spec.admission import blocks_at_once
from hitproof.spec.groups import Group, GroupKind


def connected(seed: int | str, history: History) -> History:
    """In some histories, let something outside hold blocks: what it sends, stores, or takes."""
    random = Random(f"hitproof connected {seed}")
    if random.random() >= 0.2:
        return history
    steps: list[Step] = []
    sending: list[str] = []
    for step in history.steps:
        if isinstance(step, Finish) and random.random() < 0.5:
            step = replace(step, sending=True)
            sending.append(step.request)
        elif isinstance(step, Load) and random.random() < 0.5:
            step = replace(step, reserved_blocks=random.randint(1, 6))
        steps.append(step)
        chance = random.random()
        if sending and chance < 0.3:
            steps.append(Sent(sending.pop(0)))
        elif chance < 0.4:
            name, group = random.choice(list(history.requests)), random.randrange(4)
            steps.append(Hold(name, group % len(history.engine.groups), (0, random.randint(0, 3))))
        elif chance < 0.5:
            steps.append(Take(random.choice((1, 2, None))))
        elif chance < 0.7:
            steps.append(Release())
    return replace(history, steps=(*steps, Release(), *map(Sent, sending)))


_NAMES = "abcdefghij"
_IMAGES = {"cat": 3, "dog": 5, "map": 8}


def history(seed: int | str, whole_blocks: bool = False) -> History:
    """The history of a seed.

    ``whole_blocks`` leaves out layouts with full-attention or Mamba blocks larger than hash
    blocks: there vLLM registers, from 0.26 on, and hits, with Mamba, the tails of prompts that
    end inside a block, on which the spec has no clause.

    A seed ``7 as 3`` has the engine of ``3``, and requests and steps of its own.
    """
    first, random = _split(seed, "hitproof")
    engine = _engine(first, whole_blocks, Random(f"hitproof drafts {str(seed).split(' as ')[-1]}"))
    requests = _requests(random, engine)
    made = History(engine, requests, tuple(_steps(random, engine, requests)))
    return connected(seed, _in_flight(seed, _with_modules(seed, _with_hashes(seed, made))))


def fine_history(seed: int | str) -> History:
    """The history of a seed on an engine whose hits may end inside blocks.

    No KV connector takes part: what one loads ends on block edges. Seeds are as for `history`.
    """
    first, random = _split(seed, "hitproof fine")
    engine = _fine_engine(first)
    requests = _requests(random, engine)
    steps = tuple(_steps(random, engine, requests, may_load=False))
    made = History(engine, requests, steps)
    return _in_flight(seed, _with_modules(seed, _with_hashes(seed, made)))


def _split(seed: int | str, what: str) -> tuple[Random, Random]:
    """What the engine is drawn from, and then the rest."""
    own, _, engine = str(seed).partition(" as ")
    first = Random(f"{what} {engine or own}")
    return first, Random(f"{what} {seed}") if engine else first


def _loads(history: History) -> bool:
    """Whether a KV connector has tokens of a request."""
    return any(
        isinstance(step, Load) or (isinstance(step, Schedule) and step.external)
        for step in history.steps
    )


def _with_modules(seed: int | str, history: History) -> History:
    """With EAGLE and no KV connector, let several MTP modules draft in some histories.

    They look ahead by no more than the alignment, with which vLLM refuses to start, and draft fewer
    tokens than Mamba blocks have.
    """
    random, engine = Random(f"hitproof modules {seed}"), history.engine
    states = [group.block_size - 1 for group in engine.groups if group.kind is GroupKind.MAMBA]
    most = min(4, engine.alignment, *states)
    if _loads(history) or not engine.use_eagle or most < 2 or random.random() < 0.6:
        return history
    ahead = random.randint(2, most)
    groups = tuple(replace(group, prefill_lookahead=ahead) for group in engine.groups)
    looking = replace(
        engine,
        groups=groups,
        num_hash_lookahead_tokens=ahead if engine.num_hash_lookahead_tokens else 0,
        num_speculative_tokens=max(ahead, engine.num_speculative_tokens),
    )
    return replace(history, engine=_with_as_much_room(looking, engine))


def _with_hashes(seed: int | str, history: History) -> History:
    """With EAGLE and no KV connector, let hashes look ahead in half of the histories."""
    coin = Random(f"hitproof hashes {seed}")
    if _loads(history) or not history.engine.use_eagle or coin.random() < 0.5:
        return history
    return replace(history, engine=replace(history.engine, num_hash_lookahead_tokens=1))


def _in_flight(seed: int | str, history: History) -> History:
    """In some histories, schedule several steps before the results of the first are known."""
    random = Random(f"hitproof in flight {seed}")
    if random.random() >= 0.3:
        return history
    several = replace(history.engine, max_concurrent_batches=random.choice((2, 2, 3)))
    engine = _with_as_much_room(several, history.engine)
    steps: list[Step] = []
    for step in history.steps:
        if isinstance(step, Schedule) and random.random() < 0.9:
            step = replace(step, in_flight=True)
        steps += [Results(), step] if random.random() < 0.1 else [step]
    return replace(history, engine=engine, steps=tuple(steps))


def _with_as_much_room(
    engine: EngineConfiguration, before: EngineConfiguration
) -> EngineConfiguration:
    """The engine, with the additional blocks that a request takes compared with ``before``."""
    more = sum(most_blocks(engine, group) for group in engine.groups)
    more -= sum(most_blocks(before, group) for group in before.groups)
    return replace(engine, num_gpu_blocks=engine.num_gpu_blocks + more)


def _full(size: int, _random: Random) -> Group:
    return Group(GroupKind.FULL_ATTENTION, size)


def _sliding(size: int, random: Random) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 5 * size + 1))


def _mamba(size: int, _random: Random) -> Group:
    return Group(GroupKind.MAMBA, size)


def _chunked(size: int, random: Random) -> Group:
    return Group(GroupKind.CHUNKED_LOCAL, size, chunk=size * random.randint(1, 4))


_Maker = Callable[[int, Random], Group]

_LAYOUTS: tuple[tuple[_Maker, ...], ...] = (
    (_full,),
    (_sliding,),
    (_mamba,),
    (_chunked,),
    (_full, _sliding),
    (_full, _mamba),
    (_full, _chunked),
    (_sliding, _sliding),
    (_full, _sliding, _sliding),
    (_full, _full, _sliding),
    (_full, _sliding, _mamba),
    (_full, _mamba, _mamba),
)


def _engine(random: Random, whole_blocks: bool, drafting: Random) -> EngineConfiguration:
    groups = _groups(random, whole_blocks)
    kinds = {group.kind for group in groups}
    # vLLM runs chunked local attention without EAGLE only.
    use_eagle = GroupKind.CHUNKED_LOCAL not in kinds and random.random() < 0.4
    if use_eagle and random.random() < 0.6:
        # A draft layer is in some group, and none is a Mamba layer.
        able = [i for i, group in enumerate(groups) if group.kind is not GroupKind.MAMBA]
        flagged = set(random.sample(able, random.randint(1, len(able)))) if able else set()
        groups = tuple(replace(group, eagle=i in flagged) for i, group in enumerate(groups))
    common = math.gcd(*(group.block_size for group in groups))
    divisors = [size for size in range(1, common + 1) if common % size == 0]
    hash_block_size = common
    if len(groups) > 1 and random.random() < 0.3 and not whole_blocks:
        hash_block_size = random.choice(divisors)
    align = math.lcm(*(group.block_size for group in groups))
    retention = None
    if GroupKind.SLIDING_WINDOW in kinds and random.random() < 0.4:
        retention = align * random.randint(0, 3)
    drafts, lookahead = random.randint(1, 3) if use_eagle else 0, None
    if not use_eagle and drafting.random() < 0.3:
        # A draft model needs slots ahead, prompt lookup none.
        drafts, lookahead = drafting.randint(1, 3), drafting.choice((None, 0))
    max_model_len = max(align * random.randint(3, 6), random.randint(16, 40))
    max_chunk = random.choice((None, align, 2 * align, 3 * align + 1))
    engine = EngineConfiguration(
        groups=groups,
        num_gpu_blocks=2,
        hash_block_size=hash_block_size,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_chunk,
        use_eagle=use_eagle,
        num_speculative_tokens=drafts,
        num_lookahead_tokens=lookahead,
        retention_interval=retention,
        full_sequence_must_fit=random.random() < 0.3,
    )
    return _with_pool(random, engine)


def _with_pool(random: Random, engine: EngineConfiguration) -> EngineConfiguration:
    # From just enough for one request, so that requests evict and preempt each other, to plenty.
    enough = 1 + sum(most_blocks(engine, group) for group in engine.groups)
    room = random.choice((0, 1, enough // 2, 2 * enough, 8 * enough))
    return replace(engine, num_gpu_blocks=enough + room)


def _fine_engine(random: Random) -> EngineConfiguration:
    unit = random.choice((1, 2))
    full = Group(GroupKind.FULL_ATTENTION, unit * random.choice((1, 2, 2, 3, 4)))
    states = Group(GroupKind.MAMBA, unit * random.choice((2, 2, 3, 4)))
    window = Group(GroupKind.SLIDING_WINDOW, unit, window=random.randint(2, 5 * unit + 1))
    groups = random.choice(((full, states), (full, states), (full, window, states)))
    align = math.lcm(*(group.block_size for group in groups))
    use_eagle = random.random() < 0.5
    if use_eagle and random.random() < 0.6:
        groups = (replace(full, eagle=True), *groups[1:])
    engine = EngineConfiguration(
        groups=groups,
        num_gpu_blocks=2,
        hash_block_size=unit,
        max_model_len=max(align * random.randint(3, 6), random.randint(16, 40)),
        max_num_batched_tokens=random.choice((None, align, 2 * align, 3 * align + 1)),
        use_eagle=use_eagle,
        # Mamba blocks are larger than what a step drafts.
        num_speculative_tokens=random.choice((0, 0, 1, states.block_size - 1)) * use_eagle,
        retention_interval=random.choice((None, None, 0, align, 2 * align)),
        full_sequence_must_fit=random.random() < 0.3,
        mamba_checkpoint_alignment=random.choice((None, None, unit, 2 * unit)),
        mamba_shared_prefix_checkpoint=use_eagle and random.random() < 0.4,
    )
    return _with_pool(random, engine)


def _groups(random: Random, whole_blocks: bool) -> tuple[Group, ...]:
    makers = random.choice(_LAYOUTS)
    base = random.choice((1, 2, 3, 4))
    one_size = _mamba in makers or _chunked in makers or random.random() < 0.3
    makers = makers if not whole_blocks or makers != (_full, _full, _sliding) else makers[1:]
    while True:
        groups = tuple(
            maker(base * (1 if one_size else random.choice((1, 1, 2, 4))), random)
            for maker in makers
        )
        common = math.gcd(*(group.block_size for group in groups))
        if whole_blocks and any(
            group.kind is not GroupKind.SLIDING_WINDOW and group.block_size > common
            for group in groups
        ):
            continue
        # The hybrid coordinator needs groups of at least two kinds.
        if len(groups) == 1 or len(set(groups)) > 1:
            return groups


def most_blocks(engine: EngineConfiguration, group: Group) -> int:
    """The most blocks that one request holds at once. vLLM: ``max_memory_usage_bytes``."""
    most = blocks_at_once(
        group,
        engine.max_in_flight_tokens,
        engine.max_model_len,
        engine.num_speculative_tokens,
        exports=1 if engine.mamba_checkpoint_alignment else 0,
    )
    return int(most)


def _requests(random: Random, engine: EngineConfiguration) -> dict[str, RequestInput]:
    """Requests whose prompts share prefixes, resend each other, or continue each other."""
    most = engine.max_model_len
    documents = [
        tuple(random.randint(0, 9) for _ in range(most)) for _ in range(random.randint(1, 2))
    ]
    features = random.random() < 0.3
    found: list[RequestInput] = []
    for _ in range(random.randint(2, 7)):
        document = random.choice(documents)
        num_output = random.choice((0, 1, 2, random.randint(0, most // 2)))
        length = random.randint(1, most - num_output)
        if random.random() < 0.5:
            length = most - num_output
        earlier = random.choice(found) if found else None
        match random.randrange(4):
            case 0 if earlier is not None:  # the next turn of a conversation
                tokens = earlier.token_ids + tuple(random.randint(0, 9) for _ in range(most))
            case 1:
                shared = random.randint(0, length)
                tokens = document[:shared] + tuple(random.randint(0, 9) for _ in range(most))
            case 2 if earlier is not None:  # a resend
                tokens, length = earlier.token_ids + document, len(earlier.prompt)
            case _:
                tokens = document
        tokens = tokens[: min(length + num_output, most)]
        request = RequestInput(prompt=tokens[:length], output=tokens[length:])
        if features:
            request = _with_features(random, request)
        if random.random() < 0.05:
            request = replace(request, skip_reading_prefix_cache=True)
        found.append(request)
    return dict(zip(_NAMES, found, strict=False))


def _with_features(random: Random, request: RequestInput) -> RequestInput:
    images: list[Image] = []
    offset = 0
    while random.random() < 0.4:
        name = random.choice(sorted(_IMAGES))
        offset += random.randint(0, 6)
        if offset + _IMAGES[name] > len(request.prompt):
            break
        images.append(Image(name, offset, _IMAGES[name]))
        offset += _IMAGES[name]
    prompt = list(request.prompt)
    for image in images:
        prompt[image.offset : image.offset + image.length] = [99] * image.length
    return replace(
        request,
        prompt=tuple(prompt),
        images=tuple(images),
        lora_name=random.choice((None, None, "x", "y")),
        cache_salt=random.choice((None, None, None, "s", "t")),
    )


def _steps(
    random: Random,
    engine: EngineConfiguration,
    requests: dict[str, RequestInput],
    may_load: bool = True,
) -> list[Step]:
    steps: list[Step] = []
    waiting, loading = list(requests), set[str]()
    # Tokens that each active request has yet to compute, as far as can be predicted.
    left: dict[str, int] = {}
    connector = random.random() < 0.3 and may_load
    kinds = [group.kind for group in engine.groups]
    may_lose_a_part = kinds == [GroupKind.FULL_ATTENTION]
    at_once = random.randint(1, 3)
    for _ in range(random.randint(10, 40)):
        if waiting and (not left or (len(left) < at_once and random.random() < 0.3)):
            name = waiting.pop(0)
            left[name] = len(requests[name].token_ids)
            steps.append(_first(random, engine, name, connector))
            if isinstance(steps[-1], Load):
                loading.add(name)
            continue
        if not left:
            break
        name = random.choice(list(left))
        chance = random.random()
        if name in loading and chance < 0.6:
            loading.remove(name)
            right = random.randint(0, engine.max_model_len) if random.random() < 0.3 else None
            if right and not may_lose_a_part:
                right = None
            steps.append(Loaded(name, right))
        elif chance < 0.74:
            step = _schedule(random, engine, name)
            left[name] -= min(step.tokens or engine.max_chunk, engine.max_chunk)
            steps.append(step)
            if left[name] <= len(requests[name].output):
                left[name] = min(left[name] + engine.max_chunk - 1, len(requests[name].output))
                left[name] -= 1 + step.accepted
            if left[name] <= 0:
                steps.append(Finish(name))
                del left[name]
        elif chance < 0.82:
            steps.append(Finish(name))
            if name not in loading:
                del left[name]
        elif chance < 0.87:
            steps.append(Preempt(name))
            left[name] = len(requests[name].token_ids)
        elif chance < 0.90:
            steps.append(Lookup(random.choice(list(requests))))
        elif chance < 0.94:
            steps.append(NewStep())
        elif chance < 0.97:
            steps.append(_evict(random, engine, requests))
        else:
            for name in [name for name in left if random.random() < 0.8]:
                steps.append(Finish(name))
                if name not in loading:
                    del left[name]
            steps.append(Reset())
    return steps


def _first(random: Random, engine: EngineConfiguration, name: str, connector: bool) -> Step:
    if connector and random.random() < 0.4:
        return Load(name, random.randint(1, engine.max_model_len))
    step = _schedule(random, engine, name)
    if connector and random.random() < 0.4:
        return replace(step, external=random.randint(1, engine.max_model_len))
    return step


def _schedule(random: Random, engine: EngineConfiguration, name: str) -> Schedule:
    tokens = random.choice((None, None, random.randint(1, 2 * engine.alignment + 1)))
    drafts = random.randint(0, engine.num_speculative_tokens)
    return Schedule(name, tokens, drafts, random.randint(0, drafts))


def _evict(random: Random, engine: EngineConfiguration, requests: dict[str, RequestInput]) -> Evict:
    group = random.randrange(len(engine.groups))
    name = random.choice(list(requests))
    most = max(1, len(requests[name].prompt) // engine.groups[group].block_size)
    return Evict(name, group, (random.randrange(most),))

"""Situations: one history for each engine that puts requests of every sort through everything.

Generated histories draw features and steps at random, so that few have several at once: an adapter
and an image, a preemption after some output, a load beside a running request. Here every request
has features, several run at a time, and all of it happens: chunks, decoding, drafts, preemption,
resends while others run, loads at once and later, eviction, a refused reset, a reset, and use after
it. Every second engine has few blocks, so that requests evict and preempt each other; every third
with a draft layer in some group has hashes that look ahead.

`conformance.judge.judged_replay` judges every step.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count, islice, pairwise, product

from hitproof.conformance.histories.families import engines
from hitproof.conformance.histories.fine_families import fine_engines
from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Image,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    Release,
    RequestInput,
    Reset,
    Schedule,
    Step,
    Take,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import is_fine_grained

_FULL, _MAMBA = GroupKind.FULL_ATTENTION, GroupKind.MAMBA
_APART = 7
"""Distance between the chosen engines of families."""


def situations() -> Iterator[History]:
    """The histories, each of an engine of another shape."""
    several = chain(islice(engines(), 0, None, _APART), opting_out())
    for number, engine in enumerate(several):
        yield _history(_changed(engine, number), number)
    yield drafted_beside_ring()


def drafted_beside_ring() -> History:
    """A draft layer beside groups that opt out of prefix caching; hits are cut for a connector."""
    ring = Group(_FULL, 2, prefix_cacheable=False)
    groups = ring, Group(_FULL, 2, eagle=True), ring
    engine = EngineConfiguration(groups, 40, 2, 32, use_eagle=True, num_speculative_tokens=1)
    requests = {name: RequestInput(tuple(range(1, 14)), (50, 51)) for name in "abc"}
    steps = [(Lookup(name), Schedule(name), Schedule(name), Finish(name)) for name in requests]
    return History(engine, requests, tuple(chain.from_iterable(steps)))


def fine_situations() -> Iterator[History]:
    """The same for engines whose hits may end inside blocks."""
    several = chain(islice(fine_engines(), 0, None, 2), _states_first())
    for number, engine in enumerate(several):
        yield _history(_changed(engine, number), number)
    yield evicted_tail()
    for number, engine in enumerate(_beside_rings()):
        yield _history(_changed(engine, number), number)
    yield from copies_of_last_blocks()
    yield from ends_of_states()


def ends_of_states() -> Iterator[History]:
    """Requests whose Mamba states end where tokens, hashes or steps run out.

    A prompt resumes with its output, in one chunk; a prompt and a half-filled block go on. Others
    take what a chunk that ends inside a block leaves, and what a step of one token does. Hashes
    that look ahead are fewer than the units of a text. The first, second and last show what they
    do in events, which the gate's variants of them have on.
    """
    step, ahead_of_results = Schedule("a"), Schedule("a", in_flight=True)
    resumed = EngineConfiguration((Group(_FULL, 8), Group(_MAMBA, 8)), 60, 2, 60)
    resumed = replace(resumed, retention_interval=32, mamba_checkpoint_alignment=2)
    output = {"a": RequestInput(tuple(range(1, 10)), tuple(range(100, 109)))}
    yield History(resumed, output, (*([step] * 9), Preempt("a"), Reset(), step, step))

    chunks = EngineConfiguration((Group(_FULL, 2), Group(_MAMBA, 8)), 60, 2, 64)
    chunks = replace(chunks, max_num_batched_tokens=4)
    other, third = Schedule("b"), Schedule("c")
    text = tuple(range(1, 13))
    siblings = {name: RequestInput((*text, *[n] * 6)) for n, name in enumerate("abcdef", 50)}
    yield History(chunks, siblings, (*([step] * 5), *([other] * 3), *map(Lookup, "cdef")))

    small = EngineConfiguration((Group(_MAMBA, 2), Group(_FULL, 2)), 10, 1, 14, use_eagle=True)
    small = replace(small, mamba_shared_prefix_checkpoint=True, max_concurrent_batches=2)
    again = {"a": RequestInput(tuple(range(1, 12)), (12, 13, 14))}
    ran = (step, step, *([ahead_of_results] * 4))
    yield History(small, again, (*ran, Preempt("a"), ahead_of_results))
    drafted = Group(_FULL, 2, eagle=True), Group(_MAMBA, 2)
    small = replace(small, groups=drafted, num_hash_lookahead_tokens=1, num_gpu_blocks=11)
    small = replace(small, max_model_len=16, max_concurrent_batches=1)
    long = {"a": RequestInput(tuple(range(1, 17)))}
    yield History(small, long, (step, Schedule("a", 3), *([step] * 4)))

    full, states = Group(_FULL, 1, prefill_lookahead=2), Group(_MAMBA, 2, prefill_lookahead=2)
    single = EngineConfiguration((full, states), 40, 1, 32, use_eagle=True)
    single = replace(single, max_num_batched_tokens=1)
    alike = dict.fromkeys("abc", RequestInput(text[:6]))
    yield History(single, alike, (step, *([other] * 4), third))
    wide, wider = replace(states, block_size=4), replace(states, block_size=8)
    ahead = EngineConfiguration((wide, wider), 40, 2, 32, use_eagle=True)
    ahead = replace(ahead, num_hash_lookahead_tokens=2)
    yield History(ahead, {"a": RequestInput(text[:9])}, (Lookup("a"),))

    drafted = Group(_FULL, 2, eagle=True), Group(_MAMBA, 8)
    chunks = replace(chunks, groups=drafted, use_eagle=True, mamba_shared_prefix_checkpoint=True)
    same = dict.fromkeys("abc", RequestInput(text[:9], tuple(range(100, 109))))
    same["c"] = RequestInput(same["a"].token_ids)
    chunks = replace(chunks, max_num_batched_tokens=6)
    yield History(chunks, same, (*([step] * 9), Preempt("a"), Schedule("a", 4), third))


def copies_of_last_blocks() -> Iterator[History]:
    """A hit ends inside a block that has room for all that is new, and few blocks are free."""
    text = tuple(range(1, 8))
    requests = {"first": RequestInput(text), "hitting": RequestInput(text, (50,))}
    for size, taken in product((4, 8), range(3, 7)):
        engine = EngineConfiguration((Group(_FULL, size), Group(_MAMBA, 4)), 10, 2, 16)
        steps: tuple[Step, ...] = (
            *(Schedule("first"), Schedule("first"), Schedule("first"), Finish("first")),
            *(Take(taken), Schedule("hitting"), Schedule("hitting"), Release()),
            *(Schedule("hitting"), Schedule("hitting"), Finish("hitting")),
        )
        yield History(engine, requests, steps)


def evicted_tail() -> History:
    """A state inside a block loses its key before its request goes on, which copies it aside."""
    groups = Group(_FULL, 4), Group(_MAMBA, 4)
    requests = {"a": RequestInput(tuple(range(1, 12)), (50, 51)), "b": RequestInput((60, 61))}
    chunk = Schedule("a")
    steps: tuple[Step, ...] = (chunk, chunk, Evict("a", 1, (0, 2)), chunk, Schedule("b"), chunk)
    return History(EngineConfiguration(groups, 40, 2, 64), requests, steps)


def opting_out() -> Iterator[EngineConfiguration]:
    """Engines with a group that opts out of prefix caching: a window, or a ring buffer.

    A window that opts out is computed again after a hit. vLLM: ``bounded_replay``, of the sliding
    windows of DeepSeek-V4.1; ``CircularBufferSpec``, of indexers.
    """
    full, states = Group(_FULL, 2), Group(_MAMBA, 2)
    window = Group(GroupKind.SLIDING_WINDOW, 2, window=5)
    replayed = replace(window, prefix_cacheable=False)
    ring = Group(_FULL, 2, prefix_cacheable=False)
    plain = EngineConfiguration((full, replayed), 100, 2, 16)
    yield plain
    yield replace(plain, groups=(full, replace(window, window=3), replayed, ring))
    yield replace(plain, groups=(replayed, full, states))
    yield replace(plain, groups=(ring, full, replayed), max_model_len=32)


def _states_first() -> Iterator[EngineConfiguration]:
    """Engines in which full attention is not the first group."""
    states, drafted = Group(_MAMBA, 4), Group(_FULL, 4, eagle=True)
    eagle = EngineConfiguration((states, drafted), 100, 2, 32, use_eagle=True)
    yield replace(eagle, mamba_shared_prefix_checkpoint=True)
    yield replace(eagle, groups=(states, Group(_FULL, 4)), use_eagle=False)


def _beside_rings() -> Iterator[EngineConfiguration]:
    """Engines with a ring buffer, of which hits need nothing, wherever they end."""
    ring, states = Group(_FULL, 4, prefix_cacheable=False), Group(_MAMBA, 4)
    yield EngineConfiguration((Group(_FULL, 4), states, ring), 100, 2, 32)
    yield EngineConfiguration((ring, Group(_FULL, 4), states), 100, 1, 32)


def _changed(engine: EngineConfiguration, number: int) -> EngineConfiguration:
    """The engine with drafts, with shorter steps, and in every second case with few blocks."""
    align = engine.alignment
    flagged = any(group.eagle for group in engine.groups)
    ahead = int(flagged and number % 3 == 1) or engine.num_hash_lookahead_tokens
    engine = replace(
        engine,
        num_gpu_blocks=200,
        max_model_len=10 * align,
        max_num_batched_tokens=(None, 2 * align + 1, 3 * align)[number % 3],
        num_speculative_tokens=1 if engine.use_eagle else 0,
        num_hash_lookahead_tokens=ahead,
        full_sequence_must_fit=number % 4 == 3,
    )
    if number % 2:
        return engine
    enough = 1 + sum(most_blocks(engine, group) for group in engine.groups)
    return replace(engine, num_gpu_blocks=enough + (number % 4) * enough // 4)


def _history(engine: EngineConfiguration, number: int) -> History:
    requests = _requests(engine, number)
    return History(engine, requests, tuple(_steps(engine, list(requests))))


def _requests(engine: EngineConfiguration, number: int) -> dict[str, RequestInput]:
    """Requests with one text, most of which differ in what else their blocks depend on."""
    align, unit = engine.alignment, engine.hash_block_size
    length = 5 * align + number % 3
    text = tuple(range(1, length + 1))
    output = tuple(range(500, 500 + 2 * align + 1))
    most = engine.max_model_len
    size = math.ceil(1.5 * unit)

    def with_images(*names: str, first: int = 1) -> tuple[tuple[int, ...], tuple[Image, ...]]:
        images, prompt = [], list(text)
        for name, at in zip(names, count(first, size + 1)):
            images.append(Image(name, at, size))
            prompt[at : at + size] = [99] * size
        return tuple(prompt), tuple(images)

    cats, cat_images = with_images("cat", "dog", "map")
    _, cow_images = with_images("cat", "dog", "cow")
    later, later_images = with_images("cat", "dog", "map", first=2)
    found = {
        "plain": RequestInput(text, output),
        "adapter": RequestInput(text, output, lora_name="x", cache_salt="s"),
        "other adapter": RequestInput(text, output, lora_name="y", cache_salt="s"),
        "adapter without salt": RequestInput(text, (), lora_name="x"),
        "salt": RequestInput(text, output[:2], cache_salt="t"),
        "images": RequestInput(cats, output, lora_name="x", images=cat_images),
        "other image": RequestInput(cats, output, lora_name="x", images=cow_images),
        "images later": RequestInput(later, (), lora_name="x", images=later_images),
        "images without adapter": RequestInput(cats, output[:3], images=cat_images),
        "next turn": RequestInput((*text, *output), (600, 601)),
        "sibling": RequestInput((*text[: 3 * align], *range(700, 700 + 2 * align)), (702,)),
        "skipping": RequestInput(text, output[:1], skip_reading_prefix_cache=True),
        "short": RequestInput(text[:1], output),
    }
    found |= {"again": found["adapter"], "last": found["images"]}
    return {name: request for name, request in found.items() if len(request.token_ids) <= most}


def _steps(engine: EngineConfiguration, names: list[str]) -> Iterator[Step]:
    *chain, again, last = names
    for turn, (name, other) in enumerate(pairwise(chain)):
        yield from _turn(engine, turn, name, other)
        if turn % 4 == 3:
            yield from map(Lookup, names)
            yield Evict(name, turn % len(engine.groups), (0, 2))
            yield Lookup(last)
    yield Finish(chain[-1])
    yield from (Schedule(again), Finish(again), Reset(), Lookup(last))
    yield from [Schedule(last)] * 3
    yield from (Finish(last), Reset())


def _turn(engine: EngineConfiguration, turn: int, name: str, other: str) -> Iterator[Step]:
    """One request is admitted, decodes and is preempted, while another comes and hits it."""
    align, drafts = engine.alignment, engine.num_speculative_tokens
    chunk = (align + 1, None, engine.hash_block_size, 2 * align)[turn % 4]
    fine = is_fine_grained(engine.groups, engine.hash_block_size)
    loads = not engine.num_hash_lookahead_tokens and not fine
    yield from [Schedule(name, chunk)] * (2 + turn % 2)
    yield Lookup(other)
    if loads and turn % 3 == 1:
        yield Schedule(other, align, external=2 * align)
    elif loads and turn % 3 == 2:
        yield Load(other, 3 * align - turn % 2)
        yield Schedule(name)
        yield Loaded(other, 0 if turn % 6 == 5 else None)
    yield Schedule(other, chunk)
    for step in range(4):
        yield Schedule(name, drafts=drafts, accepted=step % 2 * drafts)
        yield Schedule(other)
    yield from (Preempt(name), NewStep(), Reset())
    yield from (Schedule(name), Schedule(name), Schedule(other))
    if turn % 2:
        yield Preempt(other)
    yield from (Schedule(other), Schedule(name), Finish(name))

"""Edges: requests that barely fit into the pool, or barely do not, and shapes not found elsewhere.

A small pool is reset; with several MTP modules a step after a hit computes fewer tokens than they
look ahead; block sizes differ beside states though hits end on block edges; a load comes beside
hits that would be evicted next; a ring buffer's block is the last one; a window outside the prefix
cache is computed again; and several images are in the block that a prompt ends in, or reach into
it, and output completes that block.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

from hitproof.conformance.histories.families import engines
from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    Image,
    Load,
    Loaded,
    Lookup,
    Preempt,
    Release,
    RequestInput,
    Reset,
    Schedule,
    Step,
    Take,
)
from hitproof.spec.groups import Group, GroupKind

_FULL = GroupKind.FULL_ATTENTION
_ENDS = (
    ((9, 1), (10, 1)),
    ((8, 1), (9, 1), (10, 1)),
    ((3, 1), (7, 1), (8, 1), (10, 1)),
    ((7, 2), (9, 2)),
    ((2, 1), (6, 3), (9, 1)),
    ((5, 4), (9, 1)),
)
"""Images, by offset and length, the last of which ends its prompt."""
_APART = 7
"""Distance between the chosen engines of families."""


def edges() -> Iterator[History]:
    """Histories of engines that admit no request in part, each with pools of several sizes.

    One request is computed in chunks; the next one hits half of it.
    """
    for number, engine in enumerate(islice(engines(), 0, None, _APART)):
        align = engine.alignment
        engine = replace(
            engine,
            max_model_len=8 * align,
            max_num_batched_tokens=(align, 2 * align + 1)[number % 2],
            max_concurrent_batches=1 + (number % 3 == 2),
            num_speculative_tokens=0,
            full_sequence_must_fit=True,
        )
        length = 8 * align - number % 3
        need = sum(
            min(most_blocks(engine, group), math.ceil(length / group.block_size))
            for group in engine.groups
        )
        requests = {
            "first": RequestInput(tuple(range(length - 1)), (900,)),
            "second": RequestInput((*range(4 * align), *range(500, 500 + length - 4 * align))),
        }
        ahead = engine.max_concurrent_batches > 1
        chunks = [Schedule(name, in_flight=ahead) for name in requests for _ in range(9)]
        steps: tuple[Step, ...] = (*chunks[:9], Finish("first"), *chunks[9:], Finish("second"))
        for room in (-2, -1, 0):
            yield History(replace(engine, num_gpu_blocks=1 + need + room), requests, steps)
    yield reset_of_all()
    yield short_step_after_a_hit()
    yield states_in_larger_blocks()
    yield load_beside_hits()
    yield from full_beside_rings()
    yield from images_at_the_end()
    yield from windows_computed_again()


def load_beside_hits() -> History:
    """A load takes a block while the hit of a later group is what would be evicted next.

    Before, one is refused for the sake of others, though no request runs.
    """
    groups = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.SLIDING_WINDOW, 4, window=8)
    text, other = tuple(range(16)), tuple(range(100, 116))
    requests = {
        "hit": RequestInput(text),
        "later": RequestInput(other),
        "loading": RequestInput((*text, *range(16, 24))),
    }
    used = [step for name in ("hit", "later") for step in (Schedule(name), Finish(name))]
    loads = (Load("loading", 4), Loaded("loading"), Schedule("loading"), Finish("loading"))
    at_once = (Schedule("loading", external=4), Finish("loading"))
    engine = EngineConfiguration(groups, 1 + 2 * 2 * 4, 4, 32)
    refused = Load("hit", 4, reserved_blocks=engine.num_gpu_blocks)
    return History(engine, requests, (refused, *used, *loads, Reset(), *used, *at_once))


def full_beside_rings() -> Iterator[History]:
    """The last blocks are taken by groups of which one keeps one block of each request."""
    full = Group(GroupKind.FULL_ATTENTION, 2)
    ring = replace(full, prefix_cacheable=False)
    requests = {
        "first": RequestInput(tuple(range(4))),
        "second": RequestInput((7, 8)),
        "hitting": RequestInput(tuple(range(5))),
    }
    steps: tuple[Step, ...] = (
        Schedule("first"),
        Schedule("second"),
        Finish("first"),
        Schedule("second"),
        Finish("second"),
        Take(1),
        Schedule("hitting"),
        Release(),
        Schedule("hitting"),
        Finish("hitting"),
    )
    for groups, whole in product(((full, ring), (ring, full)), (False, True)):
        yield History(
            EngineConfiguration(groups, 5, 2, 8, full_sequence_must_fit=whole), requests, steps
        )


def windows_computed_again() -> Iterator[History]:
    """Hits beside a window outside the prefix cache: longer than it, as long, and shorter.

    They are computed again in one step and in several, and by a request that is preempted.
    """
    full = Group(GroupKind.FULL_ATTENTION, 4)
    text = tuple(range(1, 27))
    requests = {
        "first": RequestInput(text, (900, 901)),
        "same": RequestInput(text, (900, 901)),
        "turn": RequestInput((*text, 900, 901, *range(30, 35)), (902,)),
        "short": RequestInput((*text[:9], 50, 51), (903,)),
        "shorter": RequestInput((*text[:5], 60, 61), (904,)),
    }
    steps: list[Step] = []
    for name in requests:
        steps += [Lookup(name), *([Schedule(name)] * 3), *([Preempt(name)] * (name == "same"))]
        steps += [*([Schedule(name)] * 6), Finish(name)]
    for window, most in product((1, 5, 8, 13), (None, 3, 9)):
        kept = Group(GroupKind.SLIDING_WINDOW, 4, window=window, prefix_cacheable=False)
        engine = EngineConfiguration((full, kept), 60, 4, 48, max_num_batched_tokens=most)
        yield History(engine, requests, tuple(steps))


def reset_of_all() -> History:
    """Each block of a small pool is cached when the cache is reset, and then used again."""
    engine = EngineConfiguration((Group(GroupKind.FULL_ATTENTION, 2),), 4, 2, 8)
    requests = {"before": RequestInput(tuple(range(6))), "after": RequestInput(tuple(range(9, 15)))}
    used = [step for name in requests for step in (Schedule(name), Finish(name))]
    return History(engine, requests, (*used[:2], Reset(), *used[2:]))


def short_step_after_a_hit() -> History:
    """A step after a hit computes one token, and three modules look ahead, under retention."""
    full = Group(GroupKind.FULL_ATTENTION, 2, prefill_lookahead=3)
    window = Group(GroupKind.SLIDING_WINDOW, 4, window=5, eagle=True, prefill_lookahead=3)
    engine = EngineConfiguration(
        (full, window), 60, 2, 40, use_eagle=True, num_speculative_tokens=3, retention_interval=4
    )
    return _one_after_another(engine)


def states_in_larger_blocks() -> History:
    """States and windows in blocks that are larger than those of a drafted full attention."""
    window = Group(GroupKind.SLIDING_WINDOW, 8, window=10)
    groups = window, Group(GroupKind.FULL_ATTENTION, 4, eagle=True), Group(GroupKind.MAMBA, 8)
    engine = EngineConfiguration(groups, 60, 4, 64, use_eagle=True, num_speculative_tokens=1)
    return _one_after_another(engine)


def _one_after_another(engine: EngineConfiguration) -> History:
    """Requests with one text and some output, the later ones with a first step of one token."""
    most = engine.max_model_len
    text = tuple(range(1, most - 5))
    requests = {name: RequestInput(text, (900, 901, 902)) for name in ("first", "second", "third")}
    steps: list[Step] = []
    for name in requests:
        steps += [Schedule(name, 1 if name != "first" else None), *([Schedule(name)] * (most // 2))]
        steps += [Finish(name), Lookup("third")]
    return History(engine, requests, tuple(steps))


def images_at_the_end() -> Iterator[History]:
    """Prompts that end with images, of which each in turn is another one, and their next turns.

    Images are as long as one token and longer, side by side and apart, at the last token of a block
    and across its end. The output completes the block, so that it is hashed after the prompt.
    """
    for number, (places, drafts) in enumerate(product(_ENDS, (0, 1))):
        engine = EngineConfiguration(
            (Group(_FULL, 4, eagle=bool(drafts)),),
            80,
            4,
            32,
            max_num_batched_tokens=(None, 5, 8)[number % 3],
            use_eagle=bool(drafts),
            num_hash_lookahead_tokens=drafts,
            num_speculative_tokens=drafts,
        )
        requests: dict[str, RequestInput] = {}
        steps: list[Step] = []
        text, output = tuple(range(1, 2 + max(map(sum, places)))), tuple(range(50, 57))
        for other in range(len(places) + 1):
            images = tuple(
                Image(f"{'dog' if place + 1 == other else 'cat'} {place}", offset, length)
                for place, (offset, length) in enumerate(places)
            )
            name, prompt = f"{other}", text[: sum(places[-1])]
            requests[name] = RequestInput(prompt, output, images=images)
            told = (*prompt, *output, 60, 61)
            requests[f"next {other}"] = RequestInput(told, (62,), images=images)
            decodes = [Schedule(name, drafts=drafts)] * 6
            steps += [Schedule(name), Schedule(name), Schedule(name), *decodes, Finish(name)]
        for other in reversed(range(len(places) + 1)):
            name = f"next {other}"
            steps += [Lookup(name), Schedule(name), Schedule(name), Finish(name)]
        yield History(engine, requests, tuple(steps))

"""The smallest history that still shows something."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from conformance.histories import EngineConfiguration, History, RequestInput, Schedule
from conformance.subjects import CannotJudge
from spec.groups import Group, GroupKind

_BRANCH = 1000


def shrink(history: History, shows: Callable[[History], bool], budget: int = 3_000) -> History:
    """The smallest history found for which ``shows`` still holds: fewest steps, then the rest.

    Takes away steps, requests, tokens, features and groups, one or many at a time, until nothing
    more can go or ``budget`` histories were tried. Every subset of the steps is a history.
    """
    tries = _Tries(shows, budget)
    history = _renamed(history, tries)
    while True:
        before = history
        for reduced in (_fewer_steps, _simpler):
            history = reduced(history, tries)
        if history == before or tries.left <= 0:
            return replace(_renamed(history, tries, at_least=1), about=history.about)


class _Tries:
    def __init__(self, shows: Callable[[History], bool], budget: int) -> None:
        self._shows = shows
        self.left = budget

    def shows(self, make: Callable[[], History]) -> History | None:
        """The candidate, if it is a history and still shows it."""
        if self.left <= 0:
            return None
        self.left -= 1
        try:
            candidate = make()
            return candidate if self._shows(candidate) else None
        except (ValueError, CannotJudge):  # no history, or none that the target can have
            return None


def _fewer_steps(history: History, tries: _Tries) -> History:
    size = len(history.steps)
    while size:
        start = len(history.steps) - size
        while start > -size:
            first = max(start, 0)
            steps = history.steps[:first] + history.steps[start + size :]
            kept = history
            smaller = tries.shows(lambda kept=kept, steps=steps: replace(kept, steps=steps))
            history = history if smaller is None else smaller
            start -= size
        size //= 2
    return history


def _simpler(history: History, tries: _Tries) -> History:
    """Take the first simplification that still shows it, again and again."""
    going = True
    while going and tries.left > 0:
        going = False
        for make in _simplifications(history):
            smaller = tries.shows(make)
            if smaller is not None:
                history, going = smaller, True
                break
    return history


def _simplifications(history: History) -> Iterator[Callable[[], History]]:
    """Histories that are simpler in one respect, those that take away most first."""
    named = {name for step in history.steps if (name := getattr(step, "request", None))}
    if named != history.requests.keys():
        kept = {name: r for name, r in history.requests.items() if name in named}
        yield lambda: replace(history, requests=kept)
    for index in range(len(history.engine.groups)):
        yield lambda index=index: _without_group(history, index)
    yield from (
        lambda engine=engine: replace(history, engine=engine())
        for engine in _simpler_engines(history)
    )
    for name, request in history.requests.items():
        for simpler in _simpler_requests(request):
            yield lambda name=name, simpler=simpler: replace(
                history, requests=history.requests | {name: simpler()}
            )
    for index, step in enumerate(history.steps):
        for field, default in (("tokens", None), ("drafts", 0), ("accepted", 0), ("external", 0)):
            if isinstance(step, Schedule) and getattr(step, field) != default:
                yield lambda index=index, step=step, field=field, default=default: replace(
                    history,
                    steps=(
                        *history.steps[:index],
                        replace(step, **{field: default}),
                        *history.steps[index + 1 :],
                    ),
                )


def _without_group(history: History, index: int) -> History:
    groups = history.engine.groups
    left = groups[:index] + groups[index + 1 :]
    if len(left) > 1 and len(set(left)) < 2:
        raise ValueError("the hybrid coordinator takes groups of at least two sorts")
    sizes = math.gcd(*(group.block_size for group in left)) if left else 1
    size = history.engine.hash_block_size if len(left) > 1 else sizes
    return replace(history, engine=replace(history.engine, groups=left, hash_block_size=size))


def _simpler_engines(history: History) -> Iterator[Callable[[], EngineConfiguration]]:
    engine = history.engine
    groups = engine.groups
    plain = tuple(replace(group, eagle=False) for group in groups)
    if engine.use_eagle:
        yield lambda: replace(engine, groups=plain, use_eagle=False, num_speculative_tokens=0)
        if engine.num_speculative_tokens:
            yield lambda: replace(engine, num_speculative_tokens=0)
        if plain != groups:
            yield lambda: replace(engine, groups=plain)
    if engine.retention_interval is not None:
        yield lambda: replace(engine, retention_interval=None)
        if engine.retention_interval:
            yield lambda: replace(engine, retention_interval=0)
    if engine.full_sequence_must_fit:
        yield lambda: replace(engine, full_sequence_must_fit=False)
    if engine.max_num_batched_tokens is not None:
        yield lambda: replace(engine, max_num_batched_tokens=None)
    common = math.gcd(*(group.block_size for group in groups))
    if engine.hash_block_size != common:
        yield lambda: replace(engine, hash_block_size=common)
    for size in range(1, max(group.block_size for group in groups)):
        yield lambda size=size: _resized(
            engine, [size if g.block_size > size else 0 for g in groups]
        )
    for index, group in enumerate(groups):
        for size in range(1, group.block_size):
            sizes = [size if i == index else 0 for i in range(len(groups))]
            yield lambda sizes=sizes: _resized(engine, sizes)
        for window in range(2, group.window or 2):
            if window in (2, 3, (group.window or 0) // 2, (group.window or 0) - 1):
                yield lambda index=index, window=window: replace(
                    engine,
                    groups=tuple(
                        replace(g, window=window) if i == index else g for i, g in enumerate(groups)
                    ),
                )
    longest = max((len(r.token_ids) for r in history.requests.values()), default=1)
    if engine.max_model_len > longest:
        yield lambda: replace(engine, max_model_len=longest)
    for blocks in (2, engine.num_gpu_blocks // 2, engine.num_gpu_blocks - 1):
        if 2 <= blocks < engine.num_gpu_blocks:
            yield lambda blocks=blocks: replace(engine, num_gpu_blocks=blocks)


def _resized(engine: EngineConfiguration, sizes: list[int]) -> EngineConfiguration:
    """Groups with other block sizes, 0 for the one that they have."""
    groups = tuple(
        _with_size(group, size or group.block_size)
        for group, size in zip(engine.groups, sizes, strict=True)
    )
    one_size = {GroupKind.MAMBA, GroupKind.CHUNKED_LOCAL} & {group.kind for group in groups}
    if one_size and len({group.block_size for group in groups}) > 1:
        raise ValueError("Mamba and chunked local attention go with one block size for all")
    common = math.gcd(*(group.block_size for group in groups))
    return replace(engine, groups=groups, hash_block_size=common)


def _with_size(group: Group, size: int) -> Group:
    chunk = None if group.chunk is None else group.chunk // group.block_size * size
    return replace(group, block_size=size, chunk=chunk)


def _simpler_requests(request: RequestInput) -> Iterator[Callable[[], RequestInput]]:
    for field, default in (
        ("lora_name", None),
        ("cache_salt", None),
        ("images", ()),
        ("skip_reading_prefix_cache", False),
        ("output", ()),
    ):
        if getattr(request, field) != default:
            yield lambda field=field, default=default: replace(request, **{field: default})
    for part in ("prompt", "output"):
        tokens = getattr(request, part)
        for less in (len(tokens) // 2, 1):
            if 0 < less < len(tokens):
                yield lambda part=part, tokens=tokens, less=less: replace(
                    request, **{part: tokens[:-less]}
                )


def _renamed(history: History, tries: _Tries, at_least: int = 0) -> History:
    """Token ids that count up, and branch only where requests do: easy to read, and the same."""
    if any(request.images for request in history.requests.values()):
        return history
    names: dict[tuple[int, ...], int] = {}
    branches: dict[tuple[int, ...], int] = {}
    requests = {}
    for name, request in history.requests.items():
        tokens: list[int] = []
        offset = 0
        for position in range(len(request.token_ids)):
            prefix = request.token_ids[: position + 1]
            if prefix not in names:
                branch = branches.get(prefix[:-1], 0)
                branches[prefix[:-1]] = branch + 1
                offset = offset if branch == 0 else _BRANCH * (1 + max(names.values()) // _BRANCH)
                names[prefix] = offset + position + 1
            tokens.append(names[prefix])
            offset = tokens[-1] - position - 1
        cut = len(request.prompt)
        requests[name] = replace(request, prompt=tuple(tokens[:cut]), output=tuple(tokens[cut:]))
    tries.left = max(tries.left, at_least)
    renamed = tries.shows(lambda: replace(history, requests=requests))
    return history if renamed is None else renamed

"""The smallest history that still shows something."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    History,
    RequestInput,
    Schedule,
)
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind

_T = TypeVar("_T")

_BRANCH = 1000

_Changes: TypeAlias = dict[str, Any]
"""Fields and their new values."""


def shrink(history: History, shows: Callable[[History], bool], budget: int = 3_000) -> History:
    """The smallest history found for which ``shows`` still holds: fewest steps, then the rest.

    Removes steps, requests, tokens, features and groups, one or many at a time, until nothing
    more can be removed or ``budget`` histories were tried. Every subset of the steps is a history.
    """
    tries = Tries(shows, budget)
    history = _renamed(history, tries)
    while True:
        before = history
        history = simplest(_fewer_steps(history, tries), _simplifications, tries)
        if history == before or tries.left <= 0:
            return replace(_renamed(history, tries, at_least=1), about=history.about)


class Tries(Generic[_T]):
    """Tries candidates, up to a budget, and says which of them still show the finding."""

    def __init__(self, shows: Callable[[_T], bool], budget: int) -> None:
        self._shows = shows
        self.left = budget

    def shows(self, make: Callable[[], _T], than: _T) -> _T | None:
        """The candidate, if it differs from ``than``, the last one, and still shows it."""
        if self.left <= 0:
            return None
        try:
            candidate = make()
            if candidate == than:
                return None
            self.left -= 1
            return candidate if self._shows(candidate) else None
        except (ValueError, CannotJudge):  # no history, or none that the target can have
            return None


def simplest(
    shown: _T, simplifications: Callable[[_T], Iterator[Callable[[], _T]]], tries: Tries[_T]
) -> _T:
    """What is left of ``shown`` when no simplification shows it any more: the first is taken."""
    going = True
    while going and tries.left > 0:
        going = False
        for make in simplifications(shown):
            smaller = tries.shows(make, shown)
            if smaller is not None:
                shown, going = smaller, True
                break
    return shown


def _fewer_steps(history: History, tries: Tries[History]) -> History:
    size = len(history.steps)
    while size:
        start = len(history.steps) - size
        while start > -size:
            first = max(start, 0)
            steps = history.steps[:first] + history.steps[start + size :]
            smaller = tries.shows(partial(replace, history, steps=steps), history)
            history = history if smaller is None else smaller
            start -= size
        size //= 2
    return history


def _simplifications(history: History) -> Iterator[Callable[[], History]]:
    """Histories that are simpler in one respect, the largest reductions first."""
    named = {name for step in history.steps if (name := getattr(step, "request", None))}
    if named != history.requests.keys():
        kept = {name: r for name, r in history.requests.items() if name in named}
        yield partial(replace, history, requests=kept)
    for changes in (*_fewer_groups(history.engine), *_simpler_engines(history)):
        yield partial(_with_engine, history, changes)
    for name, request in history.requests.items():
        for changes in _simpler_requests(request):
            yield partial(_with_request, history, name, changes)
    for index, step in enumerate(history.steps):
        if isinstance(step, Schedule) and step.tokens is not None:
            yield partial(_with_step, history, index, {"tokens": None})
        for changes in _DEFAULTS:
            if any(getattr(step, name, default) != default for name, default in changes.items()):
                kept = {name: value for name, value in changes.items() if hasattr(step, name)}
                yield partial(_with_step, history, index, kept)


def _with_engine(history: History, changes: _Changes) -> History:
    return replace(history, engine=replace(history.engine, **changes))


def _with_request(history: History, name: str, changes: _Changes) -> History:
    request = replace(history.requests[name], **changes)
    return replace(history, requests=history.requests | {name: request})


def _with_step(history: History, index: int, changes: _Changes) -> History:
    steps = list(history.steps)
    steps[index] = replace(steps[index], **changes)
    return replace(history, steps=tuple(steps))


_DEFAULTS: tuple[_Changes, ...] = (
    {"drafts": 0},
    {"accepted": 0},
    {"external": 0, "valid": None, "recompute": False},
    {"valid": None, "recompute": False},
    {"local_prefix": False},
    {"reserved_blocks": 0},
    {"sending": False},
    {"in_flight": False},
)
"""Of the fields of steps; some go together."""


def _fewer_groups(engine: EngineConfiguration) -> Iterator[_Changes]:
    for index in range(len(engine.groups)):
        left = engine.groups[:index] + engine.groups[index + 1 :]
        # The hybrid coordinator needs groups of at least two kinds.
        if len(left) == 1:
            yield {"groups": left, "hash_block_size": left[0].block_size}
        elif len(set(left)) > 1:
            yield {"groups": left}


def _simpler_engines(history: History) -> Iterator[_Changes]:
    engine, groups = history.engine, history.engine.groups
    yield {"variant": 0}
    if engine.num_prefill_lookahead > 1:
        single = tuple(replace(group, prefill_lookahead=1) for group in groups)
        hashes = {"num_hash_lookahead_tokens": min(engine.num_hash_lookahead_tokens, 1)}
        yield {"groups": single, **hashes}
    if engine.use_eagle:
        plain = tuple(replace(group, eagle=False, prefill_lookahead=1) for group in groups)
        without = {"use_eagle": False, "num_hash_lookahead_tokens": 0, "num_speculative_tokens": 0}
        yield {"groups": plain, **without}
        yield {"num_hash_lookahead_tokens": 0}
        yield {"num_speculative_tokens": 0}
        yield {"groups": tuple(replace(group, eagle=False) for group in groups)}
    if not engine.enable_prefix_caching:
        yield {"enable_prefix_caching": True}
    yield {"retention_interval": None}
    if engine.retention_interval:
        yield {"retention_interval": 0}
    yield {"full_sequence_must_fit": False}
    for batches in range(1, min(engine.max_concurrent_batches, 3)):
        yield {"max_concurrent_batches": batches}
    yield {"max_num_batched_tokens": None}
    yield {"hash_block_size": _common_size(groups)}
    for size in range(1, max(group.block_size for group in groups)):
        yield from _resized(groups, [min(size, group.block_size) for group in groups])
    for index, group in enumerate(groups):
        before, after = groups[:index], groups[index + 1 :]
        for size in range(1, group.block_size):
            sizes = [other.block_size for other in groups]
            yield from _resized(groups, [*sizes[:index], size, *sizes[index + 1 :]])
        if group.window is not None:
            for window in sorted({2, 3, group.window // 2, group.window - 1}):
                if 2 <= window < group.window:
                    yield {"groups": (*before, replace(group, window=window), *after)}
    longest = max((len(r.token_ids) for r in history.requests.values()), default=1)
    yield {"max_model_len": min(longest, engine.max_model_len)}
    for blocks in (2, engine.num_gpu_blocks // 2, engine.num_gpu_blocks - 1):
        if 2 <= blocks < engine.num_gpu_blocks:
            yield {"num_gpu_blocks": blocks}


def _resized(groups: tuple[Group, ...], sizes: list[int]) -> Iterator[_Changes]:
    """Groups with other block sizes, where an engine can have them."""
    one_size = {GroupKind.MAMBA, GroupKind.CHUNKED_LOCAL} & {group.kind for group in groups}
    if one_size and len(set(sizes)) > 1:
        return
    resized = []
    for group, size in zip(groups, sizes, strict=True):
        chunk = None if group.chunk is None else group.chunk // group.block_size * size
        resized.append(replace(group, block_size=size, chunk=chunk))
    yield {"groups": tuple(resized), "hash_block_size": _common_size(resized)}


def _common_size(groups: Sequence[Group]) -> int:
    return math.gcd(*(group.block_size for group in groups))


def _simpler_requests(request: RequestInput) -> Iterator[_Changes]:
    yield {"lora_name": None}
    yield {"cache_salt": None}
    yield {"images": ()}
    yield {"embeddings": ()}
    yield {"skip_reading_prefix_cache": False}
    yield {"output": ()}
    for part in ("prompt", "output"):
        tokens = getattr(request, part)
        for less in (len(tokens) // 2, 1):
            if 0 < less < len(tokens):
                yield {part: tokens[:-less]}


def _renamed(history: History, tries: Tries[History], at_least: int = 0) -> History:
    """Token ids that count up, and branch only where requests do: easy to read, and the same."""
    if any(request.images or request.embeddings for request in history.requests.values()):
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
    renamed = tries.shows(partial(replace, history, requests=requests), history)
    return history if renamed is None else renamed

"""What a manager says and keeps of each request, beside its tables.

The Mamba states that it offers to KV connectors, the number of tokens that it says are cached, and
what it keeps of requests that are gone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Name, Naming
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.managers import Observation, OfferedState
from hitproof.spec.groups import Group, GroupKind

_Wrong = tuple[Code, str, str]
"""The code, what is expected, and what is seen instead."""


class OfferedStates:
    """The Mamba states that are offered for storage in one step.

    ``holds`` says whether a block of a group holds the content of a prefix, ``is_modelled`` of
    which groups that can be said.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        prefixes: Naming,
        holds: Callable[[int, int, Name], bool],
        is_modelled: Callable[[Group], bool],
    ) -> None:
        self._engine = engine
        self._prefixes = prefixes
        self._holds = holds
        self._is_modelled = is_modelled
        self._due: dict[tuple[str, int], list[int]] = {}
        self._step: list[Observation] = []

    def computed(
        self, request: str, start: int, end: int, before: Observation, seen: Observation
    ) -> None:
        """The request computed tokens ``start`` to ``end``; states it registered must be offered.

        ``before`` and ``seen`` are the observations before and after the call.
        """
        self._step.append(seen)
        for index, group in enumerate(self._engine.groups):
            if not self._is_judged(group):
                continue
            size, table = group.block_size, seen.tables[request][index]
            for block in range(start // size, min(end // size, len(table))):
                key = index, self._prefixes.name(request, (block + 1) * size)
                new = set(seen.cached.get(key, ())).difference(before.cached.get(key, ()))
                if table[block] and table[block] in new:
                    self._due.setdefault((request, index), []).append((block + 1) * size)

    def _is_judged(self, group: Group) -> bool:
        return group.kind is GroupKind.MAMBA and self._is_modelled(group)

    def freed(self, request: str) -> None:
        """The request gave its blocks back: nothing of it can be stored any more."""
        self._due = {key: ends for key, ends in self._due.items() if key[0] != request}

    def judge(self, offered: Sequence[OfferedState], seen: Observation) -> Iterator[_Wrong]:
        """Judge what was offered in a step that ends."""
        due, self._due = self._due, {}
        step, self._step = self._step, []
        found: dict[tuple[str, int], list[int]] = {}
        for state in offered:
            if wrong := self._wrong_group(state):
                yield wrong
                continue
            if not self._is_judged(self._engine.groups[state.group]):
                continue
            found.setdefault((state.request, state.group), []).append(state.end)
            name = self._prefixes.name(state.request, state.end)
            key = state.group, name
            # A wrong key is a finding of its own, and what was evicted since is not stored.
            registered = any(state.block in each.cached.get(key, ()) for each in (*step, seen))
            if state.request in seen.tables and not registered:
                yield from self._wrong_state(state)
        for (request, group), ends in found.items():
            if max(Counter(ends).values()) > 1:
                spec = f"group {group}: each state of {request} is offered once"
                yield Code.OFFERED_STATE_WRONG, spec, f"those of {ends} tokens are offered"
        for (request, group), ends in due.items():
            given = found.get((request, group), [])
            late = any(first > second for first, second in pairwise(given))
            if late or not set(ends) <= set(given):
                yield (
                    Code.STATE_NOT_OFFERED,
                    f"group {group}: the states of {request} at {ends} tokens are offered in turn",
                    f"those at {given} tokens are offered",
                )

    def judge_final(self, offered: Sequence[OfferedState]) -> Iterator[_Wrong]:
        """Judge what is offered of a request that is about to give its blocks back."""
        for state in offered:
            if wrong := self._wrong_group(state):
                yield wrong
            elif self._is_judged(self._engine.groups[state.group]):
                yield from self._wrong_state(state)

    def _wrong_group(self, state: OfferedState) -> _Wrong | None:
        if self._engine.groups[state.group].kind is GroupKind.MAMBA:
            return None
        spec = f"a state of {state.request} is offered under a group that keeps states"
        return Code.OFFERED_STATE_WRONG, spec, f"it is offered under group {state.group}"

    def _wrong_state(self, state: OfferedState) -> Iterator[_Wrong]:
        name = self._prefixes.name(state.request, state.end)
        if not self._holds(state.group, state.block, name):
            yield (
                Code.OFFERED_STATE_WRONG,
                f"group {state.group}: the block that is offered holds the state of {name}",
                f"block {state.block} does not",
            )


def wrong_estimate(
    engine: EngineConfiguration,
    prefixes: Naming,
    request: str,
    num_tokens: int,
    said: int,
    seen: Observation,
    fine: bool,
) -> Iterator[_Wrong]:
    """How the estimate of cached tokens differs from what is registered of the request.

    Where blocks are larger than hash units, a block counts up to any of its units; ``fine`` is
    whether those that end inside blocks are observed.
    """
    least, most, unit = num_tokens, num_tokens, engine.hash_block_size
    for index, (group, table) in enumerate(
        zip(engine.groups, seen.tables.get(request, ()), strict=True)
    ):
        if not group.prefix_cacheable:
            continue
        size = group.block_size
        step = unit if fine else size
        end = num_tokens // step * step
        while end > 0 and not set(table).intersection(
            seen.cached.get((index, prefixes.name(request, end)), ())
        ):
            end -= step
        least = min(least, max(0, end - size + unit))
        most = min(most, end + step - unit)
    if not least <= said <= most:
        spec = f"{least} to {most}" if least < most else str(least)
        yield Code.CACHED_TOKENS_WRONG, f"{spec} tokens of {request} are cached", f"it says {said}"

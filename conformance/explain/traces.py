"""Traces: a history as TLC shows an error trace, the state after every step and what breaks where.

A `Trace` is data: `conformance.judge.tracing` makes it of a history that was judged, and it goes
through JSON as it is. Writers show a state by its `fields`, and mark those that a step changed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from hitproof.conformance.explain.reasons import Reason
from hitproof.conformance.subject.managers import Observation

Run = tuple[int, int]
"""The first and the last of numbers that go up, or down, by one."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True)


class Standing(_Data):
    """How far a request is.

    Attributes:
        state: waiting, loading, running or finished.
        computed: its computed tokens.
        tokens: the tokens that it has.
    """

    state: str
    computed: int
    tokens: int


class Entry(_Data):
    """Blocks that are registered under one key.

    Attributes:
        group: the group.
        prefix: the prefix that the key stands for (`conformance.histories.naming`).
        blocks: the blocks, in the order of preference.
    """

    group: int
    prefix: str
    blocks: tuple[int, ...]


class State(_Data):
    """What is observable of a manager between two steps.

    Attributes:
        requests: the requests that have arrived.
        tables: the block tables of each request that holds blocks, one per group; 0 is the null
            block.
        cached: what is registered, by group, and there by prefix.
        ref_counts: the reference count of each block that has one.
        free_queue: free blocks in the order of reuse.
    """

    requests: dict[str, Standing]
    tables: dict[str, tuple[tuple[int, ...], ...]]
    cached: tuple[Entry, ...]
    ref_counts: dict[int, int]
    free_queue: tuple[Run, ...]

    @classmethod
    def of(cls, seen: Observation, requests: Mapping[str, Standing]) -> "State":
        """From an observation with names instead of keys."""
        cached = (Entry(group=g, prefix=name, blocks=ids) for (g, name), ids in seen.cached.items())

        def order(entry: Entry) -> tuple[Any, ...]:
            request, _, tokens = entry.prefix.partition("[")
            return entry.group, request, len(tokens), tokens

        return cls(
            requests=dict(requests),
            tables=dict(seen.tables),
            cached=tuple(sorted(cached, key=order)),
            ref_counts=dict(seen.ref_counts),
            free_queue=tuple(runs(seen.free_queue)),
        )

    @property
    def size(self) -> int:
        """How many entries of tables, keys, counts and the queue it has."""
        tables = sum(len(table) for tables in self.tables.values() for table in tables)
        return tables + len(self.cached) + len(self.ref_counts) + len(self.free_queue)

    @property
    def holders(self) -> Counter[int]:
        """How often the block tables have each block."""
        every = (block for tables in self.tables.values() for table in tables for block in table)
        return Counter(block for block in every if block)

    def fields(self) -> dict[str, "Field"]:
        """The state as fields with names, in the order in which they are shown."""
        shown: dict[str, Field] = {}
        for name, each in self.requests.items():
            text = f"{each.state}, {each.computed} of {each.tokens} tokens computed"
            shown[f"request {name}"] = Field((text,))
        for name, tables in self.tables.items():
            for group, table in enumerate(tables):
                shown[f"block table of {name}, group {group}"] = Field(tuple(in_runs(table)))
        for group in dict.fromkeys(entry.group for entry in self.cached):
            entries = (
                f"{entry.prefix}: {block}"
                for entry in self.cached
                if entry.group == group
                for block in entry.blocks
            )
            shown[f"cached, group {group}"] = Field(tuple(entries), one_by_one=True)
        holders = self.holders
        odd = (
            f"{block}: {self.ref_counts.get(block, 0)}"
            for block in sorted(self.ref_counts.keys() | holders.keys())
            if not self.ref_counts.get(block, 0) == holders[block] == 1
        )
        if counts := tuple(odd):
            shown["reference counts"] = Field(counts, one_by_one=True)
        queue = (_run_in_words(*run) for run in self.free_queue)
        return shown | {"free queue": Field(tuple(queue))}


@dataclass(frozen=True)
class Field:
    """A field of a state.

    Attributes:
        items: its value, in parts.
        one_by_one: whether the parts come and go one by one, so that a change is told by them.
    """

    items: tuple[str, ...]
    one_by_one: bool = False


@dataclass(frozen=True)
class Change:
    """A field that differs between two states.

    Attributes:
        name: the field.
        before: its value before, None where it is new.
        after: its value after, None where it is gone.
    """

    name: str
    before: Field | None
    after: Field | None

    @property
    def added(self) -> tuple[str, ...]:
        """The parts that are new."""
        return _without(self.after, self.before)

    @property
    def removed(self) -> tuple[str, ...]:
        """The parts that are gone."""
        return _without(self.before, self.after)


def changes(before: State, after: State) -> list[Change]:
    """The fields that differ, in the order in which they are shown."""
    old, new = before.fields(), after.fields()
    names = dict.fromkeys([*new, *old])
    return [Change(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)]


class Answer(_Data):
    """A lookup, in tokens: the expected hit, and the served one."""

    request: str
    due: int
    served: int


class Broken(_Data):
    """A clause that a step breaks, and why it does.

    Attributes:
        claim: the claim.
        sentence: what the claim or the sanity rule states.
        divergence: how it is violated.
        headline: what is broken where, in a line.
        code: the same as a code.
        call: the manager's method, or "step" where a whole step is judged.
        follows_from: the headline of the finding of which it is a consequence; None for none.
        because: the derivation, from the state.
        spec: what the spec says.
        actual: what the manager did.
    """

    claim: str
    sentence: str
    divergence: str
    headline: str
    code: str
    call: str
    follows_from: str | None
    because: tuple[Reason, ...]
    spec: str
    actual: str


class TracedStep(_Data):
    """A step and the state after it.

    Attributes:
        number: the step, an index.
        step: the step, as histories have it.
        deviation: how it deviated from what was asked; "" when it was done.
        lookups: its lookups.
        changed: the names of the fields that it changed.
        state: the state after it.
        broken: what is first broken by it, and by no step before.
    """

    number: int
    step: dict[str, Any]
    deviation: str
    lookups: tuple[Answer, ...]
    changed: tuple[str, ...]
    state: State
    broken: tuple[Broken, ...]


class Trace(_Data):
    """A history that was played on a manager.

    Attributes:
        engine: the configuration, one fact a line.
        start: the state before the first step.
        steps: the steps that were played; of a history that is too long for all, some of them.
        ended: why the history ended early; "" when it did not.
    """

    engine: tuple[str, ...]
    start: State
    steps: tuple[TracedStep, ...]
    ended: str = ""

    def as_json(self) -> dict[str, Any]:
        """The trace as JSON; `Trace.model_validate` reads it."""
        return self.model_dump(mode="json")

    @property
    def is_whole(self) -> bool:
        """Whether it has all steps, and not those only that were chosen of a long history."""
        return all(place == step.number for place, step in enumerate(self.steps))

    def why(self, claim: str, code: str) -> tuple[Reason, ...]:
        """Why a claim is broken in the way of a code, where it first is; empty if it is not."""
        every = (broken for step in self.steps for broken in step.broken)
        found = (each.because for each in every if (each.claim, each.code) == (claim, code))
        return next(found, ())

    def up_to(self, step: int) -> "Trace":
        """The trace up to a step, an index."""
        steps = tuple(each for each in self.steps if each.number <= step)
        return self.model_copy(update={"steps": steps, "ended": ""})


class _Step(Protocol):
    @property
    def broken(self) -> object:
        """Whether something is broken by it."""


_S = TypeVar("_S", bound=_Step)
_BEFORE_A_BREAK = 5
_AT_THE_START = 3


def chosen(steps: Sequence[_S], most: int) -> list[_S]:
    """At most about ``most`` of the steps: those that break something with the steps before them.

    The first and the last ones are included. The full trace has the rest.
    """
    if len(steps) <= most:
        return list(steps)
    kept = {*range(_AT_THE_START), *range(len(steps) - _BEFORE_A_BREAK, len(steps))}
    for place, step in enumerate(steps):
        if step.broken and len(kept) < most:
            kept.update(range(max(place - _BEFORE_A_BREAK, 0), place + 1))
    return [step for place, step in enumerate(steps) if place in kept]


def runs(numbers: Iterable[int]) -> Iterator[Run]:
    """Numbers in their order, as runs that go up, or down, by one."""
    run: list[int] = []
    for number in numbers:
        step = run[1] - run[0] if len(run) > 1 else None
        if run and abs(number - run[-1]) == 1 and step in (None, number - run[-1]):
            run.append(number)
            continue
        if run:
            yield run[0], run[-1]
        run = [number]
    if run:
        yield run[0], run[-1]


def in_runs(table: Sequence[int]) -> Iterator[str]:
    """A block table in words: runs of blocks, and how many null blocks come one after another."""
    place = 0
    while place < len(table):
        end = place
        while end < len(table) and bool(table[end]) == bool(table[place]):
            end += 1
        if table[place]:
            yield from (_run_in_words(*run) for run in runs(table[place:end]))
        else:
            yield "null" if end - place == 1 else f"null x{end - place}"
        place = end


def _run_in_words(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _without(field: Field | None, other: Field | None) -> tuple[str, ...]:
    left = Counter(() if other is None else other.items)
    found = []
    for item in () if field is None else field.items:
        if left[item]:
            left[item] -= 1
        else:
            found.append(item)
    return tuple(found)

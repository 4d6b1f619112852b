"""Traces on pages: every state as a table, and a slider that chooses one.

Without script (`scripts.TRACE`) the states are below each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hitproof.conformance.explain.traces import Change, State, Trace, TracedStep, changes, chosen

_MOST_STEPS = 200
_MOST_PARTS = 200


@dataclass(frozen=True)
class Row:
    """A field of a state.

    Attributes:
        mark: ``+`` new, ``~`` changed, ``-`` gone, or empty.
        name: the field.
        parts: the parts of its value, each with ``added``, ``removed`` or nothing.
        was: the value before, of a field that changed as a whole.
    """

    mark: str
    name: str
    parts: tuple[tuple[str, str], ...]
    was: str = ""


@dataclass(frozen=True)
class ShownState:
    """A state, and the step that led to it, None at the start.

    Attributes:
        step: the step.
        rows: the fields.
        left_out: how many steps before it are not shown.
    """

    step: TracedStep | None
    rows: tuple[Row, ...]
    left_out: int = 0


@dataclass(frozen=True)
class ShownTrace:
    """A trace as a page shows it.

    Attributes:
        states: the states.
        first: the one that is shown first: where a clause is broken, or the last.
        breaks: the numbers of those at which a clause is broken.
    """

    states: tuple[ShownState, ...]
    first: int
    breaks: tuple[int, ...]

    @staticmethod
    def of(trace: Trace) -> "ShownTrace":
        """The states of a trace; of a long history some of them."""
        states = tuple(_states(trace))
        breaks = tuple(n for n, each in enumerate(states) if each.step and each.step.broken)
        return ShownTrace(states, breaks[0] if breaks else len(states) - 1, breaks)


def _states(trace: Trace) -> Iterator[ShownState]:
    yield ShownState(None, tuple(_rows(trace.start, ())))
    before, after = trace.start, -1
    for step in chosen(trace.steps, _MOST_STEPS):
        rows = tuple(_rows(step.state, changes(before, step.state)))
        yield ShownState(step, rows, step.number - after - 1)
        before, after = step.state, step.number


def _rows(state: State, changed: Sequence[Change]) -> Iterator[Row]:
    by_name = {change.name: change for change in changed}
    for name, field in state.fields().items():
        change = by_name.pop(name, None)
        if change is None:
            yield Row("", name, _parts(field.items))
        elif change.before is None:
            yield Row("+", name, _parts(field.items, "added"))
        elif field.one_by_one:
            parts = [(part, "added" if part in change.added else "") for part in field.items]
            parts += [(part, "removed") for part in change.removed]
            yield Row("~", name, _cut(parts))
        else:
            parts = [(part, "added" if part in change.added else "") for part in field.items]
            yield Row("~", name, _cut(parts), ", ".join(change.before.items) or "empty")
    for change in by_name.values():
        assert change.before is not None
        yield Row("-", change.name, _parts(change.before.items, "removed"))


def _parts(items: Sequence[str], how: str = "") -> tuple[tuple[str, str], ...]:
    return _cut([(item, how) for item in items])


def _cut(parts: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The parts; of very many, those that changed and the first."""
    if len(parts) <= _MOST_PARTS:
        return tuple(parts)
    kept = [part for place, part in enumerate(parts) if place < _MOST_PARTS or part[1]]
    left_out = len(parts) - len(kept)
    return (*kept, *([(f"and {left_out} more", "")] if left_out else []))

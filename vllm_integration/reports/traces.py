"""What a trace tells of each step: what it changed, in the terminal and on pages."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from hitproof.conformance.explain.traces import Change, State, Trace, TracedStep, changes, chosen
from hitproof.conformance.findings.findings import Finding

_MOST_PARTS = 12
_PAGE_STEPS = _PAGE_PARTS = 200

Part: TypeAlias = tuple[str, str]
"""A part of a value, and whether it was ``added``, ``removed`` or neither."""
Row: TypeAlias = tuple[str, str, Sequence[Part], str]
"""A field on a page: the mark of its change, its name, its parts, and what it was before, of one
that changed as a whole."""


def read_trace(trace: Trace | dict[str, Any]) -> Trace:
    """A trace, also if it is JSON."""
    return trace if isinstance(trace, Trace) else Trace.model_validate(trace)


def reasons(finding: Finding) -> list[str]:
    """Why a finding is one, as its trace has it."""
    if finding.trace is None:
        return []
    signature = finding.signature
    because = read_trace(finding.trace).why(signature.claim, str(signature.defect))
    return [reason.text for reason in because]


def told_steps(trace: Trace, most: int) -> Iterator[tuple[int, TracedStep, list[str]]]:
    """About ``most`` steps: how many are left out before it, the step, and what it changed."""
    state, after = trace.start, -1
    for step in chosen(trace.steps, most):
        changed = [in_words(change) for change in changes(state, step.state)]
        yield step.number - after - 1, step, changed
        state, after = step.state, step.number


def in_words(change: Change) -> str:
    """A changed field in a line, the mark of its change first."""
    if change.after is None:
        return f"- {change.name} (was {in_short(change.before.items if change.before else ())})"
    if change.before is None:
        return f"+ {change.name}: {in_short(change.after.items)}"
    if not (change.after.one_by_one and (change.added or change.removed)):
        before = in_short(change.before.items)
        return f"~ {change.name}: {in_short(change.after.items)} (was {before})"
    signs = (("+", change.added), ("-", change.removed))
    return f"~ {change.name}: {'; '.join(f'{s} {in_short(them)}' for s, them in signs if them)}"


def in_short(items: Sequence[str]) -> str:
    """The parts of a value; of many the first and the last."""
    if len(items) > _MOST_PARTS:
        left_out = f"... {len(items) - _MOST_PARTS} more ..."
        items = [*items[: _MOST_PARTS - 2], left_out, *items[-2:]]
    return ", ".join(items) or "empty"


def states(trace: Trace) -> Iterator[tuple[TracedStep | None, list[Row], int]]:
    """The states of a trace as a page shows them, of a long history some of them.

    Each has the step that led to it, None at the start, and how many before it are left out.
    """
    yield None, list(_rows(trace.start, ())), 0
    before, after = trace.start, -1
    for step in chosen(trace.steps, _PAGE_STEPS):
        yield step, list(_rows(step.state, changes(before, step.state))), step.number - after - 1
        before, after = step.state, step.number


def _rows(state: State, changed: Sequence[Change]) -> Iterator[Row]:
    by_name = {change.name: change for change in changed}
    for name, field in state.fields().items():
        change = by_name.pop(name, None)
        if change is None:
            yield "", name, _parts(field.items), ""
        elif change.before is None:
            yield "+", name, _parts(field.items, field.items), ""
        else:
            was = "" if field.one_by_one else ", ".join(change.before.items) or "empty"
            removed = change.removed if field.one_by_one else ()
            yield "~", name, _parts(field.items, change.added, removed), was
    for change in by_name.values():
        assert change.before is not None
        yield "-", change.name, _parts((), (), change.before.items), ""


def _parts(
    items: Sequence[str], added: Sequence[str] = (), removed: Sequence[str] = ()
) -> list[Part]:
    """The parts; of very many, those that changed and the first."""
    parts = [(part, "added" if part in added else "") for part in items]
    parts += [(part, "removed") for part in removed]
    kept = [part for place, part in enumerate(parts) if place < _PAGE_PARTS or part[1]]
    left_out = len(parts) - len(kept)
    return [*kept, *([(f"and {left_out} more", "")] if left_out else [])]

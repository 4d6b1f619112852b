"""What a trace tells of each step: what it changed."""

from collections.abc import Iterator, Sequence
from typing import Any

from hitproof.conformance.explain.traces import Change, Trace, TracedStep, changes, chosen
from hitproof.conformance.findings.findings import Finding

_MOST_PARTS = 12


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

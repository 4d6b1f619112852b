"""Traces in the terminal: the first state whole, after that what each step changed."""

import json
from collections.abc import Sequence

from rich.console import Console

from hitproof.conformance.explain.traces import (
    Broken,
    Change,
    State,
    Trace,
    TracedStep,
    changes,
    chosen,
)
from hitproof.conformance.words import count
from hitproof.vllm_integration.reports.lines import print_cited, print_fact

MOST_STEPS = 40
"""About as many steps as are printed."""
_MOST_PARTS = 12
_INDENT = "  "


def print_trace(trace: Trace, console: Console, most: int = MOST_STEPS) -> None:
    """A trace: ``+`` marks fields that a step makes, ``-`` those it ends, ``~`` those it changes.

    If the history is long, about ``most`` steps are printed, and how many are left out.
    """
    _line("trace: the state after each step; + new, ~ changed, - gone", console, style="bold")
    _line("start", console)
    for name, field in trace.start.fields().items():
        _line(f"{_INDENT}  {name}: {_in_words(field.items)}", console)
    state, after = trace.start, -1
    for step in chosen(trace.steps, most):
        if step.number > after + 1:
            left_out = count(step.number - after - 1, "step")
            more = "; --format json has all" if trace.is_whole else ""
            _line(f"... {left_out} left out{more}", console, style="dim")
        _print_step(state, step, console)
        state, after = step.state, step.number
    if trace.ended:
        _line(f"the history ends here: {trace.ended}", console)


def _print_step(before: State, step: TracedStep, console: Console) -> None:
    _line(f"steps[{step.number}] {json.dumps(step.step)}", console, style="bold")
    if step.deviation:
        _line(f"{_INDENT}  {step.deviation}", console)
    for found in step.lookups:
        hit = count(found.served, "token")
        _line(f"{_INDENT}  lookup of {found.request}: hit of {hit} (expected {found.due})", console)
    changed = changes(before, step.state)
    for change in changed:
        _line(f"{_INDENT}{in_words(change)}", console)
    if not changed and not step.deviation:
        _line(f"{_INDENT}  nothing changes", console)
    for broken in step.broken:
        _print_broken(broken, console)


def in_words(change: Change) -> str:
    """A changed field in a line, the mark of its change first."""
    if change.after is None:
        return f"- {change.name} (was {_in_words(change.before.items if change.before else ())})"
    if change.before is None:
        return f"+ {change.name}: {_in_words(change.after.items)}"
    if not (change.after.one_by_one and (change.added or change.removed)):
        before = _in_words(change.before.items)
        return f"~ {change.name}: {_in_words(change.after.items)} (was {before})"
    parts = [
        f"{sign} {_in_words(them)}"
        for sign, them in (("+", change.added), ("-", change.removed))
        if them
    ]
    return f"~ {change.name}: {'; '.join(parts)}"


def _in_words(items: Sequence[str]) -> str:
    """The parts of a value; of many the first and the last."""
    if len(items) > _MOST_PARTS:
        left_out = f"... {len(items) - _MOST_PARTS} more ..."
        items = [*items[: _MOST_PARTS - 2], left_out, *items[-2:]]
    return ", ".join(items) or "empty"


def _print_broken(broken: Broken, console: Console) -> None:
    at = "after the step" if broken.call == "step" else f"at {broken.call}"
    console.print(
        f"{_INDENT}[bold red]violates a clause[/] {at}: [bold red]{broken.divergence}[/]: ", end=""
    )
    _line(broken.headline, console)
    print_fact("code", broken.code, console)
    print_cited(broken.claim, broken.sentence, console)
    if broken.follows_from is not None:
        print_fact("after", f"it follows from: {broken.follows_from}", console)
    for number, reason in enumerate(broken.because):
        print_fact("" if number else "why", reason.text, console)
    print_fact("spec", broken.spec, console)
    print_fact("vllm", broken.actual, console)


def _line(text: str, console: Console, style: str | None = None) -> None:
    console.print(text, markup=False, style=style)

"""Liveness of locals: what decides the future of a suspended function, and what does not."""

import sys
from collections.abc import Callable
from typing import Any

from hitproof.conformance.exploration.canonical import live_after


def observe(function: Callable[..., Any], *arguments: Any) -> frozenset[str]:
    """The live locals of ``function`` at its first call of the probe that it is given."""
    seen: list[frozenset[str]] = []

    def probe() -> bool:
        frame = sys._getframe(1)
        seen.append(live_after(frame.f_code, frame.f_lasti))
        return True

    function(probe, *arguments)
    return seen[0]


def overwritten(probe: Callable[[], bool]) -> int:
    stale = 1
    kept = 2
    probe()
    stale = 3
    return stale + kept


def branch(probe: Callable[[], bool], maybe: int) -> int:
    value = 1
    if probe():
        value = 2
    return value + maybe


def looped(probe: Callable[[], bool]) -> int:
    total = last = 0
    for step in range(2):
        if probe():
            last = step
            total += last
    return total


def handled(probe: Callable[[], bool]) -> int:
    fallback = 5
    try:
        probe()
    except ValueError:
        return fallback
    return 0


def closed_over(probe: Callable[[], bool]) -> int:
    inner = 1

    def later() -> int:
        return inner

    probe()
    return later()


def test_a_variable_written_before_it_is_read_is_dead() -> None:
    assert observe(overwritten) == {"kept"}


def test_a_variable_read_on_one_branch_is_live() -> None:
    assert observe(branch, 7) == {"value", "maybe"}


def test_a_loop_carries_what_the_next_round_reads() -> None:
    assert observe(looped) == {"probe", "total", "step"}


def test_an_exception_handler_reads_too() -> None:
    assert "fallback" in observe(handled)


def test_variables_of_inner_functions_always_count() -> None:
    assert "inner" in observe(closed_over)

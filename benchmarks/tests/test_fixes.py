"""The benchmark of the fixes: two managers by turns, and the ratio of their shortest times."""

from concurrent.futures import Future
from typing import Any

import pytest

from benchmarks import fixes
from benchmarks.manager import LAYOUTS, OPERATIONS
from benchmarks.sides import reference_side


class Turns:
    """A side that takes these seconds for each operation, in turn."""

    def __init__(self, name: str, seconds: list[float], order: list[str]) -> None:
        self.name, self.seconds, self.order = name, seconds, order

    def submit(self, *_: Any) -> Future[dict[str, list[float]]]:
        self.order.append(self.name)
        future: Future[dict[str, list[float]]] = Future()
        seconds = self.seconds.pop(0)
        future.set_result({operation: [seconds] for operation in OPERATIONS})
        return future


def test_the_shortest_times_are_compared() -> None:
    order: list[str] = []
    sides: Any = [Turns("plain", [2.0, 4.0], order), Turns("fixed", [9.0, 3.0], order)]
    rows = fixes.compare(sides, "full", 4096, 2)
    assert order == ["plain", "fixed", "plain", "fixed"]
    assert [row.operation for row in rows] == [*OPERATIONS]
    assert {(row.plain_ms, row.fixed_ms, row.ratio) for row in rows} == {(2000.0, 3000.0, 1.5)}


def test_a_round_times_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    side = reference_side(LAYOUTS["full"], 16, 256)
    monkeypatch.setitem(fixes._sides, ("full", 256), side)
    for _ in range(2):
        assert all(seconds[0] > 0 for seconds in fixes._play("full", 256).values())

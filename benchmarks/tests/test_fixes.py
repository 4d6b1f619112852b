"""The benchmark of the fixes: what a call executes, and the ratio of two managers."""

from functools import partial
from pathlib import Path

import pytest

from benchmarks import fixes
from benchmarks.manager import LAYOUTS, OPERATIONS
from benchmarks.sides import reference_side

ROOT = Path(__file__).parents[2]


def squares(number: int) -> list[int]:
    return [i * i for i in range(number)]


def test_more_work_is_more_instructions() -> None:
    few, many = (fixes.counted(partial(squares, n)) for n in (10, 1000))
    assert (len(few[1]), len(many[1])) == (10, 1000)
    assert 0 < few[0] * 50 < many[0] < few[0] * 100


def test_every_operation_executes_something() -> None:
    side = reference_side(LAYOUTS["full"], 16, 256)
    found = fixes.executed(side)
    assert [*found] == [*OPERATIONS, "decode"]
    assert all(found.values())


def test_the_ratio_of_two_managers() -> None:
    (row,) = fixes.compared({("full", 4096, "free"): 200}, {("full", 4096, "free"): 300})
    assert (row.operation, row.plain, row.fixed, row.ratio) == ("free", 200, 300, 1.5)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.release
def test_no_fix_makes_manager_or_scheduler_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # its processes import what is measured
    rows = fixes.measured(("full", "full + window 1024"), (4096, 8192))
    assert [row for row in rows if row.ratio > 1.02] == []

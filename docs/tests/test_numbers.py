"""The page about numbers: what is on record is what the model computes."""

from typing import Any

import pytest

from docs import numbers
from hitproof.conformance.numeric.outcome import EXACT, WRONG


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value in a tree, by its place."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return {path: value}
    return {k: v for name, each in items for k, v in leaves(each, f"{path}/{name}").items()}


@pytest.mark.long
@pytest.mark.slow
def test_the_record_is_what_is_computed() -> None:
    pytest.importorskip("torch", reason="the model computes with torch, which releases bring along")
    found, recorded = leaves(numbers.computed()), leaves(numbers._record())
    assert found.keys() == recorded.keys()
    for place, value in found.items():
        is_error = isinstance(value, float)
        wanted = recorded[place]
        assert value == (pytest.approx(wanted, rel=1e-6, abs=EXACT) if is_error else wanted), place


def test_blocks_that_are_not_required_change_nothing_and_the_others_do() -> None:
    for plot in numbers._record()["missing"]:
        for group in plot["groups"]:
            for block in group["blocks"]:
                assert (block["target"] > WRONG) == block["required"]
                assert block["required"] or max(block["target"], block["drafts"]) <= EXACT


def test_bars_are_as_long_as_errors_are_large() -> None:
    widths = list(map(numbers._width, (0.0, 1e-3, 1e-2, 1.0, 10.0, 100.0)))
    assert widths == sorted(widths)
    assert widths[0] == 0
    text = numbers.missing()
    assert text.count("as uncached") == text.count("<td>not required</td>") > 0
    assert "as uncached, off by" in numbers.shared()

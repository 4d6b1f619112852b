"""A crash is known by its message without values, and by where it was raised."""

from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.crashes import crash_defect, message_class


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ValueError("Cannot get 12 free blocks from the pool"),
            "Cannot get # free blocks from the pool",
        ),
        (ValueError("block 3 of req-17 at 0x7f3a"), "block # of req-# at #"),
        (ValueError("[1, 2, 3] is not [4]"), "() is not ()"),
        (KeyError("request-1"), "''"),
        (AssertionError("no blocks for request more"), "no blocks for request #"),
        (AssertionError("Block(block_id=3, of=Owner(name='a'))"), "Block"),
        (TypeError("<Block object at 0x12> has no len()\nmore"), "<> has no len"),
        (
            AttributeError("'Spec' object has no attribute 'window'"),
            "'Spec' object has no attribute 'window'",
        ),
        (AssertionError(), ""),
    ],
)
def test_a_message_loses_its_values(error: Exception, words: str) -> None:
    assert message_class(error) == words


def raised(value: int, *, inside: bool = False) -> Exception:
    def helper() -> None:
        [1 // 0 for _ in range(value)]

    try:
        if inside:
            helper()
        raise ValueError(f"value {value}")
    except Exception as error:
        return error


def test_the_place_is_a_function_of_the_subject() -> None:
    first, second = crash_defect(raised(1)), crash_defect(raised(22))
    assert first == second
    assert first.sentence == "raises ValueError (value #) at raised"
    assert str(crash_defect(raised(1, inside=True), during="store")) == (
        "raises-exception(during=store, error=ZeroDivisionError, "
        "message=integer division or modulo by zero, site=raised)"
    )
    assert crash_defect(ValueError("never raised")).sentence == "raises ValueError (never raised)"


_ASSERTING = """
def asserting(pages, bound):
    assert (
        pages < bound
    )
    assert pages < 1
"""


def test_an_assertion_without_a_message_is_known_by_what_it_asserts(tmp_path: Path) -> None:
    source = tmp_path / "asserting.py"  # pytest gives assertions of this file messages
    source.write_text(_ASSERTING)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(_ASSERTING, source, "exec"), names)

    def sentence(bound: int) -> str:
        with pytest.raises(AssertionError) as raises:
            names["asserting"](3, bound)
        return crash_defect(raises.value).sentence

    assert sentence(2) == "raises AssertionError (pages < bound) at asserting"
    assert sentence(4) == "raises AssertionError (pages < 1) at asserting"
    assert crash_defect(AssertionError()).sentence == "raises AssertionError"

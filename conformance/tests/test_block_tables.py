"""What is wrong with the block tables of an answer, by its code and with what is expected."""

from typing import Any

import pytest

from hitproof.conformance.checks.block_tables import wrong_in_tables
from hitproof.conformance.exploration.symbolic import SymbolicBlock, SymbolicNullBlock
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.spec.groups import Group, GroupKind

LAYOUT = Layout(
    (
        Group(GroupKind.FULL_ATTENTION, 2),
        Group(GroupKind.SLIDING_WINDOW, 2, window=3),
        Group(GroupKind.FULL_ATTENTION, 2, prefix_cacheable=False),
    ),
    6,
    False,
    2,
)


def block(number: int, position: int) -> Any:
    group_id = LAYOUT.looked_up[number].group_ids[0]
    return SymbolicBlock((number, position), group_id, lambda: None)


NULL = SymbolicNullBlock((-1, -1), -1, lambda: None)


def tables(**changes: Any) -> list[Any]:
    right: dict[str, Any] = {
        "full": [block(0, 0), block(0, 1)],
        "sliding": [NULL, block(1, 1)],
        "uncached": [],
    }
    return list({**right, **changes}.values())


def test_right_tables() -> None:
    assert wrong_in_tables(LAYOUT, LookupAnswer(4, tables())) is None


@pytest.mark.parametrize(
    ("given", "code", "spec", "actual"),
    [
        (
            tables()[:2],
            Code.TABLE_COUNT_WRONG,
            "3 block tables, one for each group",
            "2 block tables",
        ),
        (
            tables(uncached=[1]),
            Code.TABLE_OF_UNCACHED_GROUP,
            "an empty block table for group 2, which opts out of prefix caching",
            "[1]",
        ),
        (
            tables(full=[block(0, 0)]),
            Code.TABLE_LENGTH_WRONG,
            "hit of 4 tokens: block table of group 0 of length 2",
            "block table of length 1",
        ),
        (
            tables(full=[block(0, 0), 7]),
            Code.TABLE_ENTRY_NOT_A_BLOCK,
            "a block at position 1 of the block table of group 0",
            "7",
        ),
        (
            tables(full=[block(0, 0), NULL]),
            Code.TABLE_BLOCK_WRONG,
            "hit of 4 tokens: cached block 1 at position 1 of the block table of group 0",
            "the null block",
        ),
        (
            tables(sliding=[NULL, block(0, 1)]),
            Code.TABLE_BLOCK_WRONG,
            "hit of 4 tokens: cached block 1 at position 1 of the block table of group 1",
            "another block",
        ),
    ],
)
def test_wrong_tables(given: list[Any], code: Code, spec: str, actual: str) -> None:
    found = wrong_in_tables(LAYOUT, LookupAnswer(4, given))
    assert found is not None
    assert (found.defect.code, found.spec, found.actual) == (code, spec, actual)

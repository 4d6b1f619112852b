"""The page of 0.33.0 with its fixes: each open fault is fixed or remains, each fix has a row."""

import re

from docs import fixes
from hitproof.conformance.ledger.ledger import CauseStatus, load
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.fixes import RELEASE, all_fixes
from hitproof.vllm_integration.survey import faults


def linked(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\(faults\.md#(\d+)\)", text)]


def test_each_open_fault_is_fixed_or_remains() -> None:
    fixed, remaining = linked(fixes.table()), linked(fixes.remaining())
    causes = {entry.cause for entry in load(LEDGER) if entry.applies_to(RELEASE)}
    there = {
        fault.number
        for fault in faults.load()
        if fault.title in causes and fault.status is CauseStatus.FAULT
    }
    assert sorted(fixed) == sorted(fault.number for fix in all_fixes() for fault in fix.faults)
    assert sorted([*fixed, *remaining]) == sorted(there)
    assert fixes.counted().endswith(f"for {len(fixed)} of the {len(there)} open faults")


def test_the_table_has_each_fix_and_its_codes() -> None:
    rows = fixes.table().splitlines()[2:]
    assert len(rows) == len(all_fixes())
    for fix in all_fixes():
        (row,) = (row for row in rows if f"(faults.md#{fix.number})" in row)
        assert all(f"`{code}`" in row for code in fix.codes)
        assert all(each in row for each in fix.classes)

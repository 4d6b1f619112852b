"""Repairs of vLLM's own: the record is of the cases, and says of each that it is a repair."""

from dataclasses import replace

from docs import repairs
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.vllm_integration.survey.faults import load as load_faults
from hitproof.vllm_integration.tests.reports import conforming, diverging


def test_each_case_is_a_repair() -> None:
    rows = repairs.record()
    assert [{key: row[key] for key in ("fault", "before", "after")} for row in rows] == (
        repairs.cases()
    )
    assert len(rows) >= 10
    faults = {fault.number: fault for fault in load_faults()}
    for row in rows:
        assert row["fault"] in row["shown"]
        assert row["fault"] not in row["left"]
        own = repairs.entries_of(faults[row["fault"]], row["before"])
        assert not {str(entry.signature.defect) for entry in own} & {*row["new"]}
        assert not row["unjudged"]


def test_each_fault_has_entries_before_and_none_after() -> None:
    faults = {fault.number: fault for fault in load_faults()}
    for case in repairs.cases():
        assert repairs.entries_of(faults[case["fault"]], case["before"])
        assert not repairs.entries_of(faults[case["fault"]], case["after"])


def test_the_table_has_a_row_for_each() -> None:
    lines = repairs.table().splitlines()[2:]
    assert len(lines) == len(repairs.cases())
    for line, case in zip(lines, repairs.cases(), strict=True):
        assert f"(faults.md#{case['fault']})" in line
    assert all(f"`{code}`" in repairs.table() for row in repairs.record() for code in row["new"])


def test_what_is_kept_tells_a_repair_from_none() -> None:
    case = repairs.cases()[0]
    fault = next(fault for fault in load_faults() if fault.number == case["fault"])
    (entry, *_) = repairs.entries_of(fault, case["before"])
    (found, *_) = diverging().judgement.new
    before = replace(conforming(), judgement=Judgement((), ((found, entry),), ()))
    repaired = repairs.judged(case, before, conforming())
    assert (repaired["shown"], repaired["left"]) == ([fault.number], [])
    assert repairs.judged(case, before, before)["left"] == [fault.number]
    again = replace(conforming(), judgement=Judgement((found,), (), ()))
    assert repairs.judged(case, before, again)["new"] == [str(found.signature.defect)]


def test_what_is_found_with_a_fix_taken_back_is_found_on_the_release_before_it() -> None:
    faults = {fault.number: fault for fault in load_faults()}
    assert not [row["fix"] for row in repairs.audit() if row["there"] == "no" != row["back"]]
    for row in repairs.audit():
        assert ("fault" in row) == (row["there"] != "no")
        if "fault" in row:
            assert repairs.entries_of(faults[row["fault"]], row["last"])
    assert len(repairs.audit_table().splitlines()) == 2 + len(repairs.audit())

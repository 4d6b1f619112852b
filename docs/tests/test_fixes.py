"""The page of 0.33.0 with its fixes: each open fault is fixed or remains, each fix has a row."""

import re
from dataclasses import replace

from docs import fixes
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import CauseStatus, load
from hitproof.conformance.scope.models import MODELS
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.patches import RELEASE, UNFIXED, all_fixes
from hitproof.vllm_integration.fixes.suites import pinned
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.tests.reports import conforming


def linked(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\(faults\.md#(\d+)\)", text)]


def wanted() -> set[str]:
    """The open faults that have a fix or a reason: of managers, and the worst of schedulers."""
    worst = Divergence.UNSOUND, Divergence.CRASH
    return {
        entry.cause
        for entry in load(LEDGER)
        if entry.applies_to(RELEASE) and faults.status_of(entry) is CauseStatus.FAULT
        if not entry.signature.claim.startswith("tier_")
        if not entry.signature.kind.startswith(("scheduler", "connector"))
        or entry.signature.divergence in worst
    }


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
    assert {*UNFIXED} <= {*remaining}
    assert {fault.number for fault in faults.load() if fault.title in wanted()} <= {
        *fixed,
        *UNFIXED,
    }
    assert fixes.counted().endswith(f"for {len(fixed)} of the {len(there)} open faults")


def test_the_table_has_each_fix_and_its_codes() -> None:
    rows = fixes.table().splitlines()[2:]
    assert len(rows) == len(all_fixes())
    for fix in all_fixes():
        (row,) = (row for row in rows if f"(faults.md#{fix.number})" in row)
        assert all(f"`{code}`" in row for code in fix.codes)
        assert all(each in row for each in fix.classes)


def test_tests_that_expect_a_fault_are_listed_with_the_reason() -> None:
    lines = fixes.pinned().splitlines()
    told = [fix for fix in all_fixes() if fix.pinned]
    assert [linked(line) for line in lines] == [[fix.number] for fix in told]
    assert all(name in line for fix, line in zip(told, lines, strict=True) for name in pinned(fix))


def test_the_record_of_hits() -> None:
    kept = fixes.record()
    assert kept["fixes"] == [fix.number for fix in all_fixes()]  # else renew it
    assert list(kept["hits"]) == [model.name for model in MODELS]
    rows = [row for rows in kept["hits"].values() for row in rows]
    assert {row["retention"] for row in rows} == {"dense", "latest"}
    assert all(row["plain"] <= row["unbounded"] >= row["fixed"] for row in rows)
    refused = sum(not rows for rows in kept["hits"].values())
    assert fixes.hits().count("\n") == len(rows) + refused + 1
    assert all(row["unbounded"] for row in rows)
    assert all(bool(row["lost"]) == (row["fixed"] < row["unbounded"]) for row in rows)


def test_the_record_of_speed() -> None:
    """At most 1.02, and what is added does not grow with the length."""
    added: dict[tuple[str, str], list[int]] = {}
    for row in sorted(fixes.record()["speed"], key=lambda row: row["num_tokens"]):
        assert row["ratio"] <= 1.02
        case = row["layout"], row["operation"]
        added.setdefault(case, []).append(row["fixed"] - row["plain"])
    assert {name for _, name in added} >= {"decode", "schedule, token", "update, prompt"}
    assert all(max(each) == each[0] for each in added.values())


def test_the_record_of_crashes() -> None:
    kept = fixes.record()["crashes"]
    assert all(row["histories"] >= row["plain"] >= row["fixed"] for row in kept.values())
    assert fixes.crashes().count("\n") == len(MODELS) + 1
    play = Play(Origin.SCENARIOS, "1:85")
    crash = next(e.signature for e in load(LEDGER) if e.signature.divergence == Divergence.CRASH)
    plain = replace(conforming(), played=[Played(play, signatures=(crash,))])
    fixed = replace(conforming(), played=[Played(play)])
    (row,) = fixes.crashed(plain, fixed).values()
    assert row == {"histories": 1, "plain": 1, "fixed": 0}


def test_what_is_kept_of_a_simulation() -> None:
    runs = [
        {
            "subject": subject,
            "retention": "dense",
            "hits": hits,
            "unbounded": 9,
            "lost": {"fault": 0, "retention": 9 - hits},
        }
        for subject, hits in ((f"vLLM {RELEASE}", 5), ("vLLM patched", 7))
    ]
    row = {"retention": "dense", "plain": 5, "fixed": 7, "unbounded": 9, "lost": ["retention"]}
    assert fixes.taken({"runs": runs}) == [row]
    assert fixes.taken({"runs": [{**run, "cannot": "it raises"} for run in runs]}) == []

"""The figures of campaigns: what is on record, and what becomes of findings that were not read."""

import json
from pathlib import Path
from typing import Any

import pytest

from docs import campaigns
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.spec.claims import Divergence


def finding(**parameters: str) -> dict[str, Any]:
    defect = Defect.of(Code.REQUEST_NEVER_FINISHES, **parameters)
    claim = defect.booked("accepted_request_finishes")
    return Signature(claim, Divergence.CRASH, "scheduler", False, defect).as_json()


def test_results_are_counted_by_what_bugs_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, new = finding(way="stuck", at_once="prompt"), finding(way="cycle")
    told = [{"found": [known]}, {"found": [known, new]}, {}]
    job = {
        "name": "one",
        "question": {"origin": "scenarios", "histories": ["7:0", "7:1", "7:2"]},
        "result": {"histories": told},
    }
    (tmp_path / "results.jsonl").write_text(json.dumps(job) + "\n")
    (tmp_path / "log").mkdir()
    ended = {"name": "one", "at": 7200.0, "seconds": 3600.0, "worker": "here:1"}
    (tmp_path / "log" / "a.jsonl").write_text(json.dumps(ended) + "\n")
    tables = [{"title": "Branches", "columns": [], "rows": [["block_pool", "4", "3"]]}]
    report = {"targets": ["0.33.0"], "tables": tables, "cannot": {}}
    kept = campaigns.of_campaign(report, tmp_path)
    assert (kept["seed"], kept["hours"], kept["busy"], kept["showing"]) == ("7", 1.0, 100.0, 2)
    assert kept["histories"] == {"scenarios": 3}
    assert kept["branches"] == [["block_pool", 4, 3]]
    ((cause, number),) = kept["causes"].items()
    assert cause.startswith("126. ")
    assert number == 2
    ((name, number),) = kept["new"]
    assert name.endswith("request-never-finishes(way=cycle)")
    assert number == 1
    monkeypatch.setattr(campaigns, "run", lambda: kept)
    monkeypatch.setattr(campaigns, "read", dict)
    assert campaigns.NOT_READ in campaigns.findings()
    assert "3 of 4" in campaigns.figures()


def test_the_whole_self_test_is_on_record() -> None:
    told = campaigns.run()["selftest"]
    survivors = [["f.py:1", function, "a", mutant, ""] for function, mutant in told["survivors"]]
    report = {
        "run": {"processes": 2, "seconds_of_jobs": 7200.0},
        "targets": ["vLLM 0.33.0"],
        "jobs": told["jobs"],
        "tables": [
            {"title": "Mutants", "rows": told["functions"]},
            {"title": "Survivors", "rows": survivors},
        ],
    }
    assert campaigns.of_selftest(report) == told | {"hours": 1.0}
    mutants, caught, same = (sum(int(row[n]) for row in told["functions"]) for n in (1, 2, 3))
    assert mutants == caught + same + len(survivors)
    assert f"| all | {mutants} | {caught} | {same} |" in campaigns.mutants()
    assert f"{told['jobs']} jobs" in campaigns.selftest()
    what = campaigns.read("survivors")
    assert what.keys() == {mutant for _, mutant in told["survivors"]}
    assert all(each in campaigns.survivors() for each in what.values())
    assert not [each for each in what.values() if each.startswith("open")]


def test_all_that_is_on_record_was_read() -> None:
    names = [name for name, _ in campaigns.run()["new"]]
    assert names
    assert {*names} <= campaigns.read().keys()
    assert all(f"| {campaigns.read()[name]} |" in campaigns.findings() for name in names)

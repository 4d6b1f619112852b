"""Repairs of vLLM's own: that a release repaired a fault, and what is left where the fault was.

``python -m docs.repairs`` makes the record anew, in minutes: it checks both releases of each row of
``repairs.toml`` in the configurations and histories with which the ledger shows the fault.
"""

import json
import tomllib
from functools import cache
from typing import Any

from docs.source import ROOT
from hitproof.conformance.ledger.ledger import Entry, load
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.verifying import places
from hitproof.vllm_integration.gate.gate import check
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports import markdown
from hitproof.vllm_integration.survey.faults import Fault
from hitproof.vllm_integration.survey.faults import load as load_faults
from hitproof.vllm_integration.targets.resolving import resolve

_ledger = cache(load)
CASES = ROOT / "docs" / "repairs.toml"
RECORD = ROOT / "docs" / "repairs.json"


def cases() -> list[dict[str, Any]]:
    """The faults, with the releases before and after the repair."""
    found: list[dict[str, Any]] = tomllib.loads(CASES.read_text("utf-8"))["repairs"]
    return found


def record() -> list[dict[str, Any]]:
    """What was found in both releases, by fault."""
    found: list[dict[str, Any]] = json.loads(RECORD.read_text("utf-8"))
    return found


def entries_of(fault: Fault, release: str) -> list[Entry]:
    """What the ledger has of a fault in a release."""
    return [e for e in _ledger(LEDGER) if e.cause == fault.title and e.applies_to(release)]


def judged(case: dict[str, Any], before: Report, after: Report) -> dict[str, Any]:
    """What is kept of the two checks."""
    numbers = {fault.title: fault.number for fault in load_faults()}
    return case | {
        "shown": sorted({numbers[entry.cause] for _, entry in before.judgement.known}),
        "left": sorted({numbers[entry.cause] for _, entry in after.judgement.known}),
        "new": sorted(str(finding.signature.defect) for finding in after.judgement.new),
        "unjudged": sum(len([*each.unsettled, *each.unplayed]) for each in (before, after)),
    }


def table() -> str:
    """A Markdown table with a row for each repair."""
    faults = {fault.number: fault for fault in load_faults()}
    rows = []
    for row in record():
        fault = faults[row["fault"]]
        left = ", ".join(f"[{number}](faults.md#{number})" for number in row["left"])
        linked = f"[{fault.number}. {fault.title}](faults.md#{fault.number})"
        codes = "".join(f"; new: `{code}`" for code in dict.fromkeys(row["new"]))
        rows.append((linked, row["before"], row["after"], f"{left or 'nothing'}{codes}"))
    return markdown.table(("fault", "in", "repaired in", "left where it was"), rows)


def audit() -> list[dict[str, Any]]:
    """Fixes that releases made, and what finds the faults that they repaired."""
    found: list[dict[str, Any]] = tomllib.loads(CASES.read_text("utf-8"))["audit"]
    return found


FOUND = {"check": "a check", "more": "more scenarios", "no": "nothing"}
"""What finds a fault of the audit, in words."""


def audit_table() -> str:
    """A Markdown table with a row for each fix of the audit."""
    lines = ["| fix | last release without | found with the fix taken back by | found there by |"]
    lines.append("|---|---|---|---|")
    for row in audit():
        fix = row["fix"]
        if "fault" in row:
            fix += f" ([{row['fault']}](faults.md#{row['fault']}))"
        lines.append(f"| {fix} | {row['last']} | {FOUND[row['back']]} | {FOUND[row['there']]} |")
    return "\n".join(lines)


def main() -> None:
    """Renew the record."""
    faults = {fault.number: fault for fault in load_faults()}
    kept = []
    for case in cases():
        wanted = places(entries_of(faults[case["fault"]], case["before"]))
        reports = [
            check(
                Run(
                    resolve(case[each]),
                    Profile.QUICK,
                    _ledger(LEDGER),
                    wanted=wanted,
                    shows_known=False,
                ),
                lambda *_: None,
            )
            for each in ("before", "after")
        ]
        kept.append(judged(case, *reports))
        print(kept[-1], flush=True)
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

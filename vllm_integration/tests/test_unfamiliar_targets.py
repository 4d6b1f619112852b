"""Targets with other names and parameters than 0.33.0: judged rightly, or told what was not."""

import json
from typing import Any

import pytest
from rich.console import Console

from hitproof.spec.claims import Status
from hitproof.vllm_integration.reports.check import print_report
from hitproof.vllm_integration.tests.conftest import Copy, Edits, Judge
from hitproof.vllm_integration.tests.reports import inconclusive

HEADER = "@classmethod\n    def {}("
LOOKUPS = "        alignment_tokens: int,\n"
CALLS = ("alignment_tokens=self._cache_hit_alignment_tokens,", "alignment_tokens=self.block_size,")
HASHER = "def get_request_block_hasher("
WHOLE = "        hash_block_size: int,\n        max_in_flight_tokens: int | None = None,\n"
REQUIRED: Edits = {
    LOOKUPS: f"{LOOKUPS}        cache_level: int,\n",
    **{call: f"{call} cache_level=0," for call in CALLS},
}

LOOKUP, FINE = "lookup_returns_longest_valid_hit", "fine_grained_hit_is_vouched_for"
MASK, COMMON = "mask_keeps_every_reachable_block", "common_hit_is_the_longest"
SHARING, JUNCTIONS = "reused_content_is_determined_by_the_hit", "retention_keeps_junctions"
POOL = "null_block_is_never_served"
EVERY = {LOOKUP, FINE, MASK, COMMON, SHARING, JUNCTIONS, POOL}


def with_status(report: dict[str, Any], status: Status) -> set[str]:
    """Those of the claims above whose obligations have the status, all of them."""
    statuses: dict[str, set[str]] = {claim: set() for claim in EVERY}
    for obligation in report["obligations"]:
        if obligation["claim"] in EVERY:
            statuses[obligation["claim"]].add(obligation["status"])
    return {claim for claim, found in statuses.items() if found == {status}}


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize(
    ("version", "edits", "sentence", "unsettled"),
    [
        (
            "0.33.0",
            {"reachable_block_mask": "needed_block_mask"},
            "the mask cannot be found",
            {JUNCTIONS},
        ),
        (
            "0.33.0",
            {"find_longest_cache_hit": "find_the_hit"},
            "has no find_longest_cache_hit",
            {LOOKUP, FINE, COMMON},
        ),
        ("0.33.0", {"alignment_tokens": "hit_grid"}, "requires hit_grid", {LOOKUP, FINE}),
        ("0.33.0", REQUIRED, "requires cache_level, which hitproof does not", {LOOKUP, FINE}),
        (
            "0.33.0",
            {HASHER: "def make_block_hasher("},
            "has no get_request_block_hasher",
            {SHARING},
        ),
        (
            "0.33.0",
            {WHOLE: f"        admission: str,\n{WHOLE}"},
            "KVCacheManager requires admission",
            {MASK, JUNCTIONS},
        ),
    ],
    ids=["mask", "lookup", "renamed", "required", "moved", "manager"],
)
def test_what_cannot_be_checked_is_told_with_what_was(
    version: str, edits: Edits, sentence: str, unsettled: set[str], broken_copy: Copy, judge: Judge
) -> None:
    code, report = judge(broken_copy(version, edits))
    assert (code, report["findings"]) == (3, []), report.get("error")
    reasons = {o["detail"] for o in report["obligations"] if o["status"] == "inconclusive"}
    assert any(sentence in reason for reason in reasons), reasons
    assert with_status(report, Status.INCONCLUSIVE) == unsettled, reasons
    done = {status for status in Status if status is not Status.INCONCLUSIVE}
    assert set().union(*(with_status(report, each) for each in done)) == EVERY - unsettled


@pytest.mark.release
def test_a_mask_of_another_name_is_judged_by_what_is_registered(
    broken_copy: Copy, judge: Judge
) -> None:
    _, report = judge(broken_copy("0.22.1", {"_cache_block_mask": "_mask"}))
    assert with_status(report, Status.PROVED) >= {MASK}


@pytest.mark.long
@pytest.mark.release
def test_a_parameter_that_may_be_left_out_changes_nothing_once_accepted(
    broken_copy: Copy, judge: Judge
) -> None:
    edits = {old: new.replace("level: int,", "level: int = 0,") for old, new in REQUIRED.items()}
    copy = broken_copy("0.33.0", edits)
    code, report = judge(copy)
    assert (code, report["verdict"]) == (3, "inconclusive")
    unfamiliar = report["reads"]["unfamiliar"]
    assert all(name.endswith("Manager.find_longest_cache_hit(cache_level)") for name in unfamiliar)
    code, report = judge(*(word for name in unfamiliar for word in ("--accept-read", name)), copy)
    assert (code, report["verdict"]) == (0, "conforms"), json.dumps(report["obligations"])


@pytest.mark.long
@pytest.mark.release
def test_an_entry_point_renamed_in_one_place_only(broken_copy: Copy, judge: Judge) -> None:
    """The target's own coordinator still calls it by its old name, and crashes."""
    edits = {HEADER.format("find_longest_cache_hit"): HEADER.format("find_the_hit")}
    code, report = judge(broken_copy("0.33.0", edits))
    assert code == 1
    assert {f["signature"]["divergence"] for f in report["findings"]} == {"crash"}


def test_the_text_says_what_was_checked() -> None:
    report = inconclusive()
    console = Console(width=1000, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    print_report(report, console, verbose=False)
    text = console.export_text()
    (claim,) = {o.claim for o in report.unsettled}
    assert f"not checked: {claim} (" in text
    assert "checked    : " in text

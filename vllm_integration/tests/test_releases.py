"""The gate on real releases and on copies of them with one fault each."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.ledger.ledger import load
from hitproof.spec.claims import CLAIMS
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.policies import expected_value
from hitproof.vllm_integration.tests.conftest import (
    OFFLOADING,
    TIER,
    Check,
    Copy,
    JudgeClaims,
    check_json,
    edits,
    hitproof,
    release,
)
from hitproof.vllm_integration.tests.test_golden import GOLDEN, missing

pytestmark = pytest.mark.release

LOOKAHEAD_LEFT_OUT = {
    "claim": "mask_keeps_every_reachable_block",
    "divergence": "lost hit",
    "kind": "sliding_window",
    "eagle": True,
    "pattern": "lookahead block is not registered",
    "code": "lookahead-block-unregistered",
    "parameters": {},
}


SHOWS_LOOKAHEAD = (
    "--quick",
    *("--configuration", "sliding window, block size 4, window 6"),
    *("--configuration", "groups 0: full attention, block size 1; 1: mamba, block size 1"),
    *("--configuration", "corpus history a"),
)
"""Options with which a check shows that the lookahead block is left out."""


def of_release(checked: Check, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a check that other tests share."""
    found = checked(*words)
    return found.code, found.report


def signatures(report: dict[str, Any], where: str = "findings") -> list[dict[str, Any]]:
    return [finding["signature"] for finding in report[where]]


def by_checks(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that no history shows."""
    return [finding for finding in findings if "origin" not in finding["configuration"]]


@pytest.mark.parametrize("profile", [SHOWS_LOOKAHEAD, pytest.param([], marks=pytest.mark.long)])
def test_0_22_1_leaves_out_the_lookahead_block(profile: Sequence[str], checked: Check) -> None:
    code, report = of_release(checked, *profile, "0.22.1")
    assert (code, report["verdict"]) == (1, "diverges")
    # A whole manager shows it of full attention, too, and the hits that it costs.
    assert {finding["class"] for finding in by_checks(report["findings"])} == {"lost hit"}
    finding = report["findings"][signatures(report).index(LOOKAHEAD_LEFT_OUT)]
    assert finding["given"] == [
        "sliding window, block size 1, window 2, alignment 2, EAGLE on",
        "a request of 3 blocks, registered after 3 tokens",
    ]
    assert "lookahead" in finding["spec"]
    assert "block 2 is not registered" in finding["actual"]
    assert [line.split()[0] for line in finding["strip"]] == [
        "block",
        "reachable",
        "registered",
        "#",
    ]
    path, line = finding["source"].split(":")
    assert (
        "def _cache_block_mask"
        in (release("0.22.1") / path).read_text().splitlines()[int(line) - 1]
    )


@pytest.mark.long
@pytest.mark.parametrize("version", ["0.14.0", "0.19.0"])
def test_before_0_20_eagle_needs_one_block_size(version: str, checked: Check) -> None:
    """A window whose blocks are smaller than the alignment is not looked up with EAGLE at all."""
    code, report = of_release(checked, "--quick", version)
    assert (code, report["verdict"]) == (1, "diverges")
    found = by_checks(report["findings"])
    assert {finding["class"] for finding in found} - {"waste"} == {"crash", "lost hit"}
    for finding in found:
        if finding["class"] != "waste" and finding["signature"]["kind"] != "block_hash":
            assert "sliding_window" in finding["signature"]["kind"]
            assert finding["signature"]["eagle"]
    assert not [o for o in report["obligations"] if o["status"] == "inconclusive"]
    crashes = [finding for finding in found if finding["class"] == "crash"]
    assert crashes
    assert all("not compatible with eagle" in crash["actual"] for crash in crashes)


@pytest.mark.parametrize(
    ("version", "statuses"),
    [
        pytest.param("0.26.0", {"not applicable"}, marks=pytest.mark.long),
        ("0.28.0", {"proved", "refuted"}),
    ],
)
def test_what_connectors_are_told_is_judged_from_0_27_on(
    version: str, statuses: set[str], judge_claims: JudgeClaims
) -> None:
    claims = {"local_prefix_lacks_states_only", "local_prefix_is_the_longest"}
    code, report = judge_claims(claims, version)
    assert (code, report["verdict"]) == (0, "conforms")
    for claim in claims:
        settled = {o["status"] for o in report["obligations"] if o["claim"] == claim}
        assert settled == statuses
    known = report["known_divergences"]
    assert {each["claim"] for each in known} == (claims if "refuted" in statuses else set())
    for each in known:
        path, line = each["source"].split(":")
        text = (release(version) / path).read_text().splitlines()[int(line) - 1]
        assert "def get_computed_blocks_for_connector" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "statuses"), [("0.21.0", {"not applicable"}), ("0.23.0", {"proved", "refuted"})]
)
def test_tiers_are_judged_from_0_22_1_on(
    version: str, statuses: set[str], judge_claims: JudgeClaims
) -> None:
    claims = {name for name in CLAIMS if name.startswith("tier_")}
    code, report = judge_claims(claims, version)
    assert (code, report["verdict"]) == (0, "conforms")
    # Layouts that no engine of the release has are left out.
    settled = {o["status"] for o in report["obligations"]} - {"not applicable"}
    assert settled == statuses - {"not applicable"}
    for each in report["known_divergences"]:
        path, line = each["source"].split(":")
        text = (release(version) / path).read_text().splitlines()[int(line) - 1]
        entries = {
            TIER: r"def (store|lookup|load)_mask|def find_longest_cache_hit\b",
            OFFLOADING: "def (get_num_new_matched_tokens|build_connector_meta|update_state_after)",
        }
        assert re.search(entries[path], text)


@pytest.mark.long
def test_0_32_0_forgets_junctions_with_eagle_and_0_33_0_keeps_them(checked: Check) -> None:
    """The check finds what 0.33.0 fixed; the ledger knows it."""
    claim = "retention_keeps_junctions"
    for version, statuses in (("0.32.0", {"proved", "refuted"}), ("0.33.0", {"proved"})):
        _, report = of_release(checked, "--quick", version)
        settled = [o for o in report["obligations"] if o["claim"] == claim]
        assert {o["status"] for o in settled} == statuses
        known = [f["signature"] for f in by_checks(report["known_divergences"])]
        known = [signature for signature in known if signature["claim"] == claim]
        assert {(s["kind"], s["eagle"]) for s in known} == (
            {("sliding_window", True)} if "refuted" in statuses else set()
        )
        assert claim not in {s["claim"] for s in signatures(report)}


PROBED = ["0.14.0", "0.19.0", "0.20.2", "0.22.1", "0.23.0", "0.24.0", "0.26.0", "0.32.0", "0.33.0"]
"""Releases on both sides of where policies change, most of which other tests fetch, too."""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("version", PROBED)
def test_releases_behave_as_the_table_of_policies_says(version: str) -> None:
    result = hitproof("policies", "--format", "json", version)
    assert result.returncode == 0, result.stdout + result.stderr
    policies = json.loads(result.stdout)
    assert {policy["policy"] for policy in policies} == POLICIES.keys()
    for policy in policies:
        assert policy["actual"] == policy["expected"], policy["policy"]


def test_each_value_of_each_policy_is_seen_on_some_release() -> None:
    for policy in POLICIES.values():
        seen = {expected_value(policy, version) for version in PROBED}
        assert seen == {era.value for era in policy.eras}


def test_a_target_that_does_not_behave_as_its_release_is_noticed(broken_copy: Copy) -> None:
    copy = broken_copy("0.33.0", {"hit_length = num_tokens": "hit_length = block_size"})
    result = hitproof("policies", "--format", "json", copy)
    assert result.returncode == 1
    found = {policy["policy"]: policy for policy in json.loads(result.stdout)}
    wrong = {name for name, policy in found.items() if policy["actual"] != policy["expected"]}
    assert wrong == {"hit_granularity"}


@pytest.mark.long
def test_a_policy_change_is_a_finding_unless_it_is_asked_for(broken_copy: Copy) -> None:
    # Nothing is unsound or lost by the policy that the copy shows.
    copy = broken_copy("0.33.0", {"hit_length = num_tokens": "hit_length = block_size"})
    code, report = check_json(copy)
    assert (code, report["verdict"]) == (1, "diverges")
    (change,) = [policy for policy in report["policies"] if policy["change"]]
    assert change["policy"] == "hit_granularity"
    assert (change["expected"], change["actual"], change["value"]) == ("fine", *["aligned"] * 2)
    _, accepted = check_json("--policy", "hit_granularity=aligned", copy)
    assert not [policy for policy in accepted["policies"] if policy["change"]]
    code, by_release = check_json("--policy", "hit_granularity=fine", copy)
    assert code == 1
    assert {finding["claim"] for finding in by_release["findings"]} >= {
        "fine_grained_hit_is_vouched_for"
    }


def test_a_target_that_breaks_down_is_inconclusive(broken_copy: Copy) -> None:
    copy = broken_copy("0.33.0", {"def reachable_block_mask(": "def unreachable_block_mask("})
    result = hitproof("policies", copy)
    assert result.returncode == 3
    assert "unreachable" not in result.stdout
    assert "reachable_block_mask" in result.stderr


@pytest.mark.parametrize("profile", [["--quick"], pytest.param([], marks=pytest.mark.long)])
def test_the_newest_release_conforms_and_every_obligation_is_settled(
    profile: list[str], checked: Check
) -> None:
    found = checked(*profile, "0.33.0")
    report = found.report
    assert (found.code, report["verdict"]) == (0, "conforms"), found.text
    assert {o["status"] for o in report["obligations"]} == {"proved", "refuted"}
    assert {o["claim"] for o in report["obligations"]} >= {LOOKAHEAD_LEFT_OUT["claim"]}
    for obligation in report["obligations"]:
        assert obligation["paths"] > 0
        assert obligation["states"] > 0
        judged = obligation["configuration"]
        assert all(group["block_size"] > 0 for group in judged.get("groups", [judged]))
    models = {o["configuration"]["model"].split(" ")[0] for o in report["obligations"]}
    assert {"Gemma-4-like", "gpt-oss-like", "DeepSeek-V4-like"} <= models
    assert report["target"] == {
        "name": "0.33.0",
        "version": "0.33.0",
        "version_from": "",
        "managers": [],
        "coordinators": [],
        "aliases": [],
    }
    assert all(entry["reason"] for entry in report["known_divergences"])


def test_fields_of_a_check(checked: Check) -> None:
    """Those of findings in a run that has some, the others in a whole one."""
    golden = (GOLDEN / "check.fields").read_text()
    whole, some = checked("--quick", "0.33.0"), checked(*SHOWS_LOOKAHEAD, "0.22.1")
    assert missing(golden, some.report) & missing(golden, whole.report) == set()


@pytest.mark.long
def test_a_removed_ledger_entry_and_a_stale_one_make_it_diverge(
    tmp_path: Path, judge_claims: JudgeClaims
) -> None:
    shutil.copytree(LEDGER.parent / "known", tmp_path / "known")
    first, *others = re.split(r"^(?=\[\[divergence\]\])", LEDGER.read_text(), flags=re.M)[1:]
    removed = tmp_path / "removed.toml"
    removed.write_text("".join(others))
    claims = {load(LEDGER)[0].signature.claim}
    code, report = judge_claims(claims, "--ledger", removed, "0.33.0")
    assert (code, len(report["findings"]), len(report["stale_ledger_entries"])) == (1, 1, 0)
    stale = tmp_path / "stale.toml"
    stale.write_text(LEDGER.read_text() + first.replace('short = "one"', 'short = "several"'))
    code, report = judge_claims(claims, "--ledger", stale, "0.33.0")
    assert (code, len(report["findings"]), len(report["stale_ledger_entries"])) == (1, 0, 1)


FAULTS = edits("claims")


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(
    fault: str, broken_copy: Copy, judge_claims: JudgeClaims
) -> None:
    wanted = FAULTS[fault]
    version, claims = wanted.get("version", "0.33.0"), wanted["claims"]
    code, report = judge_claims(claims, broken_copy(version, dict(wanted["edits"])))
    assert (code, report["verdict"]) == (1, "diverges")
    assert {finding["claim"] for finding in report["findings"]} >= {*claims}
    assert report["target"]["version"] == version


def test_every_history_of_the_ledger_is_named_there() -> None:
    files = {path.name for path in (LEDGER.parent / "known").glob("*.json")}
    assert files
    assert {name for name in files if f"known/{name}" in LEDGER.read_text()} == files
    entries = load(LEDGER)
    assert len(entries) == len({(entry.signature, str(entry.releases)) for entry in entries})

"""What a shadow tells, without vLLM: counts of several processes, ledgers, policies, samples."""

from pathlib import Path

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import RULES
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.histories.json_format import read, read_lines
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.spec.claims import Divergence
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.vllm_integration.shadow.live import _sample
from hitproof.vllm_integration.shadow.report import Report, load_known
from hitproof.vllm_integration.shadow.scope import policies_of

SHORT = Defect.of(Code.HIT_TOO_SHORT, run="whole", short="one")
MORE = Defect.of(Code.UNREACHABLE_BLOCK_REGISTERED, place="inside-chunk")
LOST = Signature("lookup_returns_longest_valid_hit", Divergence.LOST_HIT, "mamba", False, SHORT)
WASTE = Signature("mask_keeps_only_reachable_blocks", Divergence.WASTE, "mamba", False, MORE)


def reported() -> tuple[Report, list[Occurrence]]:
    told: list[Occurrence] = []
    report = Report({WASTE: "it is known"}, managers=1, operations=5, lookups=2, hits=1)
    report.on_new = told.append
    for signature in (LOST, WASTE, LOST):
        report.add(Violation(signature, "a hit of 8", "a hit of 4"), ("one group",), "at a call")
    return report, told


def test_a_known_divergence_is_counted_and_a_new_one_told_each_time() -> None:
    report, told = reported()
    assert [finding.signature for finding in told] == [LOST, LOST]
    assert (report.num_new, report.num_known) == ({LOST: 2}, {WASTE: 1})
    text = told[0].text()
    assert f"lost hit: mamba: {SHORT.sentence}" in text
    assert "  spec  : a hit of 8\n  vllm  : a hit of 4" in text
    assert "given : one group" in text


def test_reports_of_several_processes_add_up() -> None:
    whole, part = reported()[0], reported()[0]
    part.not_judged["because"] += 2
    part.errors["an error"] += 1
    whole.merge(part.as_json())
    assert (whole.managers, whole.operations, whole.lookups) == (2, 10, 4)
    assert (whole.num_new, whole.num_known) == ({LOST: 4}, {WASTE: 2})
    lines = "\n".join(whole.lines())
    assert "divergences: 4 new, 2 known of 1 signature" in lines
    assert "not judged, 2 times: because" in lines
    assert "defect in hitproof, 1 time: an error" in lines


def test_a_report_on_nothing_says_so() -> None:
    assert "shows nothing about vLLM's prefix cache" in Report().lines()[0]


def test_both_ledgers_are_read_and_speak_of_releases(tmp_path: Path) -> None:
    known = {version: load_known(version) for version in ("0.14.0", "0.23.0", None)}
    assert known["0.14.0"].keys() < known["0.23.0"].keys() | known["0.14.0"].keys()
    # A claim of one ledger, and what only the other one has.
    assert any(signature.claim in RULES for signature in known["0.23.0"])
    assert any(signature.kind == "chunked_local" for signature in known["0.23.0"])
    held_twice = Code.TWO_CONTENTS_IN_BLOCK
    assert any(signature.code is held_twice for signature in known["0.23.0"])
    assert not any(signature.code is held_twice for signature in known[None])
    with pytest.raises(LedgerError, match="cannot be read"):
        load_known(None, [tmp_path / "none.toml"])


def test_policies_are_those_of_the_release_or_those_chosen() -> None:
    old, new = policies_of("0.19.1", {}), policies_of(None, {})
    assert (old.horizon, new.horizon) == (LookaheadHorizon.CANDIDATE, LookaheadHorizon.HASHED)
    assert (old.eagle_groups, new.eagle_groups) == (EagleGroups.ALL, EagleGroups.FLAGGED)
    chosen = policies_of(None, {"lookahead_horizon": "capped"})
    assert chosen.horizon is LookaheadHorizon.CAPPED


def test_a_sample_is_a_share_of_the_requests_and_always_the_same() -> None:
    judges = _sample("0.1")
    taken = [name for name in map(str, range(10_000)) if judges(name)]
    assert 800 < len(taken) < 1200
    assert taken == [name for name in map(str, range(10_000)) if _sample("0.1")(name)]
    assert all(_sample("1")(str(number)) for number in range(100))
    for wrong in ("0", "1.5", "many"):
        with pytest.raises(ValueError, match="is a share of the lookups"):
            _sample(wrong)


def test_lines_of_histories_are_read_one_by_one() -> None:
    line = b'{"engine": {"groups": [{"kind": "mamba", "block_size": 2}], "num_gpu_blocks": 4, '
    line += b'"hash_block_size": 2, "max_model_len": 8}, "requests": {}, "steps": []}'
    assert len(read_lines(line + b"\n\n" + line + b"\n", "a file", read)) == 2
    with pytest.raises(HistoryError, match="a file line 2 is not JSON"):
        read_lines(line + b"\n{", "a file", read)
    with pytest.raises(HistoryError, match=r"has no history; a \.jsonl file has one per line"):
        read_lines(b"\n", "a file", read)

"""What targets read of their inputs is reviewed, and what is not makes them inconclusive."""

import json
from pathlib import Path

import pytest

from hitproof.vllm_integration.bundled import READS
from hitproof.vllm_integration.gate.reads import ReadsReport, ReadStanding, reviewed, text
from hitproof.vllm_integration.tests.conftest import Copy, Judge

ENABLED = "        if not self.prefix_cache_lookup_enabled(request):\n"
WATERMARK = "        watermark: float = 0.0,\n"
RSWA = "class RSWAManager("


def test_what_releases_read_is_reviewed() -> None:
    assert len(reviewed()) > 50
    for read in reviewed().values():
        assert read.standing is not ReadStanding.UNREVIEWED, read.name
        assert read.reason
    assert READS.read_text() == text(list(reviewed().values()))


def test_what_is_read_is_told_by_its_standing() -> None:
    assumed = next(r for r in reviewed().values() if r.standing is ReadStanding.ASSUMED)
    names = ["Request.new", "Request.other", "Request.varied", assumed.name]
    report = ReadsReport(names, ["Request.varied"], {"Request.other": "shown"})
    assert report.unfamiliar == ["Request.new"]
    assert [each.name for each in report.assumptions] == [assumed.name, "Request.other"]
    assert report.assumptions[-1].reason == "shown"
    assert "--accept-read" in report.detail
    assert ReadsReport([assumed.name]).detail == ""
    assert ReadsReport(cannot="it hangs").detail == "it hangs"


@pytest.mark.long
@pytest.mark.release
def test_an_unfamiliar_read_is_inconclusive(
    broken_copy: Copy, judge: Judge, tmp_path: Path
) -> None:
    edits = {
        ENABLED: f"        assert request.num_stale_output_tokens >= 0\n{ENABLED}"
        f"{'            request.replay_start'}\n",
        WATERMARK: f'{WATERMARK}        admission: str = "",\n',
        RSWA: f"class LatestSpec(FullAttentionSpec):\n    pass\n\n\n{RSWA}",
        "        self.use_eagle = use_eagle\n": "        self.use_eagle = use_eagle\n"
        "        self.far = kv_cache_config.kv_tp_replicas\n",
    }
    root = broken_copy("0.33.0", edits)
    code, report = judge(root)
    unfamiliar = [
        "KVCacheConfig.kv_tp_replicas",
        "KVCacheManager(admission)",
        "Request.replay_start",
    ]
    assert (code, report["reads"]["unfamiliar"]) == (3, unfamiliar)
    accepted = [word for name in unfamiliar for word in ("--accept-read", name)]
    code, report = judge(root, *accepted)
    assert (code, report["reads"]["unfamiliar"]) == (0, [])
    assert {each["name"] for each in report["reads"]["assumptions"]} >= set(unfamiliar)
    ledger = tmp_path / "ledger.toml"
    entry = '[[accepted_read]]\nname = {}\nreason = "why not"\n'
    names = sorted([*unfamiliar, "Request.gone"])
    ledger.write_text("".join(entry.format(json.dumps(name)) for name in names))
    code, report = judge(root, "--ledger", ledger, "--baseline", "0.33.0")
    assert (code, report["reads"]["unfamiliar"]) == (0, [])
    assert report["reads"]["accepted"] == [
        {"name": name, "reason": "why not", "read": name in unfamiliar} for name in names
    ]

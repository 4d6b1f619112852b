"""Scheduler histories on real releases: each fault is found where it is, and nowhere else."""

import json
import os
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hitproof.conformance.histories import scenarios
from hitproof.conformance.histories.corpus import CORPUS
from hitproof.conformance.histories.json_format import read_lines
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workload_json import (
    is_workload,
    read_any,
    read_workload,
    write_workload,
)
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.tests.drawn import MADE_UP
from hitproof.conformance.tests.editing import history_of
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.replay import SchedulerReport, run_mixed
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.replay import print_report, report_json
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, hitproof, limits
from hitproof.vllm_integration.tests.forkserver import PYTHON
from hitproof.vllm_integration.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
KNOWN = LEDGER.parent / "known"
CASES = tomllib.loads((Path(__file__).parent / "cases/schedulers.toml").read_text("utf-8"))
RELEASES = sorted({release for case in CASES["case"] for release in case["on"]})
RELEASES.sort(key=["0.16.0", "0.23.0", "0.33.0"].__contains__, reverse=True)


def history(case: Mapping[str, Any]) -> SchedulerHistory:
    """The history of a row of the cases."""
    known = (KNOWN / f"{case['known']}.json").read_text("utf-8") if "known" in case else ""
    return history_of(case, CASES, known)


def played(release: str, cases: Iterable[Mapping[str, Any]]) -> list[SchedulerReport]:
    reports = run_mixed(Run(resolve(release), limits=limits()), [*map(history, cases)])
    return [report for report in reports if isinstance(report, SchedulerReport)]


def defects(report: SchedulerReport) -> list[str]:
    assert not report.unsettled
    return [str(found.signature.defect) for found in report.findings]


@pytest.mark.release
@pytest.mark.long(keep=3)
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_does_is_judged(release: str) -> None:
    cases = [case for case in CASES["case"] if release in case["on"]]
    for case, report in zip(cases, played(release, cases), strict=True):
        if "unsettled" in case:
            assert case["unsettled"] in report.unsettled, case
            assert report.verdict is Verdict.INCONCLUSIVE
            continue
        shown = [each for each in defects(report) if each != case.get("may_show")]
        assert shown[:1] == [*filter(None, [case["on"][release]])], case
        lives, hits = list(report.lives.values()), case.get("hits", [])
        assert [life["hit"] for life in lives][: len(hits)] == hits, case
        assert case.get("delivered") in (None, [*lives[0]["delivered"]])
        assert (report.verdict is Verdict.DIVERGES) is bool(report.findings)
        if case.get("ends", "known" not in case):
            assert {life["ended"] for life in lives} == {"finished"}, case


@pytest.mark.release
def test_a_made_up_feature_is_played_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "FEATURES", table := (*scenarios.FEATURES, MADE_UP))
    seeds = [f"1:{turn * len(table) - 1}" for turn in range(1, 4)]
    assert {scenarios.features(seed)[0] for seed in seeds} == {MADE_UP}
    run = Run(resolve("0.33.0"), limits=limits())
    for report in run_mixed(run, [*map(scenarios.scenario, seeds)]):
        assert isinstance(report, SchedulerReport)
        assert report.lives
        assert not report.unsettled


SOUND = Path(__file__).parent / "cases" / "sound.jsonl"
"""Histories without a fault, but for events of managers, in which once something seemed to be."""


@pytest.mark.long
@pytest.mark.release
def test_what_is_right_of_a_release_is_no_finding() -> None:
    histories = read_lines(SOUND.read_bytes(), SOUND.name, read_any)
    for report in run_mixed(Run(resolve("0.33.0"), limits=limits()), histories):
        assert not report.unsettled
        shown = [found.signature for found in report.findings]
        of_schedulers = isinstance(report, SchedulerReport)
        events = "events_describe_the_cache"
        assert not [each for each in shown if of_schedulers or each.claim != events]


PARTS = (
    *("chunks", "columns", "connectors", "copies", "encoders", "ends", "formats", "grammars"),
    *(
        "host_pools",
        "kept",
        "lazily",
        "meanwhile",
        "mooncake",
        "offloads",
        "reads",
        "repaired",
        "repeats",
        "replays",
        "resumed",
        "rooms",
    ),
    *("several", "stores", "tiers", "together", "told", "umbp", "umbp_stores", "ways"),
    "written",
)
"""Those of `broken_parts`, which only the target's process can import."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("part", PARTS)
def test_each_fault_of_a_part_is_found(part: str) -> None:
    ended = subprocess.run(
        [os.environ[PYTHON], "-m", "hitproof.vllm_integration.tests.broken_parts", part],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(resolve("0.33.0").root), str(ROOT / "src")]),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        },
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads(ended.stdout.rpartition("\nfound ")[2])
    assert not found.pop("none")
    assert all(found.values()), found


@pytest.mark.release
def test_checkpoints_where_hits_are_aligned_are_not_judged() -> None:
    cases = [
        {"requests": "plain", "deployment": {"like": like, "mamba_checkpoint_alignment": 16}}
        for like in ("states", "layers")
    ]
    for report in played("0.33.0", cases):
        assert report.verdict is Verdict.INCONCLUSIVE
        assert "Mamba checkpoints are judged where hits may end inside blocks" in report.unsettled


@pytest.mark.release
def test_the_command_plays_histories_of_both_kinds(tmp_path: Path) -> None:
    """Lines of the corpus are of managers and of schedulers."""
    lines = CORPUS.read_bytes().splitlines(keepends=True)
    chosen = [next(line for line in lines if is_workload(line) is kind) for kind in (False, True)]
    path = tmp_path / "histories.jsonl"
    path.write_bytes(b"".join(chosen))
    result = hitproof("replay", str(path), "0.33.0", "--format", "json")
    of_manager, of_scheduler = json.loads(result.stdout)["histories"]
    assert of_manager["lookups"]
    assert of_scheduler["requests"]
    refused = hitproof("replay", str(path), "0.33.0", "--trace")
    assert refused.returncode == 2
    assert "has a history of a scheduler" in refused.stderr


def test_what_is_found_is_printed() -> None:
    report = SchedulerReport(target=resolve("0.33.0"), history=history(CASES["case"][0]))
    report.unsettled = "the worker ended"
    out = StringIO()
    print_report(report, Console(file=out, width=200), verbose=True)
    assert "inconclusive: the worker ended" in out.getvalue()
    assert report_json(report)["exit_code"] == int(Verdict.INCONCLUSIVE)


def test_histories_of_both_kinds_are_told_apart() -> None:
    assert is_workload(write_workload(history(CASES["case"][0])))
    assert not is_workload('{"engine": "scheduler"}')
    assert not is_workload('"scheduler"')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"kind": "scheduler", "requests": {}}', "deployment: this field is required"),
        ("{", "not JSON"),
    ],
)
def test_a_history_that_is_none_is_refused(text: str, reason: str) -> None:
    with pytest.raises(HistoryError, match=reason):
        read_workload(text, "it")


def test_a_scheduler_that_asks_its_configuration_for_more(broken_copy: Copy) -> None:
    """What vLLM's own class of configuration has is there; what ours lacks is one sentence."""
    draft = "        draft = self.vllm_config.speculative_config.draft_model_config\n"
    asks = "        assert draft.max_model_len == self.max_model_len\n"
    asks += "        assert draft.max_logprobs and draft.hf_config.hidden_size\n"
    start = "        super().__init__(*args, **kwargs)\n"
    root = broken_copy("0.33.0", {start: start + draft + asks})
    history = KNOWN / "scheduler_page_freed_in_flight_head_async.json"
    ran = hitproof("replay", history, root)
    assert ran.returncode == Verdict.INCONCLUSIVE
    assert (
        "hitproof's stand-in for the Hugging Face configuration of the draft model has no "
        "attribute 'hidden_size', which vllm/v1/core/sched/async_scheduler.py:"
    ) in ran.stdout


def test_start_up_has_a_block_to_spare_for_the_null_block(broken_copy: Copy) -> None:
    """A pool that vLLM's own check refuses is not judged; without its null block it is played."""
    reserved = "avail_mem - _pool_bytes_per_block_from_builder(builder, vllm_config, groups)"
    root = broken_copy("0.33.0", {reserved: "avail_mem"})
    history = KNOWN / "start_up_counts_no_null_block.json"
    refused = hitproof("replay", history, "0.33.0")
    assert "start-up refuses the deployment (ValueError: To serve at least one" in refused.stdout
    assert "request-never-finishes(way=room)" in hitproof("replay", history, root).stdout

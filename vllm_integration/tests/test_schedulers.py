"""Scheduler histories on real releases: each fault is found where it is, and nowhere else."""

import json
import os
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hitproof.conformance.histories.corpus import CORPUS
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workload_json import (
    is_workload,
    read_workload,
    write_workload,
)
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    HostPool,
    Layers,
    Pause,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.replay import SchedulerReport, run_mixed
from hitproof.vllm_integration.reports.replay import print_report, report_json
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, hitproof, limits, one_sentence
from hitproof.vllm_integration.tests.forkserver import PYTHON
from hitproof.vllm_integration.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
KNOWN = LEDGER.parent / "known"
FULL = Group(GroupKind.FULL_ATTENTION, 16)
PROMPT = tuple(range(1, 66))
REQUESTS = {
    "a": Arrival(PROMPT, (101, 102, 103)),
    "b": Arrival(PROMPT, (104,), after="a"),
    "c": Arrival((*PROMPT, 101, 102, 103, *range(200, 220)), (105, 106), after="b"),
}
ATTENTION = Deployment((FULL,), 60, 128, 48)
STATES = Deployment((FULL, Group(GroupKind.MAMBA, 16)), 60, 128, 64)
MODULES = replace(
    STATES,
    groups=(replace(FULL, eagle=True), STATES.groups[1]),
    speculative_method="mtp",
    num_speculative_tokens=2,
    num_mtp_modules=2,
)


def played(
    release: str, deployment: Deployment, requests: dict[str, Arrival] = REQUESTS
) -> SchedulerReport:
    return played_history(release, SchedulerHistory(deployment, requests))


def played_history(release: str, history: SchedulerHistory) -> SchedulerReport:
    (report,) = run_mixed(resolve(release), [history], limits())
    assert isinstance(report, SchedulerReport)
    return report


def defects(report: SchedulerReport) -> list[str]:
    assert not report.unsettled
    return [str(found.signature.defect) for found in report.findings]


@pytest.mark.release
@pytest.mark.parametrize("release", ["0.16.0", "0.24.0", "0.33.0"])
def test_what_is_right_has_no_finding(release: str) -> None:
    deployment = replace(ATTENTION, async_scheduling=True)
    report = played(release, deployment)
    assert not defects(report)
    assert report.verdict is Verdict.CONFORMS
    assert [life["ended"] for life in report.lives.values()] == ["finished"] * 3
    assert [life["hit"] for life in report.lives.values()] == [0, 64, 64]


@pytest.mark.release
@pytest.mark.parametrize("release", ["0.18.0", "0.33.0"])
def test_what_goes_first_in_a_step_may_take_a_promised_hit(release: str) -> None:
    full, window = Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.SLIDING_WINDOW, 8, 32)
    narrow = Deployment((full, window, window), 20, 38, 21)
    requests = {
        "a": Arrival(tuple(range(1, 20)), (24,)),
        "b": Arrival(tuple(range(1, 21)), (45,), after="a"),
        "c": Arrival(tuple(range(53, 89)), (89, 90)),
    }
    assert not defects(played(release, narrow, requests))


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.23.0", "0.33.0"])
def test_ranks_pauses_and_engines_without_prefix_caching_are_served(release: str) -> None:
    ranks = replace(ATTENTION, ranks=2, async_scheduling=True, v2_model_runner=True)
    assert not defects(played(release, ranks))
    uncached = played(release, replace(ATTENTION, enable_prefix_caching=False))
    assert not defects(uncached)
    assert [life["hit"] for life in uncached.lives.values()] == [0, 0, 0]
    asked = replace(ATTENTION, enable_prefix_caching=False, connector=Connector())
    assert not defects(played(release, asked))
    history = SchedulerHistory(ATTENTION, REQUESTS, (Pause(1, 3), Pause(8, 2, True)))
    paused = played_history(release, history)
    assert not defects(paused)
    assert [life["ended"] for life in paused.lives.values()] == ["finished"] * 3


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.16.0", "0.33.0"])
@pytest.mark.parametrize("following", [False, True])
def test_who_stops_among_drafts_gets_no_more(release: str, following: bool) -> None:
    drafting = replace(
        ATTENTION,
        speculative_method="ngram",
        num_speculative_tokens=3,
        async_scheduling=following,
    )
    stops = replace(REQUESTS["a"], past_end=(150, 151, 152), stop=True, accepted=(3,))
    report = played(release, drafting, {**REQUESTS, "a": stops})
    # From 0.26 on the request that hits all but one token is padded with drafts.
    assert {*defects(report)} <= {"drafts-counted-wrong"}
    assert report.lives["a"]["delivered"] == [101, 102, 103]
    assert [life["hit"] for life in report.lives.values()] == [0, 64, 64]


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize(
    ("deployment", "found"),
    [
        (ATTENTION, []),
        (STATES, []),
        (replace(ATTENTION, async_scheduling=True), []),
        # The step in flight moves the state past what the session goes on with.
        (replace(STATES, async_scheduling=True), ["other-content-read(requests=sessions)"]),
    ],
)
def test_a_session_goes_on_with_what_counts(deployment: Deployment, found: list[str]) -> None:
    first = replace(REQUESTS["a"], past_end=(150, 151), stop=True, session="s")
    requests = {
        "a": first,
        "b": Arrival((*first.kept, *range(200, 220)), (105, 106), after="a", session="s"),
        "c": Arrival((*first.kept, *range(200, 220)), (107,), after="b"),
    }
    report = played("0.33.0", deployment, requests)
    assert defects(report) == found
    assert [life["ended"] for life in report.lives.values()] == ["finished"] * 3
    assert report.lives["b"]["hit"] == len(first.kept)


@pytest.mark.release
@pytest.mark.parametrize(
    ("release", "found"), [("0.32.0", ["session-tokens-wrong"]), ("0.33.0", [])]
)
def test_what_is_accepted_past_a_stop_is_no_input(release: str, found: list[str]) -> None:
    drafting = replace(ATTENTION, speculative_method="ngram", num_speculative_tokens=3)
    first = replace(REQUESTS["a"], past_end=(150, 151, 152), stop=True, accepted=(3,), session="s")
    requests = {
        "a": first,
        "b": Arrival((*first.kept, *range(200, 220)), (105,), after="a", session="s"),
    }
    assert defects(played(release, drafting, requests))[:1] == found


@pytest.mark.long
@pytest.mark.release
def test_a_reset_waits_for_the_transfer_of_what_has_just_ended() -> None:
    """vLLM cannot reset then, and says so; the next plan begins the transfer."""
    requests = {
        "a": Arrival((1,), (2,), send_steps=1),
        "b": Arrival((1,), (3,), arrives=1, after_reset=True),
    }
    report = played("0.33.0", replace(ATTENTION, connector=Connector()), requests)
    assert not defects(report)
    assert [life["ended"] for life in report.lives.values()] == ["finished"] * 2


@pytest.mark.release
def test_what_is_never_scheduled_is_found() -> None:
    stuck = "request-never-finishes(drafts=several-modules, states=mamba, way=stuck)"
    small = replace(MODULES, max_num_batched_tokens=16)
    report = played("0.33.0", small, {"a": Arrival(PROMPT, (101,))})
    assert defects(report) == [stuck]
    assert report.ended
    assert not defects(played("0.33.0", replace(MODULES, max_num_batched_tokens=128)))


@pytest.mark.release
def test_groups_that_are_derived_from_layers_are_judged() -> None:
    layered = replace(
        STATES, layers=(Layers(2), Layers(6)), num_gpu_blocks=30, max_num_batched_tokens=64
    )
    report = played("0.33.0", layered)
    assert not defects(report)
    assert [life["hit"] for life in report.lives.values()] == [0, 64, 64]
    little = played("0.33.0", replace(layered, num_gpu_blocks=2))
    assert little.verdict is Verdict.INCONCLUSIVE
    assert "larger than the available" in little.unsettled


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.24.0", "0.33.0"])
def test_who_is_preempted_in_the_step_that_plans_it_leaves_wrong_keys(release: str) -> None:
    number = "" if release == "0.24.0" else "_2"
    name = f"scheduler_key_names_other_content_full_attention{number}.json"
    history = read_workload((KNOWN / name).read_text(encoding="utf-8"))
    found = defects(played(release, history.deployment, history.requests))
    assert found[0] == "key-names-other-content"
    by_arrival = replace(history.deployment, policy="fcfs")
    assert not defects(played(release, by_arrival, history.requests))


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize(
    ("decode", "prefill", "hit"), [(1, 1, 64), (2, 1, 64), (1, 2, 64), (4, 2, 0)]
)
def test_ranks_share_the_tokens_of_blocks(decode: int, prefill: int, hit: int) -> None:
    ranks = replace(
        ATTENTION,
        groups=(FULL, replace(FULL, block_size=32)),
        decode_context_parallel_size=decode,
        prefill_context_parallel_size=prefill,
    )
    report = played("0.33.0", ranks)
    assert not defects(report)
    assert [life["hit"] for life in report.lives.values()] == [0, hit, hit]


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("way", ["room", "stuck"])
def test_a_host_pool_that_lacks_room_is_found(way: str) -> None:
    name = f"host_pool_request_never_finishes_{way}.json"
    history = read_workload((KNOWN / name).read_text(encoding="utf-8"))
    report = played("0.33.0", history.deployment, history.requests)
    assert defects(report) == [f"request-never-finishes(way={way})"]
    assert history.deployment.host is not None
    host = replace(history.deployment.host, num_blocks=60)
    larger = replace(history.deployment, num_gpu_blocks=200, host=host)
    assert not defects(played("0.33.0", larger, history.requests))


@pytest.mark.long
@pytest.mark.release
def test_a_host_pool_serves_sessions_and_grammars() -> None:
    host = HostPool(22, hot_blocks=1, writes_through=False, delay=1)
    eight = Deployment((Group(GroupKind.FULL_ATTENTION, 8),), 41, 64, 64, host=host)
    prompt = tuple(range(1, 21))
    session = {
        "a": Arrival(prompt, (30, 31), session="s"),
        "b": Arrival((*prompt, 30, *range(40, 52)), (60,), arrives=4, session="s"),
    }
    assert not defects(played("0.33.0", replace(eight, v2_model_runner=True), session))
    grammars = {
        "a": Arrival((3,), (1,)),
        "b": Arrival((3,), (36, 37, 38), grammar_steps=0),
        "c": Arrival(tuple(range(3, 11)), (68,), after="a"),
    }
    ahead = replace(eight, v2_model_runner=True, async_scheduling=True)
    assert not defects(played("0.33.0", ahead, grammars))


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "release", "defect"),
    [
        ("failed_load_delivered_2", "0.33.0", "failed-load-delivered(of=other, policy=recompute)"),
        ("load_into_page_in_flight", "0.23.0", "transferred-page-used(how=in-flight, what=loads)"),
        ("load_into_page_in_flight", "0.24.0", None),
        ("loaded_request_holds_blocks_1", "0.28.0", "request-never-finishes(way=room)"),
        ("loaded_request_holds_blocks_1", "0.33.0", None),
        ("loaded_request_waits_for_pause", "0.31.0", "step-leaves-work(what=loaded)"),
        ("loaded_request_waits_for_pause", "0.33.0", None),
        ("scheduler_admitted_out_of_turn_grammar", "0.30.0", "admitted-out-of-turn"),
        ("scheduler_admitted_out_of_turn_grammar", "0.33.0", None),
        (
            "scheduler_grammar_ignored_mask_async",
            "0.31.0",
            "grammar-ignored(how=mask, scheduling=async)",
        ),
        ("scheduler_grammar_ignored_mask_async", "0.33.0", None),
        ("scheduler_drafts_counted_wrong", "0.33.0", "drafts-counted-wrong"),
        (
            "failed_load_delivered_7",
            "0.29.0",
            "failed-load-delivered(of=own, policy=fail, scheduling=async)",
        ),
    ],
)
def test_what_is_known_of_a_release_is_found(name: str, release: str, defect: str | None) -> None:
    history = read_workload((KNOWN / f"{name}.json").read_text(encoding="utf-8"))
    found = defects(played_history(release, history))
    assert found[:1] == ([] if defect is None else [defect])


PARTS = (
    *("connectors", "encoders", "ends", "formats", "grammars"),
    *("host_pools", "offloads", "replays", "resumed"),
)
"""Those of `broken_parts`, which only the target's process can import."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("words", [*(("broken_parts", part) for part in PARTS), ("broken_tiers",)])
def test_each_fault_of_a_part_is_found(words: tuple[str, ...]) -> None:
    module, *more = words
    ended = subprocess.run(
        [os.environ[PYTHON], "-m", f"hitproof.vllm_integration.tests.{module}", *more],
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
    found = json.loads(ended.stdout.rpartition("found ")[2])
    assert not found.pop("none")
    assert all(found.values()), found


@pytest.mark.release
def test_a_deployment_that_start_up_refuses_is_not_judged() -> None:
    report = played("0.33.0", replace(ATTENTION, num_gpu_blocks=4))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "start-up refuses the deployment (ValueError: To serve at least one" in report.unsettled


@pytest.mark.release
@pytest.mark.parametrize("layers", [(), (Layers(2), Layers(2))], ids=["groups", "layers"])
def test_checkpoints_where_hits_are_aligned_are_not_judged(layers: tuple[Layers, ...]) -> None:
    aligned = replace(STATES, mamba_checkpoint_alignment=16, layers=layers)
    report = played("0.33.0", aligned)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "Mamba checkpoints are judged where hits may end inside blocks" in report.unsettled


@pytest.mark.release
def test_the_command_plays_a_history_of_a_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(write_workload(SchedulerHistory(ATTENTION, REQUESTS)), encoding="utf-8")
    result = hitproof("replay", str(path), "0.33.0", "--format", "json")
    assert result.returncode == 0
    printed = json.loads(result.stdout)
    assert printed["requests"]["b"]["hit"] == 64
    assert printed["verdict"] == "conforms"


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
    report = SchedulerReport(resolve("0.33.0"), SchedulerHistory(ATTENTION, REQUESTS))
    report.unsettled = "the worker ended"
    out = StringIO()
    print_report(report, Console(file=out, width=200), verbose=True)
    assert "inconclusive: the worker ended" in out.getvalue()
    assert report_json(report)["exit_code"] == int(Verdict.INCONCLUSIVE)


def test_histories_of_both_kinds_are_told_apart() -> None:
    assert is_workload(write_workload(SchedulerHistory(ATTENTION, REQUESTS)))
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


def test_a_history_of_a_scheduler_has_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(write_workload(SchedulerHistory(ATTENTION, REQUESTS)), encoding="utf-8")
    result = hitproof("replay", str(path), "0.33.0", "--trace")
    assert result.returncode == int(Verdict.USAGE)
    assert "leave out --trace" in one_sentence(result)


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

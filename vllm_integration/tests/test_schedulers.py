"""Scheduler histories on real releases: each fault is found where it is, and nowhere else."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    HostPool,
    Layers,
    Pause,
    SchedulerHistory,
)
from hitproof.conformance.tests.drawn import MADE_UP
from hitproof.spec.groups import Group, GroupKind
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


SESSION = replace(REQUESTS["a"], past_end=(150, 151), stop=True, session="s")
STOPS = replace(REQUESTS["a"], past_end=(150, 151, 152), stop=True, accepted=(3,))
LATER = (*SESSION.kept, *range(200, 220))
TURNS = {
    "a": SESSION,
    "b": Arrival(LATER, (105, 106), after="a", session="s"),
    "c": Arrival(LATER, (107,), after="b"),
}
NGRAM = replace(ATTENTION, speculative_method="ngram", num_speculative_tokens=3)
AHEAD = replace(ATTENTION, async_scheduling=True)
UNCACHED = replace(ATTENTION, enable_prefix_caching=False)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 8, 32)
EIGHT = Deployment((Group(GroupKind.FULL_ATTENTION, 8),), 41, 64, 64, v2_model_runner=True)
HOSTED = replace(EIGHT, host=HostPool(22, hot_blocks=1, writes_through=False, delay=1))
LAYERED = replace(STATES, layers=(Layers(2), Layers(6)), num_gpu_blocks=30)


@dataclass(frozen=True)
class Case:
    """What a scheduler does with a history: the first defect, hits, and why it is not judged."""

    history: SchedulerHistory
    found: str = ""
    hits: tuple[int, ...] = ()
    delivered: tuple[int, ...] = ()
    may_show: str = ""
    unsettled: str = ""
    ends: bool = True


def case(
    deployment: Deployment,
    requests: Mapping[str, Arrival] = REQUESTS,
    found: str = "",
    pauses: tuple[Pause, ...] = (),
    **expected: Any,
) -> Case:
    return Case(SchedulerHistory(deployment, dict(requests), pauses), found, **expected)


def known(name: str, found: str = "", **changes: Any) -> Case:
    """A known history, perhaps in another deployment."""
    history = read_workload((KNOWN / f"{name}.json").read_text(encoding="utf-8"))
    changed = replace(history, deployment=replace(history.deployment, **changes))
    return Case(changed, found, ends=False)


def with_room(name: str) -> Case:
    """The same history with a larger host pool."""
    host = known(name).history.deployment.host
    assert host is not None
    return known(name, num_gpu_blocks=200, host=replace(host, num_blocks=60))


RIGHT = case(AHEAD, hits=(0, 64, 64))
NARROW = case(  # who goes first in a step may take a promised hit
    Deployment((Group(GroupKind.FULL_ATTENTION, 8), WINDOW, WINDOW), 20, 38, 21),
    {
        "a": Arrival(tuple(range(1, 20)), (24,)),
        "b": Arrival(tuple(range(1, 21)), (45,), after="a"),
        "c": Arrival(tuple(range(53, 89)), (89, 90)),
    },
)
# From 0.26 on the request that hits all but one token is padded with drafts.
STOPPED = case(
    NGRAM,
    REQUESTS | {"a": STOPS},
    hits=(0, 64, 64),
    delivered=(101, 102, 103),
    may_show="drafts-counted-wrong",
)
INPUT = {  # what is accepted past a stop is none
    "a": replace(STOPS, session="s"),
    "b": Arrival((*STOPS.kept, *range(200, 220)), (105,), after="a", session="s"),
}
_AHEAD = replace(STOPPED.history, deployment=replace(NGRAM, async_scheduling=True))
STOPPED_AHEAD = replace(STOPPED, history=_AHEAD)
MASK, TURN = "scheduler_grammar_ignored_mask_async", "scheduler_admitted_out_of_turn_grammar"
ROOM, WAITS = "loaded_request_holds_blocks_1", "loaded_request_waits_for_pause"
KEYS = "scheduler_key_names_other_content_full_attention"
NO_ROOM = "host_pool_request_never_finishes"
STUCK = "request-never-finishes"
CASES: dict[str, list[Case]] = {
    "0.16.0": [RIGHT, STOPPED, STOPPED_AHEAD],
    "0.18.0": [NARROW],
    "0.23.0": [
        known("load_into_page_in_flight", "transferred-page-used(how=in-flight, what=loads)"),
        case(replace(AHEAD, ranks=2, v2_model_runner=True)),
        case(UNCACHED, hits=(0, 0, 0)),
        case(replace(UNCACHED, connector=Connector())),
        case(ATTENTION, pauses=(Pause(1, 3), Pause(8, 2, True))),
    ],
    "0.24.0": [
        RIGHT,
        known("load_into_page_in_flight"),
        known(KEYS, "key-names-other-content"),
        known(KEYS, policy="fcfs"),
    ],
    "0.28.0": [known(ROOM, f"{STUCK}(way=room)")],
    "0.29.0": [
        replace(
            known(
                "failed_load_delivered_7",
                "failed-load-delivered(of=own, policy=fail, scheduling=async)",
            ),
            may_show="preempted-wrongly(how=use)",
        )
    ],
    "0.30.0": [known(TURN, "admitted-out-of-turn")],
    "0.31.0": [
        known(WAITS, "step-leaves-work(what=loaded)"),
        known(MASK, "grammar-ignored(how=mask, scheduling=async)"),
    ],
    "0.32.0": [case(NGRAM, INPUT, "session-tokens-wrong")],
    "0.33.0": [
        RIGHT,
        NARROW,
        STOPPED,
        STOPPED_AHEAD,
        case(replace(AHEAD, ranks=2, v2_model_runner=True)),
        case(UNCACHED, hits=(0, 0, 0)),
        case(replace(UNCACHED, connector=Connector())),
        case(ATTENTION, pauses=(Pause(1, 3), Pause(8, 2, True))),
        *(case(each, TURNS, hits=(0, len(SESSION.kept))) for each in (ATTENTION, STATES, AHEAD)),
        # The step in flight moves the state past what the session goes on with.
        case(
            replace(STATES, async_scheduling=True), TURNS, "other-content-read(requests=sessions)"
        ),
        case(NGRAM, INPUT),
        # A reset waits for the transfer of what has just ended: the next plan begins it.
        case(
            replace(ATTENTION, connector=Connector()),
            {
                "a": Arrival((1,), (2,), send_steps=1),
                "b": Arrival((1,), (3,), arrives=1, after_reset=True),
            },
        ),
        case(
            replace(MODULES, max_num_batched_tokens=16),
            {"a": Arrival(PROMPT, (101,))},
            f"{STUCK}(drafts=several-modules, states=mamba, way=stuck)",
            ends=False,
        ),
        case(replace(MODULES, max_num_batched_tokens=128)),
        case(LAYERED, hits=(0, 64, 64)),
        case(replace(LAYERED, num_gpu_blocks=2), unsettled="larger than the available"),
        case(
            replace(ATTENTION, num_gpu_blocks=4),
            unsettled="start-up refuses the deployment (ValueError: To serve at least one",
        ),
        *(
            case(
                replace(
                    ATTENTION,
                    groups=(FULL, replace(FULL, block_size=32)),
                    decode_context_parallel_size=decode,
                    prefill_context_parallel_size=prefill,
                ),
                hits=(0, hit, hit),
            )
            for decode, prefill, hit in ((1, 1, 64), (2, 1, 64), (1, 2, 64), (4, 2, 0))
        ),
        *(
            each
            for way in ("room", "stuck")
            for name in [f"{NO_ROOM}_{way}"]
            for each in (known(name, f"{STUCK}(way={way})"), with_room(name))
        ),
        case(  # a host pool serves sessions and grammars
            HOSTED,
            {
                "a": Arrival(tuple(range(1, 21)), (30, 31), session="s"),
                "b": Arrival((*range(1, 21), 30, *range(40, 52)), (60,), arrives=4, session="s"),
            },
        ),
        case(
            replace(HOSTED, async_scheduling=True),
            {
                "a": Arrival((3,), (1,)),
                "b": Arrival((3,), (36, 37, 38), grammar_steps=0),
                "c": Arrival(tuple(range(3, 11)), (68,), after="a"),
            },
        ),
        known(f"{KEYS}_2", "key-names-other-content"),
        known(f"{KEYS}_2", policy="fcfs"),
        known("failed_load_delivered_2", "failed-load-delivered(of=other, policy=recompute)"),
        *map(known, (ROOM, WAITS, TURN, MASK)),
        known("scheduler_drafts_counted_wrong", "drafts-counted-wrong"),
        case(  # under dense retention the lookup loses the hit, too
            Deployment(
                (
                    Group(GroupKind.FULL_ATTENTION, 4),
                    Group(GroupKind.SLIDING_WINDOW, 6, 17, eagle=True),
                ),
                *(19, 22, 119),
                speculative_method="eagle",
                num_speculative_tokens=1,
                lookahead_hashes=False,
            ),
            {name: Arrival(tuple(range(6, 27)), (1,)) for name in "ab"},
            "promised-hit-missed(by=retention, to=resend)",
        ),
        case(  # in a larger pool the other one runs beside it, which makes its chunk small enough
            Deployment(
                (Group(GroupKind.FULL_ATTENTION, 4),),
                *(9, 23, 92),
                max_num_seqs=3,
                enable_chunked_prefill=False,
                long_prefill_token_threshold=3,
                max_num_scheduled_tokens=6,
                watermark=0.25,
                policy="priority",
                enable_prefix_caching=False,
            ),
            {
                "a": Arrival(tuple(range(15)), tuple(range(1, 9)), priority=2),
                "b": Arrival(tuple(range(20, 35)), (24,)),
                "d": Arrival(tuple(range(40, 56)), (44,), arrives=1, priority=2),
            },
            f"{STUCK}(at_once=prompt, way=stuck)",
            ends=False,
        ),
    ],
}
"""By release."""


def played(
    release: str, deployment: Deployment, requests: Mapping[str, Arrival] = REQUESTS
) -> SchedulerReport:
    return all_played(release, [case(deployment, requests)])[0]


def all_played(release: str, cases: Sequence[Case]) -> list[SchedulerReport]:
    reports = run_mixed(Run(resolve(release), limits=limits()), [each.history for each in cases])
    return [report for report in reports if isinstance(report, SchedulerReport)]


def defects(report: SchedulerReport) -> list[str]:
    assert not report.unsettled
    return [str(found.signature.defect) for found in report.findings]


@pytest.mark.release
@pytest.mark.long(keep=3)
@pytest.mark.parametrize("release", sorted(CASES, key=["0.33.0", "0.23.0", "0.16.0"].count)[::-1])
def test_what_a_release_does_is_judged(release: str) -> None:
    cases = CASES[release]
    for case, report in zip(cases, all_played(release, cases), strict=True):
        assert case.unsettled in report.unsettled, case
        if case.unsettled:
            assert report.verdict is Verdict.INCONCLUSIVE
            continue
        shown = [each for each in defects(report) if each != case.may_show]
        assert shown[:1] == ([case.found] if case.found else []), case
        lives = list(report.lives.values())
        assert tuple(life["hit"] for life in lives)[: len(case.hits)] == case.hits, case
        if case.delivered:
            assert tuple(lives[0]["delivered"]) == case.delivered
        assert (report.verdict is Verdict.DIVERGES) is bool(report.findings)
        assert not case.ends or {life["ended"] for life in lives} == {"finished"}, case


@pytest.mark.release
def test_a_made_up_feature_is_played_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "FEATURES", table := (*scenarios.FEATURES, MADE_UP))
    seeds = [f"1:{turn * len(table) - 1}" for turn in range(1, 4)]
    assert {scenarios.features(seed)[0] for seed in seeds} == {MADE_UP}
    for report in run_mixed(
        Run(resolve("0.33.0"), limits=limits()), [*map(scenarios.scenario, seeds)]
    ):
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
    *("several", "stores", "tiers", "told", "umbp", "umbp_stores", "ways"),
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
@pytest.mark.parametrize("layers", [(), (Layers(2), Layers(2))], ids=["groups", "layers"])
def test_checkpoints_where_hits_are_aligned_are_not_judged(layers: tuple[Layers, ...]) -> None:
    aligned = replace(STATES, mamba_checkpoint_alignment=16, layers=layers)
    report = played("0.33.0", aligned)
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

"""`hitproof simulate`: real managers and the reference on one workload."""

import csv
import io
import json
import os
import sys
from contextlib import closing, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.simulation.causes import Cause
from hitproof.conformance.simulation.generators import GENERATORS, forks
from hitproof.spec.groups import alignment
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.doctor import read_model, with_paths
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.gate.simulate import (
    Deployment,
    Simulated,
    TierDeployment,
    engine_of,
    simulate,
    simulate_tier,
)
from hitproof.vllm_integration.reports.html.charts import simulate_page
from hitproof.vllm_integration.reports.simulate import lookups, simulated_csv, simulated_json
from hitproof.vllm_integration.survey import costs
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import limits

PYTHON = os.environ.get("HITPROOF_PYTHON", sys.executable)
HEADLINE = "conversations", "DeepSeek-V4-like", 6.5, (None, 4096, 0)


def simulated(
    name: str,
    model: str,
    pool: float,
    retentions: tuple[int | None, ...],
    targets: tuple[str, ...] = (),
    **options: Any,
) -> Simulated:
    workload = GENERATORS[name](options.get("requests", 6), options.get("tokens", 16_384), 1)
    chosen = next(each for each in MODELS if each.name == model)
    engine = engine_of(
        chosen,
        workload,
        eagle=options.get("eagle", False),
        chunk=2048,
        blocks=None,
        pool_requests=pool,
    )
    return simulate(
        workload,
        Deployment(engine, retentions, options.get("max_num_seqs", 1), model),
        [resolve(each) for each in targets],
        limits(120.0),
        reference=True,
        progress=options.get("progress", lambda *_: None),
    )


def outcome(found: Simulated, subject: str, retention: int | None) -> list[Any]:
    run = next(r for r in found.runs if (r.subject, r.retention) == (subject, retention))
    assert not run.cannot
    return [
        (each.hit, each.valid, each.refused, each.preempted, each.finished, each.held)
        for each in run.served
    ]


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.22.1", "0.23.0", "0.33.0"])
def test_releases_and_the_reference_with_their_policies_serve_the_headline_alike(
    release: str,
) -> None:
    """vLLM PR #43447, small: who hits the first conversation after k others."""
    found = simulated(*HEADLINE, (release,))
    shown = {(s, r): hits for s, r, hits in lookups(found)}
    refused = [run.retention for run in found.runs if run.cannot]
    assert refused == ([4096, 0] if release == "0.22.1" else [])
    assert not any(run.failed for run in found.runs)
    for retention in (None,) if refused else (None, 4096, 0):
        assert outcome(found, f"vLLM {release}", retention) == outcome(
            found, f"reference as {release}", retention
        )
    assert shown["reference", "latest"] == "replay after 0 to replay after 5: 16128"
    assert shown[f"vLLM {release}", "dense"] != shown["reference", "latest"]
    if not refused:
        assert shown[f"vLLM {release}", "latest"] == shown["reference", "latest"]


@pytest.mark.release
def test_a_fault_of_a_release_is_the_cause_of_its_losses() -> None:
    """Of 0.22.1, the mask omits the lookahead block, so that EAGLE gets no hit (BUGS 8)."""
    found = simulated(
        "resends", "DeepSeek-V4-like", 3, (None,), ("0.22.1",), requests=24, tokens=4000, eagle=True
    )
    run = found.runs[0]
    assert not any(each.hit for each in run.served)
    assert {cause for cause, tokens in run.lost.items() if tokens} == {Cause.FAULT}
    assert set(run.faults) == {"lookahead-block-unregistered"}
    assert not any(each.faults for each in found.runs[1:])


@pytest.mark.release
def test_a_release_and_the_reference_preempt_alike() -> None:
    found = simulated(
        "chat", "Gemma-3-like", 1.5, (None,), ("0.33.0",), requests=40, tokens=2048, max_num_seqs=6
    )
    ours, theirs = (outcome(found, s, None) for s in ("reference as 0.33.0", "vLLM 0.33.0"))
    assert [each[0] for each in ours] == [each[0] for each in theirs]
    assert sum(each[2] for each in theirs)
    assert all(hit == valid for hit, valid, *_ in theirs)


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.33.0", "0.23.0", "0.24.0", "0.26.0", "0.30.0", "0.21.0"])
def test_each_lost_hit_of_a_release_has_a_name(release: str) -> None:
    """On every preset model, with drafts and without, from one to four alignments."""
    target = resolve(release)
    with closing(Session.of(target, limits(300.0))) as session:
        for model, eagle, thirds in product(MODELS, (False, True), (4, 6, 11)):
            unit = alignment(model.groups)
            workload = forks(24, unit * thirds // 3 + thirds % 2, 1)
            if not model.configurations(eagle):
                continue
            played = engine_of(
                model, workload, eagle=eagle, chunk=8192, blocks=1024, pool_requests=0
            )
            found = simulate(
                workload,
                Deployment(played, (None, 0, 2 * unit), 1, model.name),
                [target],
                limits(300.0),
                reference=False,
                progress=lambda *_: None,
                opened=lambda _: nullcontext(session),
            )
            assert not found.runs[0].cannot
            for run in found.runs:
                assert not run.failed
                assert run.cannot or not run.lost[Cause.UNKNOWN], (model.name, eagle, workload)


def test_the_reference_alone_is_simulated_without_a_worker() -> None:
    phases: dict[str, tuple[int, int]] = {}

    def progress(phase: str, done: int, total: int) -> None:
        phases[phase] = done, total

    found = simulated(*HEADLINE, progress=progress)
    assert phases["hashes"] == (12, 12)
    assert phases["reference, retention dense"] == (6 * 16_384, 6 * 16_384)
    shown = simulated_json(found)
    assert json.loads(json.dumps(shown)) == shown
    assert [run["retention"] for run in shown["runs"]] == ["dense", "4096", "latest"]
    for run in shown["runs"]:
        assert sum(run["lost"].values()) == run["unbounded"] - run["hits"]
        assert len(run["requests"]) == 12
    rows = list(csv.DictReader(io.StringIO(simulated_csv(found))))
    assert len(rows) == 3 * 12
    assert sum(int(row["hit"]) for row in rows) == sum(run["hits"] for run in shown["runs"])
    page = simulate_page(found, "hitproof simulate")
    assert page.count("<svg") == 4
    assert page.count("<script") == 1  # the page's own
    assert "http-equiv" in page


@pytest.mark.long
def test_the_costs_of_faults_are_what_is_measured() -> None:
    recorded = costs.read()
    assert recorded.keys() == costs.BEHAVIOURS.keys()
    model = next(each for each in MODELS if each.name == "gpt-oss-like")
    for number, found in costs.measure([model]).items():
        assert found == [each for each in recorded[number] if each.model == model.name]
    lost = {each.workload: each for each in recorded[11] if each.model == model.name}["resends"]
    assert lost.with_it < lost.without
    assert f"{model.name} {lost.percent[0]} to {lost.percent[1]}" in costs.in_words(recorded[11])


def ran(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["simulate", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def test_a_workload_is_written_read_and_played(tmp_path: Path) -> None:
    file, options = tmp_path / "w.json", ("--reference", "--format", "json")
    code, made, _ = ran("agents", "--requests", 5, "--tokens", 512, "--write", file, *options)
    assert code == 0
    code, again, _ = ran(file, *options)
    assert code == 0
    keys = ("hits", "unbounded", "foresight", "lost")
    (first,), (second,) = (json.loads(text)["runs"] for text in (made, again))
    assert [first[key] for key in keys] == [second[key] for key in keys]


def test_a_trace_is_played(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"timestamp": 0, "input_length": 1000, "output_length": 20, "hash_ids": [7, 8]}
    trace.write_text("\n".join([json.dumps(line), json.dumps(line | {"timestamp": 9})]))
    code, text, _ = ran(trace, "--reference", "--format", "csv")
    assert code == 0
    assert [row["hit"] for row in csv.DictReader(io.StringIO(text))] == ["0", "992"]


def test_the_schema_is_printed() -> None:
    code, text, _ = ran("--schema")
    assert code == 0
    assert json.loads(text)["properties"]["requests"]


# --- a second tier

OFFLOADING = ("--kv-offloading-size", "4")
STORE = ("--kv-transfer-config", '{"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}')
SIMPLE = (STORE[0], STORE[1].replace("MooncakeStore", "SimpleCPUOffload"))
DRAFTS = (
    "--speculative-config",
    '{"method": "eagle", "model": "llama-3-8b-eagle", "num_speculative_tokens": 2}',
)
TIERS: dict[str, tuple[str, str, tuple[str, ...], set[Cause]]] = {
    "room": (
        "chat",
        "llama-3-8b",
        ("--kv-offloading-size", "0.2"),
        {Cause.TIER_ROOM, Cause.TIER_STORE},
    ),
    "prompts": ("chat", "llama-3-8b", OFFLOADING, {Cause.TIER_STORE}),
    "store": ("resends", "llama-3-8b", STORE, set()),
    "drafts": ("documents", "llama-3-8b", (*STORE, *DRAFTS), set()),
    "simple": ("agents", "llama-3-8b", SIMPLE, set()),
    "windows": ("chat", "gpt-oss-20b", OFFLOADING, {Cause.RETENTION, Cause.TIER_STORE}),
    "states": ("resends", "qwen3-next-80b-a3b", OFFLOADING, set()),
}


@pytest.mark.long
@pytest.mark.release
def test_a_tier_and_what_it_loses() -> None:
    """Every token that is lost beside it has a cause, which none of them is a fault's."""
    target = [resolve("0.33.0")]
    found = {}
    for name, (workload, model, arguments, _) in TIERS.items():
        played = GENERATORS[workload](14, 4000, 1)
        chunk = ("--max-num-batched-tokens", "1024")
        asked = TierDeployment(read_model(model), with_paths([*arguments, *chunk]), 1.0)
        answer = simulate_tier(played, asked, target, limits(120.0), lambda *_: None)
        (run,) = answer.runs
        assert sum(run.lost.values()) == sum(
            max(0, bound.unbounded - served.hit)
            for bound, served in zip(run.bounds, run.served, strict=True)
        )
        assert not run.faults, name
        assert 0 < run.figures()["of_tier"] <= run.figures()["hits"], name
        found[name] = {cause for cause, tokens in run.lost.items() if tokens}
    assert found == {name: expected for name, (*_, expected) in TIERS.items()}
    (told,) = simulated_json(answer)["runs"]
    assert 0 < told["tier_rate"] <= told["hit_rate"] < 1
    assert "of_tier" in simulated_csv(answer).partition("\n")[0].split(",")
    assert "latest, of the tier" in simulate_page(answer, "hitproof simulate")

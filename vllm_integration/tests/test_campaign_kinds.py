"""The kinds of campaigns: which jobs they make of which results, and what they say of all."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.histories import generator
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.scenarios import features, with_features
from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.campaign import histories, selftest, serving, simulate, survey
from hitproof.vllm_integration.campaign.engines import Local, Targets
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.kinds import KINDS
from hitproof.vllm_integration.campaign.plans import CampaignError, Ended, Given, Kind
from hitproof.vllm_integration.campaign.running import Campaign, Until, run
from hitproof.vllm_integration.campaign.serving import Answer, Place, Setting
from hitproof.vllm_integration.campaign.store import Store
from hitproof.vllm_integration.commands.options import TOLD
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted
from hitproof.vllm_integration.reports.campaign import campaign_json
from hitproof.vllm_integration.reports.html.charts import campaign_page
from hitproof.vllm_integration.survey.survey import survey as of_release
from hitproof.vllm_integration.targets.target import Target, TargetError
from hitproof.vllm_integration.tests.conftest import Copy, release
from hitproof.vllm_integration.verdict import Verdict

TARGET = Target("0.33.0", Path("/nowhere"), "0.33.0")
SETTING = Setting()
KNOWN = next(
    each.signature.as_json()
    for each in load(LEDGER)
    if each.applies_to("0.33.0") and each.signature.kind == "chunked_local"
)
NEW = KNOWN | {"kind": "cross_attention"}


def local(kind: Kind, given: Given, place: Path, until: Until | None = None) -> Campaign:
    """Run a campaign in a process of its own."""
    with closing(Store(place)) as store, closing(Local(1, kind.work, given.setting)) as engine:
        return run(kind, given, store, engine, until or Until(), lambda _: None)


# --- histories

GIVEN = Given(
    {"f00": TARGET},
    SETTING,
    {"seed": "7"},
    {"granularity": "fine", "modules": {"block_pool": [(1, 2), (1, 3), (5, 6)]}},
)


def rounds(told: Sequence[dict[int, Result]]) -> list[list[Job]]:
    """The rounds of a campaign whose jobs by number give these results, and others nothing."""
    plan = histories.plan(GIVEN)
    found = [next(plan)]
    for results in told:
        found.append(plan.send([results.get(n, {}) for n in range(len(found[-1]))]))
    return found


def asked(jobs: Sequence[Job]) -> list[str]:
    return [name for job in jobs for name in job.question.get("histories", ())]


def test_rounds_are_a_function_of_the_results_before_them() -> None:
    told = [{0: {"histories": [{"ran": "0-1"}]}, 1: {"histories": [{}, {"ran": "2"}]}}, {}]
    first, second = rounds(told), rounds(told)
    assert first == second
    assert [job.name for jobs in first for job in jobs] == [
        job.name for jobs in second for job in jobs
    ]
    assert [len(jobs) for jobs in first] == [16, 32, 64]
    played = [
        (job.question["origin"], name) for jobs in first for job in jobs for name in asked([job])
    ]
    assert len(set(played)) == len(played) == 1120


def test_more_are_drawn_like_those_that_reach_something() -> None:
    nothing = rounds([{}])
    assert not [name for name in asked(nothing[1]) if " with " in name or " as " in name]
    reached = rounds([{1: {"histories": [{}, {"ran": "2"}]}}])[1]
    assert {name.partition(" as ")[2] for name in asked(reached) if " as " in name} == {"7:1"}
    alike = rounds([{0: {"histories": [{"ran": "0"}]}}])[1]
    names = [name for name in asked(alike) if " with " in name]
    parent = set(with_features("7:0")[1])
    assert names
    assert all(len(parent ^ set(features(name))) <= 2 for name in names)


def test_a_new_finding_and_a_new_branch_of_a_later_round_are_shrunk() -> None:
    told: list[dict[int, Result]] = [{}, {2: {"histories": [{"found": [KNOWN, NEW], "ran": "1"}]}}]
    shrunk = [job.question["shrink"] for job in rounds(told)[2] if "shrink" in job.question]
    assert [each.get("branches") for each in shrunk] == ["1", None]
    assert shrunk[1]["finding"] == NEW
    assert shrunk[0]["play"] == Play(Origin.SCENARIOS, "7:90").as_json()


def test_seeds_may_name_features_and_engines() -> None:
    named = with_features("3 with stops, drafts")[1]
    assert {each.name for each in named} <= {"stops", "drafts"}
    parent, child = generator.history("3"), generator.history("5 as 3")
    assert parent.engine.groups == child.engine.groups
    assert parent.steps != child.steps
    parent, child = generator.fine_history("3"), generator.fine_history("5 as 3")
    assert parent.engine.num_gpu_blocks <= child.engine.num_gpu_blocks
    assert parent.requests != child.requests


def test_what_histories_show_is_counted_once_and_new_is_told() -> None:
    job = rounds([])[0][0]
    result: Result = {
        "histories": [{"ran": "0-1", "found": [KNOWN]}, {"ran": "1"}, {"cannot": "it crashed"}]
    }
    found = histories.fold(GIVEN, [(job, result), (job, result)])
    assert found.gains[job.name]["branches"] == 0  # the second time
    assert found.cannot == {"it crashed": 2}
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.tables[0].rows == [("block_pool", "3", "2")]
    assert list(histories.seen(GIVEN, result)) == ["known", "not judged"]
    assert not found.new
    assert not found.files
    new: Result = {"histories": [{"found": [NEW]}]}
    shrunk = replace(job, question={"shrink": {"play": {}, "finding": NEW}})
    small: Result = {"spec": "one", "actual": "another", "history": "{}"}
    found = histories.fold(GIVEN, [(job, new), (shrunk, small)])
    assert found.verdict is Verdict.DIVERGES
    assert found.new[0].endswith(f"; spec: one; vllm: another; {next(iter(found.files))}")
    assert list(found.files.values()) == ["{}"]


# --- mutants


def mutant(number: int) -> dict[str, Any]:
    return {
        "function": f"f{number}",
        "line": number,
        "file": "/x/vllm/v1/core/block_pool.py",
        "change": "operator",
        "beside_known": False,
        "looks_up": False,
        "before": "a + b",
        "after": "a - b",
        "occurrence": 1,
    }


def test_each_mutant_is_in_one_job_and_survivors_are_told() -> None:
    options = {"family": str(Family.SINGLE_POINT), "profile": "quick"}
    given = Given({"f00": TARGET}, SETTING, options, {"mutants": [mutant(n) for n in range(23)]})
    jobs = next(selftest.plan(given))
    assert [n for job in jobs for n in job.question["mutants"]] == list(range(23))
    none: Ended = [(job, {"survivors": {}}) for job in jobs[:2]]
    assert selftest.fold(given, none).verdict is Verdict.CONFORMS
    told = {"survivors": {"21": "3 checks run it", "22": "2 checks run it"}, "proved": [22]}
    found = selftest.fold(given, [*none, (jobs[2], told)])
    assert found.verdict is Verdict.DIVERGES
    functions, survivors = (table.rows for table in found.tables)
    equivalent = ("f22", "1", "0", "1")
    assert functions[20:23] == [("f20", "1", "1", "0"), ("f21", "1", "0", "0"), equivalent]
    assert survivors == [
        ("vllm/v1/core/block_pool.py:21", "f21", "a + b", "a - b", "3 checks run it")
    ]
    assert "23 of 23" in found.about
    assert "1 of them equivalent (1 proved): 21 caught" in found.about


# --- commits


def test_halves_are_checked_until_those_that_differ_are_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {n: [KNOWN] * (n >= 3) + [NEW] * (n < 6) for n in range(9)}
    places = [(f"c{n}", f"c{n} subject") for n in range(9)]
    given = Given({}, SETTING, {"profile": "quick"}, {"places": places, "halves": True})

    def job(given: Given, place: int) -> Job:
        target = Target(f"c{place}", Path("/nowhere"), "0.33.0")
        given.targets[f"content {place}"] = target
        return Job.of("survey", f"content {place}", target, profile="quick")

    monkeypatch.setattr(survey, "_job", job)
    plan, ended = survey.plan(given), []
    jobs = next(plan)
    while jobs:
        results = [
            {"findings": [{"signature": each, "vllm": "wrong"} for each in shown[n]]}
            for n in (int(job.content.rpartition(" ")[2]) for job in jobs)
        ]
        ended += list(zip(jobs, results, strict=True))
        jobs = next(iter([plan.send(results)]), []) if len(ended) < 6 else []
    assert len(ended) < 9
    rows = survey.fold(given, ended).tables[0].rows
    assert [row[:2] for row in rows] == [("c3 subject", "brought"), ("c6 subject", "fixed")]


def test_words_that_are_no_survey_are_one_sentence(tmp_path: Path) -> None:
    given = Given({}, SETTING)
    with pytest.raises(CampaignError, match="name several targets"):
        survey.prepare(["0.33.0"], given, print)
    with pytest.raises(CampaignError, match="is not a git checkout"):
        survey.prepare([f"{tmp_path}@a..b"], given, print)


class Here:
    """An engine that runs jobs of surveys in this process, on a few configurations."""

    name, workers = "here", 1

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        for job in jobs:
            yield job, serving.serve(survey.work, job, targets[job.content], SETTING)

    def close(self) -> None:
        serving.close()


_DIFFERENT = Selection(
    configurations=(
        "sliding window, block size 1, window 2, alignment 2, EAGLE on",
        "mamba, block size 1, alignment 1, EAGLE on",
        "full attention, block size 4, alignment 4, EAGLE off",
    )
)
"""Where each of the releases shows something that the one before does not show, or does not any
more."""


@pytest.mark.release
@pytest.mark.long
def test_commits_are_named_that_brought_and_fixed_known_causes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(run: Run, say: Callable[[int, int], None]) -> Report:
        return of_release(replace(run, wanted=Wanted(_DIFFERENT)), say)

    monkeypatch.setattr(survey, "judge", some)
    repository = tmp_path / "vllm"
    repository.mkdir()

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", "-C", str(repository), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    commits = {}
    for version in ("0.31.0", "0.32.0", "0.33.0"):
        for part in ("vllm", "PKG-INFO"):
            git("rm", "-rfq", "--ignore-unmatch", part)
        original = release(version)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(original / "vllm", repository / "vllm", ignore=ignored, dirs_exist_ok=True)
        shutil.copy(original / "PKG-INFO", repository / "PKG-INFO")
        git("add", "-Af")
        git("commit", "-qm", f"Make it {version}")
        commits[version] = git("rev-parse", "HEAD")
        if version == "0.31.0":  # and one that changes nothing that is judged
            (repository / "vllm" / "notes.txt").write_text("")
            git("add", "-Af")
            git("commit", "-qm", "Add notes")
    given = Given({}, SETTING, {"profile": "quick"})
    kind = KINDS["survey"]
    given = kind.prepare([f"{repository}@{commits['0.31.0']}..HEAD"], given, lambda _: None)
    assert len(given.facts["places"]) == 4
    with closing(Store(tmp_path / "out")) as store, closing(Here()) as engine:
        found = run(kind, given, store, engine, Until(), lambda _: None)
    rows = found.summary.tables[0].rows
    named = {(row[0][:12], row[2]) for row in rows if row[2][0].isdigit()}
    assert len({cause for _, cause in named}) >= 3
    assert {commit for commit, _ in named} == {c[:12] for c in list(commits.values())[1:]}


# --- sweeps


def test_a_sweep_is_simulated_on_the_reference(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    sweep = {
        "target": ["reference"],
        "workload": ["chat"],
        "requests": [4],
        "tokens": [512],
        "pool_requests": [1, 4],
        "retention": ["dense", "latest"],
    }
    file.write_text(json.dumps(sweep))
    given = simulate.prepare([str(file)], Given({}, SETTING), print)
    jobs = next(simulate.plan(given))
    ended = [(job, simulate.work(job.question, Place(None, SETTING))) for job in jobs]
    found = simulate.fold(given, ended)
    assert found.tables[0].columns[:3] == ("target", "retention", "pool_requests")
    assert len(found.tables[0].rows) == 4
    assert not found.cannot
    again = [(job, simulate.work(job.question, Place(None, SETTING))) for job in jobs]
    assert again == ended


@cases("text, told")
def test_a_sweep_that_is_none_is_one_sentence(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises((CampaignError, TargetError), match=told):
        simulate.prepare([str(file)], Given({}, SETTING), print)


def test_bounds_of_a_sweep_are_those_of_the_options() -> None:
    fields = simulate.Sweep.model_json_schema()["properties"]
    least = {name: each["items"].get("minimum") for name, each in fields.items()}
    options = {name: told.get("min") for name, told in TOLD["simulate"].items() if name in fields}
    assert {name: least[name] for name in options} == options


# --- on a release


@pytest.mark.release
@pytest.mark.long
def test_histories_find_what_a_broken_target_does_and_its_crashes(
    broken_copy: Copy, tmp_path: Path
) -> None:
    freed = "        self.coordinator.free(request.request_id)\n"
    ends = "        if request.request_id == 'f': import os; os._exit(7)\n"
    root = broken_copy("0.33.0", {freed: ends})
    kind = KINDS["histories"]
    given = kind.prepare([str(root)], Given({}, SETTING, {"seed": "1"}), lambda _: None)
    found = local(kind, given, tmp_path / "out", Until(jobs=2))
    assert found.summary.new
    assert any("exit code 7" in reason for reason in found.summary.cannot)
    assert found.verdict is Verdict.DIVERGES
    with closing(Store(tmp_path / "out")) as store:
        log = store.log()
    assert campaign_json(found, log)["new"] == found.summary.new
    page = campaign_page(found, log, "hitproof campaign histories x --jobs 2")
    assert "Branches over time" in page
    assert str(tmp_path) not in (tmp_path / "out" / "results.jsonl").read_text()

"""Campaigns: names of jobs, the store, engines and their faults. None of these imports vLLM."""

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from hitproof.vllm_integration.campaign import engines, jobs, trees
from hitproof.vllm_integration.campaign.engines import Engine, EngineError, Local, Targets
from hitproof.vllm_integration.campaign.jobs import Job
from hitproof.vllm_integration.campaign.running import Campaign, Until, run
from hitproof.vllm_integration.campaign.serving import Answer, serve
from hitproof.vllm_integration.campaign.store import MERGED, Store, StoreError
from hitproof.vllm_integration.tests import sums
from hitproof.vllm_integration.tests.sums import GIVEN, SUMS, question
from hitproof.vllm_integration.verdict import Verdict


class Here:
    """An engine in this process."""

    name = "this process"
    workers = 1

    def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
        """Each job as it comes."""
        for job in jobs:
            yield job, serve(sums.work, job, targets.get(job.content), GIVEN.setting)

    def close(self) -> None:
        """Nothing is open."""


def campaign(
    place: Path, engine: Engine | None = None, until: Until | None = None, **options: str
) -> Campaign:
    given = replace(GIVEN, options=options)
    with closing(Store(place)) as kept:
        return run(SUMS, given, kept, engine or Here(), until or Until(), lambda _: None)


def merged(place: Path) -> bytes:
    return (place / MERGED).read_bytes()


# --- jobs


def test_a_name_is_a_function_of_all_that_decides_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = question(1, 2)
    others = [
        replace(job, kind="product"),
        replace(job, content="f00"),
        replace(job, release="0.33.0"),
        question(2, 1),
    ]
    names = {each.name for each in [job, *others]}
    assert len(names) == 5
    assert question(1, 2).name == job.name
    monkeypatch.setattr(jobs, "version", lambda: "another")
    assert question(1, 2).name not in names


def test_trees_are_named_by_content_alone_and_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITPROOF_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        (root / "vllm" / "v1" / "__pycache__").mkdir(parents=True)
        (root / "vllm" / "v1" / "core.py").write_text("x = 1\n")
    (second / "vllm" / "v1" / "__pycache__" / "core.pyc").write_text("ignored")
    content = trees.content_of(first)
    assert trees.content_of(second) == content
    packed: list[Path] = []

    def pack() -> bytes:
        packed.append(first)
        return trees.pack(first)

    there = trees.unpacked(content, pack)
    assert trees.unpacked(content, pack) == there
    assert len(packed) == 1
    assert trees.content_of(there) == content
    (second / "vllm" / "v1" / "core.py").write_text("x = 2\n")
    assert trees.content_of(second) != content


# --- the store


def test_a_campaign_that_was_cut_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = campaign(tmp_path / "whole")
    assert (len(whole.jobs), whole.left) == (20, 0)
    cut = campaign(tmp_path / "cut", until=Until(jobs=7))
    assert len(cut.jobs) == 7
    campaign(tmp_path / "cut")
    assert merged(tmp_path / "cut") == merged(tmp_path / "whole")


def test_nothing_is_run_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for _ in range(2):
        campaign(tmp_path / "marked", mark=str(mark))
        assert len(mark.read_text().splitlines()) == 20


def test_no_hours_are_left(tmp_path: Path) -> None:
    found = campaign(tmp_path, until=Until(hours=-1.0))
    assert (len(found.jobs), found.left) == (10, 10)


def test_parts_of_another_directory_are_merged_and_nothing_counts_twice(tmp_path: Path) -> None:
    campaign(tmp_path / "here", until=Until(jobs=12))
    campaign(tmp_path / "there", until=Until(jobs=15))
    for part in (tmp_path / "there" / "parts").iterdir():
        (tmp_path / "here" / "parts" / part.name).write_bytes(part.read_bytes())
    found = campaign(tmp_path / "here")
    assert found.summary.about == campaign(tmp_path / "whole").summary.about
    assert merged(tmp_path / "here") == merged(tmp_path / "whole")
    assert len(merged(tmp_path / "here").splitlines()) == 20


def test_a_torn_line_is_noticed_and_its_job_is_run_again(tmp_path: Path) -> None:
    campaign(tmp_path / "whole")
    campaign(tmp_path / "torn")
    (part,) = (tmp_path / "torn" / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-10] + b"\n[]\n{}\n")
    with closing(Store(tmp_path / "torn")) as kept:
        assert kept.damaged == 3
        assert len(kept) == 19
    campaign(tmp_path / "torn")
    assert merged(tmp_path / "torn") == merged(tmp_path / "whole")


def test_a_job_with_two_results_is_inconclusive(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    assert found.summary.verdict is Verdict.CONFORMS
    other = {"name": found.jobs[3].name, "result": {"sum": 0}}
    (tmp_path / "parts" / "other.jsonl").write_text(json.dumps(other) + "\n")
    again = campaign(tmp_path)
    assert again.summary.verdict is Verdict.INCONCLUSIVE
    assert list(again.summary.cannot) == [
        f"the job {found.jobs[3].name} gave different results in two runs"
    ]


def _full(kept: Store, after: int) -> None:
    """Let the disk be full after ``after`` lines."""
    opened = kept._opened

    class Part:
        def __init__(self, file: IO[str]) -> None:
            self.file, self.lines = file, 0

        def write(self, text: str) -> None:
            if self.lines == after:
                self.file.write(text[:5])  # as much as there is room for
                raise OSError(errno.ENOSPC, "No space left on device")
            self.lines += 1
            self.file.write(text)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    kept._opened = lambda kind: Part(opened(kind)) if kind == "parts" else opened(kind)  # type: ignore


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    campaign(tmp_path / "whole")
    kept = Store(tmp_path / "full")
    _full(kept, after=4)
    with pytest.raises(StoreError) as caught:
        run(SUMS, GIVEN, kept, Here(), Until(), lambda _: None)
    kept.close()
    assert str(caught.value) == (
        f"the disk is full under {tmp_path / 'full'}; free space there; 4 results of jobs are "
        "kept; run the same command again to resume"
    )
    with closing(Store(tmp_path / "full")) as again:
        assert (len(again), again.damaged) == (4, 1)
    campaign(tmp_path / "full")
    assert merged(tmp_path / "full") == merged(tmp_path / "whole")


# --- what runs one job


def test_a_job_that_does_not_end_is_inconclusive() -> None:
    answer = serve(sums.work, question(1, sleep=60), None, replace(GIVEN.setting, seconds=0.05))
    assert answer.result == {"cannot": "the job did not end within 0.05 seconds"}


def test_another_hitproof_on_a_worker_is_refused() -> None:
    answer = serve(sums.work, question(1), None, replace(GIVEN.setting, version="older"))
    assert (answer.result, answer.verdict) == (None, Verdict.USAGE)
    assert "has another hitproof" in answer.refused
    assert answer.refused.endswith("install the same one on each machine")


def test_a_refusal_ends_the_campaign_and_keeps_what_is_done(tmp_path: Path) -> None:
    class Refusing(Here):
        def answers(self, jobs: Iterator[Job], targets: Targets) -> Iterator[tuple[Job, Answer]]:
            for number, (job, answer) in enumerate(super().answers(jobs, targets)):
                yield job, answer if number < 3 else Answer(None, 0, "x", "no", Verdict.USAGE)

    with pytest.raises(EngineError, match="no"):
        campaign(tmp_path, Refusing())
    assert len(merged(tmp_path).splitlines()) == 3


def test_a_job_that_raises_is_a_defect_of_hitproof() -> None:
    answer = serve(sums.work, Job("sum", "", "", {}), None, GIVEN.setting)
    assert answer.verdict is Verdict.INTERNAL
    assert "KeyError" in answer.refused


# --- engines


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 8])
def test_processes_give_the_bytes_of_one(workers: int, tmp_path: Path) -> None:
    campaign(tmp_path / "here")
    with closing(Local(workers, sums.work, GIVEN.setting)) as engine:
        campaign(tmp_path / "many", engine)
    assert merged(tmp_path / "many") == merged(tmp_path / "here")
    with closing(Store(tmp_path / "many")) as kept:
        assert len(kept.log()) == 20


@pytest.mark.slow
def test_a_killed_worker_is_one_sentence_and_loses_nothing() -> None:
    work: Callable[..., Any] = sums.work
    killed = [question(1), question(2, ends=True)]
    with (
        closing(Local(1, work, GIVEN.setting)) as engine,
        pytest.raises(EngineError, match="a worker process was killed") as caught,
    ):
        list(engine.answers(iter(killed), {}))
    assert caught.value.verdict is Verdict.INCONCLUSIVE


def test_workers_are_kept_busy_and_no_more() -> None:
    begun: list[int] = []

    def begin(job: Job) -> int:
        begun.append(job.question["numbers"][0])
        return len(begun)

    ended = engines._kept_busy(
        iter([question(n) for n in range(9)]), lambda: 2, begin, lambda items: items[:1]
    )
    next(ended)
    assert len(begun) == 4
    assert len(list(ended)) == 8

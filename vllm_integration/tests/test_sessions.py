"""What is to be settled is shared by several workers, with the same result as by one."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play, plays
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.gate.obligations import Played, Task, tasks
from hitproof.vllm_integration.gate.sessions import Outcome, Session, Sessions
from hitproof.vllm_integration.sandbox.driver import Asked, WorkerGone, WorkerRaised, last_words

EVERY = tasks(Profile.QUICK, ())
ENDS = EVERY[len(EVERY) // 2].entry
"""The entry point that ends its worker."""


class FakeWorker:
    """A worker that proves every claim, but for one entry point, which ends it."""

    started: list["FakeWorker"]
    asked: list[tuple[int, Any]]
    breaks: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.open = True
        self.started.append(self)

    def ask(self, _: float, op: str, **message: Any) -> Any:
        assert self.open
        self.asked.append((threading.get_ident(), message))
        if self.breaks is not None:
            self.breaks()
        if op == "finding":
            return self.finding(**message)
        if op == "replay":
            if message["play"]["history"] == "1:7":
                raise WorkerGone("it ended")
            return {
                "steps": ["", ""],
                "lookups": [{}],
                "findings": [],
                "causes": 0,
                "footprints": [],
            }
        claim, configuration = message["claim"], message["configuration"]
        if Task(claim, BY_JSON[str(configuration)]).entry == ENDS:
            raise WorkerGone("it ended")
        answer = {
            "paths": 1,
            "runs": 0,
            "states": len(str(configuration)),
            "detail": op,
            "evidence": [],
        }
        return {**answer, "footprints": [], "statuses": {claim: "proved"}}

    def finding(self, name: str, budget: int, by: str, **_: Any) -> Any:
        """Fails in ways that the test asks for by the name of what has the divergence."""
        if ("demonstration" in by and name) or ("shrinking" in by and budget):
            raise WorkerGone(f"it ended {'with' if name else 'without'} a demonstration")
        case = {"name": name, "reproduced": True} if name else {}
        return {"finding": {"shrunk": budget > 0}, "demonstration": case}

    def close(self) -> None:
        self.open = False


LOST = Defect(Code.HIT_UNALIGNED)
PLAYS = list(plays(Profile.QUICK, fine=True))
BY_JSON = {str(task.configuration.as_json()): task.configuration for task in EVERY}


@pytest.fixture(autouse=True)
def no_workers_yet() -> None:
    FakeWorker.started, FakeWorker.asked = [], []


def several(jobs: int) -> Sessions:
    return Sessions(jobs, lambda: Session(cast("Callable[[], Asked]", FakeWorker), 1.0))


def settled(jobs: int) -> tuple[list[Outcome], list[Played]]:
    counts: list[tuple[int, int]] = []
    with closing(several(jobs)) as workers:
        outcomes = workers.settle(EVERY, PLAYS, lambda *count: counts.append(count))
    total = len(EVERY) + len(PLAYS)
    assert counts == [(done, total) for done in range(total + 1)]
    assert not any(worker.open for worker in FakeWorker.started)
    return outcomes


@pytest.mark.parametrize("jobs", [2, 5, 100])
def test_any_number_of_workers_gives_the_same_result(jobs: int) -> None:
    expected, played = settled(1)
    assert settled(jobs) == (expected, played)
    assert [each.play for each in played] == PLAYS
    generated = [each for each in played if each.play.origin is Origin.GENERATED]
    assert not any(each.unsettled for each in generated[:7])
    assert generated[7].unsettled.endswith("failed: it ended")
    assert all(each.unsettled.startswith("not replayed, since") for each in generated[8:])
    assert {each.steps for each in played if each.play.origin is Origin.FAMILY} == {2}
    ended = [outcome for task, outcome in zip(EVERY, expected, strict=True) if task.entry == ENDS]
    first, *others = (outcome.obligations[0] for outcome in ended)
    assert first.detail.endswith("failed: it ended")
    assert others
    assert all(each.detail.startswith("not run, since") for each in others)
    proved = [each for outcome in expected for each in outcome.obligations if each.paths]
    assert {each.status for each in proved} == {Status.PROVED}
    assert len(proved) == len(EVERY) - len(ended)


@pytest.mark.parametrize(
    ("ends_in", "found", "shown", "questions"),
    [
        ("nothing", {"shrunk": True}, Demonstration("a", True), 1),
        (
            "demonstration",
            {"shrunk": True},
            Demonstration("a", detail="it ended with a demonstration"),
            2,
        ),
        ("shrinking", {"shrunk": False}, Demonstration("a", True), 3),
        (
            "shrinking, demonstration",
            None,
            Demonstration("a", detail="it ended with a demonstration"),
            3,
        ),
    ],
)
def test_a_finding_is_shown_without_what_ends_the_worker(
    ends_in: str, found: Any, shown: Demonstration, questions: int
) -> None:
    with closing(Session(cast("Callable[[], Asked]", FakeWorker), 1.0)) as session:
        assert session.demonstrated(ends_in, "a", 7) == (found, shown)
    assert len(FakeWorker.asked) == questions
    assert len(FakeWorker.started) == questions
    assert not any(worker.open for worker in FakeWorker.started)


def test_what_is_not_shrunk_anyway_is_not_asked_for_twice() -> None:
    with closing(Session(cast("Callable[[], Asked]", FakeWorker), 1.0)) as session:
        found, shown = session.demonstrated("demonstration", "a", 0)
    assert (found, len(FakeWorker.asked)) == ({"shrunk": False}, 2)
    assert shown.reproduced is None


def test_known_divergences_that_nobody_is_shown_are_not_shrunk() -> None:
    known, new = (Signature(claim, "waste", "", False, LOST) for claim in list(CLAIMS)[:2])
    shows = [Played(PLAYS[0], signatures=(known,)), Played(PLAYS[1], signatures=(new,))]
    with closing(several(1)) as workers:
        with pytest.raises(KeyError):  # the fake shows no history
            workers.findings([], shows, {known})
        asked = [message["signature"]["claim"] for _, message in FakeWorker.asked]
        assert asked == [new.claim]
        (left,) = workers.findings([], shows[:1], {known})
    assert left.signature == known
    assert left.demonstration == Demonstration()
    assert len(FakeWorker.asked) == 1


def test_an_error_in_one_ends_all() -> None:
    def breaks() -> None:
        if len(FakeWorker.asked) > 20:
            raise RuntimeError("hitproof is wrong")

    FakeWorker.breaks = staticmethod(breaks)
    try:
        with pytest.raises(RuntimeError, match="is wrong"), closing(several(4)) as workers:
            workers.settle(EVERY, PLAYS, lambda *_: None)
    finally:
        FakeWorker.breaks = None
    assert not any(worker.open for worker in FakeWorker.started)
    assert len(FakeWorker.asked) < len(EVERY)


def test_an_exception_ends_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise WorkerRaised("the worker crashed: AttributeError: no limit (asks.py:2)")

    monkeypatch.setattr(FakeWorker, "breaks", staticmethod(breaks))
    with closing(Session(lambda: cast(Asked, FakeWorker()), 60)) as session:
        played = [session.play(Play(Origin.GENERATED, f"1:{seed}")) for seed in range(3)]
    assert len(FakeWorker.started) == 1
    (reason,) = {each.reason for each in played}
    assert reason == "the worker crashed: AttributeError: no limit (asks.py:2)"


TRACEBACK = """\
INFO starts
Traceback (most recent call last):
  File "/a/hitproof/vllm_integration/worker/main.py", line 3, in main
    ask()
  File "/b/vllm/core/asks.py", line 7, in ask
    given.limit
    ^^^^^^^^^^^
AttributeError: no limit
"""
KILLED = """\
Fatal Python error: Segmentation fault

Current thread 0x01 (most recent call first):
  File "/b/vllm/core/asks.py", line 7 in ask
  File "/a/hitproof/vllm_integration/worker/main.py", line 3 in main

Extension modules: torch._C (total: 1)
"""


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (TRACEBACK, "AttributeError: no limit (vllm/core/asks.py:7)"),
        (KILLED, "Segmentation fault (vllm/core/asks.py:7)"),
        (f"{TRACEBACK}out of luck\n\n", "out of luck"),
        ("", ""),
    ],
)
def test_the_last_words_of_a_process(printed: str, words: str) -> None:
    assert last_words(printed) == words

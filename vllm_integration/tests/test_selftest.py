"""The self-test: what became of mutants, the file of equivalents, and work that dies alone."""

import importlib
import json
import signal
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.conformance.mutation import Mutant, mutants
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.bundled import EQUIVALENTS
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate import equivalents
from hitproof.vllm_integration.gate.equivalents import Change, Equivalent
from hitproof.vllm_integration.gate.selftest import Chosen, SelfTestReport, fill
from hitproof.vllm_integration.sandbox.forks import Forks, allow
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import hitproof, one_sentence
from hitproof.vllm_integration.verdict import Verdict
from hitproof.vllm_integration.worker.mutants import decides, sampled
from hitproof.vllm_integration.worker.selftest import SelfTest, _Normal, _occurrences, _Said


def described(mutant: str, occurrence: int = 1) -> dict[str, Any]:
    return {
        "function": "Manager.lookup",
        "line": 7,
        "file": "/somewhere/vllm/v1/core/manager.py",
        "change": "compare",
        "beside_known": False,
        "looks_up": mutant == "if 0:",
        "before": "if a < b:",
        "after": mutant,
        "occurrence": occurrence,
    }


def report(
    outcomes: list[str], same: list[Equivalent], proved: Collection[int] = ()
) -> SelfTestReport:
    """A report on one mutant an outcome: how it is caught, and which are proved equivalent."""
    made = SelfTestReport(Target("0.33.0", None, "0.33.0"), Profile.QUICK)
    fill(
        made,
        [described(f"if {number}:") for number in range(len(outcomes))],
        {
            n: {"caught": c, "by": "a claim", "detail": "", "proved": n in proved}
            for n, c in enumerate(outcomes)
        },
        same,
    )
    return made


def equivalent(number: int, releases: str = ">=0.33") -> Equivalent:
    change = Change("Manager.lookup", "if a < b:", f"if {number}:")
    return Equivalent(change, SpecifierSet(releases), "they are the same")


def test_mutants_that_mean_the_same_are_not_counted() -> None:
    made = report(["lost hit", "", ""], [equivalent(1)])
    assert [m.change.mutant for m in made.survivors] == ["if 2:"]
    assert made.share == 50.0
    assert made.looking_up == (1, 1)
    assert made.judged[0].file == "vllm/v1/core/manager.py"
    assert made.verdict(50.0) is Verdict.CONFORMS
    assert made.verdict(51.0) is Verdict.DIVERGES


def test_mutants_that_are_proved_to_mean_the_same_need_no_reason() -> None:
    made = report(["lost hit", "", ""], [equivalent(2)], proved={1})
    assert made.proved == 1
    assert not made.survivors
    assert not made.stale
    assert made.share == 100.0
    assert report(["lost hit", ""], [needless := equivalent(1)], proved={1}).stale == [needless]


def test_stale_entries_fail() -> None:
    caught, gone, elsewhere = equivalent(0), equivalent(9), equivalent(9, "<0.33")
    made = report(["lost hit", ""], [caught, gone, elsewhere, equivalent(1)])
    assert made.stale == [caught, gone]
    assert made.verdict(0.0) is Verdict.DIVERGES


def test_entries_of_another_family_or_of_what_is_not_judged_are_not_stale() -> None:
    gone = equivalent(9)
    other = replace(gone, family=Family.STRUCTURED)
    for chosen, stale in (
        (Chosen(), [gone]),
        (Chosen(sample=1), []),
        (Chosen(functions=["Manager.free"]), []),
        (Chosen(functions=["Manager.lookup"]), [gone]),
        (Chosen(Family.STRUCTURED), [other]),
    ):
        made = SelfTestReport(Target("0.33.0", None, "0.33.0"), Profile.QUICK, chosen)
        outcome = {"caught": "", "by": "", "detail": ""}
        fill(made, [described("if 0:")], {0: outcome}, [gone, other])
        assert made.stale == stale


def test_what_could_not_be_run_is_inconclusive() -> None:
    made = report(["lost hit"], [])
    made.unfinished = 1
    assert made.verdict(0.0) is Verdict.INCONCLUSIVE
    assert report([], []).verdict(0.0) is Verdict.INCONCLUSIVE


def test_equal_texts_are_told_apart() -> None:
    made = SelfTestReport(Target("0.33.0", None, "0.33.0"), Profile.QUICK)
    outcome = {"caught": "", "by": "", "detail": ""}
    places = [described("if 0:", occurrence) for occurrence in (2, 1)]
    fill(made, places, {0: outcome, 1: outcome}, [equivalent(0)])
    assert [m.change.occurrence for m in made.judged] == [2, 1]
    assert [m.change.occurrence for m in made.survivors] == [2]


def test_an_equivalent_that_a_test_of_vllm_notices_needs_an_excuse() -> None:
    outcome = {"caught": "", "by": "", "detail": "", "killed_by": "test_a.py::test_none"}
    caught = {"caught": "crash", "by": "", "detail": ""}
    mutants = [described("if 0:"), described("if 1:")]
    for noticed_by, killed in (((), 1), (("test_a.py::test_none",), 0), (("test_b.py::x",), 1)):
        made = SelfTestReport(Target("0.33.0", None, "0.33.0"), Profile.QUICK)
        entry = replace(equivalent(0), noticed_by=noticed_by)
        fill(made, mutants, {0: outcome, 1: caught}, [entry])
        assert len(made.killed) == killed
        assert made.verdict(0.0) is (Verdict.DIVERGES if killed else Verdict.CONFORMS)


def test_a_mutant_is_numbered_among_all_of_its_text() -> None:
    code, kind = sampled.__code__, Family.STRUCTURED
    function = FunctionType(code, {})
    texts = (("break", 1), ("break", 2), ("continue", 3))
    mutants = [Mutant("x", function, code, kind, text, "pass", (n, n)) for text, n in texts]
    assert list(_occurrences(mutants).values()) == [1, 2, 1]


def test_every_recorded_equivalent_has_a_reason_and_a_release() -> None:
    entries = equivalents.load(EQUIVALENTS)
    assert entries
    assert len({(e.change, str(e.releases)) for e in entries}) == len(entries)
    assert all(len(entry.reason) > 10 for entry in entries)


@cases("text, sentence")
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "same.toml").write_text(text)
    with pytest.raises(LedgerError) as refused:
        equivalents.load(tmp_path / "same.toml")
    assert sentence in str(refused.value)


def test_a_sample_is_the_same_every_time_and_grows() -> None:
    module = importlib.import_module("hitproof.spec.groups")
    every = list(mutants(module))
    few, more = sampled(every, 5, 1), sampled(every, 9, 1)
    assert few == sampled(every, 5, 1) != sampled(every, 5, 2)
    assert [mutant for mutant in more if mutant in few] == few
    assert [mutant for mutant in every if mutant in more] == more


def work(number: int) -> Any:
    if number == 1:
        allow(0.05)
        while True:
            pass
    if number == 2:
        raise RuntimeError
    if number == 3:
        try:
            return len(bytearray(1 << 40))
        except MemoryError:
            return ["too much"]
    return {"number": number}


def looked_up(block: int) -> int:
    return block + 1


class Polluted(SelfTest):
    """Two checks. The first leaves something behind that makes the second report a broken rule."""

    def __init__(self, mutant: Mutant, judged: str) -> None:
        play = Play(Origin.GENERATED, "1")
        self._tasks = [("first", play), ("second", play)]
        lines = frozenset({(0, mutant.lines[0])})
        self._normal = [_Normal(_Said(), lines, float(number)) for number in range(2)]
        self.mutants, self._functions = [replace(mutant, text=None)], [mutant.function]
        self._limit, self._known, self._shown = 60.0, [], frozenset()
        self._left, self._judged = False, judged

    def _ask(self, claim: str, judged: Any) -> _Said:
        del judged
        if claim == "first":
            self._left = self._judged == "nothing"
        wrong = self._judged == claim and looked_up(1) != 2
        broken = wrong or (claim == "second" and self._left)
        return _Said(broken=frozenset({"a rule"}) if broken else frozenset())


@pytest.mark.parametrize("judged", ["first", "second", "nothing"])
def test_what_an_earlier_check_leaves_behind_catches_no_mutant(judged: str) -> None:
    here = sys.modules[__name__]
    mutant = next(m for m in mutants(here, {"looked_up"}) if "block - 1" in m.after)
    found = Polluted(mutant, judged)._mutant(0)
    allow(0)
    assert found["by"] == ("" if judged == "nothing" else judged)
    assert looked_up(1) == 2


@pytest.mark.parametrize("jobs", [1, 3])
def test_work_dies_alone(jobs: int) -> None:
    forks = Forks(5, jobs, work)
    results: dict[int, Any] = {}
    for _ in range(1000):
        results |= dict(forks.results(0.05))
        if len(results) == 5:
            break
        time.sleep(0)
    assert results == {
        0: {"number": 0},
        1: int(signal.SIGPROF),
        2: 0,
        3: ["too much"],
        4: {"number": 4},
    }


@pytest.mark.long
@pytest.mark.release
def test_the_checks_catch_most_mutants_of_a_real_release() -> None:
    result = hitproof(
        "selftest", "0.23.0", "--quick", "--format", "json", "--function",
        "SlidingWindowManager._contiguous_blocks_for_hit", "--function",
        "MambaManager.find_longest_cache_hit",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert result.returncode == 0, result.stderr
    assert found["verdict"] == "conforms"
    assert {m["function"] for m in found["judged"]} == {
        "SlidingWindowManager._contiguous_blocks_for_hit",
        "MambaManager.find_longest_cache_hit",
    }
    assert found["share"] == 100.0
    assert found["equivalent"] == found["proved_equivalent"] == 1
    assert found["mutants"] == found["caught"] + 1


@pytest.mark.long
@pytest.mark.release
def test_the_checks_catch_structured_faults_of_a_real_release() -> None:
    result = hitproof(
        "selftest", "0.33.0", "--quick", "--family", "structured", "--format", "json",
        "--function", "KVCacheCoordinator.free", "--sample", "2",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert (found["family"], found["sample"], found["mutants"]) == ("structured", 2, 2)
    assert {m["function"] for m in found["judged"]} == {"KVCacheCoordinator.free"}
    assert found["share"] == 100.0
    assert found["unfinished_checks"] == 0


@pytest.mark.long
@pytest.mark.release
def test_scheduler_histories_catch_mutants_of_a_real_scheduler() -> None:
    result = hitproof(
        "selftest", "0.33.0", "--quick", "--family", "scheduler", "--format", "json",
        "--function", "get_mamba_prefill_checkpoint_position", "--sample", "6",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert (found["family"], found["mutants"]) == ("scheduler", 6)
    assert {m["function"] for m in found["judged"]} == {"get_mamba_prefill_checkpoint_position"}
    assert found["caught"]
    assert found["unfinished_checks"] == 0


def test_which_statements_of_a_scheduler_are_mutated() -> None:
    assert decides("schedule", "token_budget -= num_new_tokens")
    assert not decides("schedule", "req_index += 1")
    assert decides("resolve_kv_cache_block_sizes", "size = 1")
    assert not decides("schedule", "num_new_tokens -= num_encoder_tokens")


@pytest.mark.release
def test_a_function_that_is_not_mutated_is_a_usage_error() -> None:
    result = hitproof("selftest", "0.23.0", "--quick", "--function", "no_such_function")
    assert result.returncode == 2
    assert "MambaManager.find_longest_cache_hit" in one_sentence(result)

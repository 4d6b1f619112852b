"""The yardstick shows each kind of loss, and refuses what it cannot compare."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from benchmarks import yardstick
from benchmarks.yardstick import Facts, YardstickError, compare
from hitproof.vllm_integration.survey import faults

_SIGNATURE = {
    "claim": "lookup_returns_longest_valid_hit",
    "divergence": "lost hit",
    "kind": "sliding_window",
    "eagle": True,
    "pattern": "not read",
    "code": "hit-too-short",
    "parameters": {"run": "cut", "segment": "several", "short": "one"},
}
_HIT = "hit-too-short(run=cut, segment=several, short=one)"
_PLACE = "(lost hit, sliding_window with EAGLE, lookup_returns_longest_valid_hit)"
_CLAIM = "lookup_returns_longest_valid_hit"


@pytest.mark.parametrize(
    ("frozen", "now", "slack", "losses", "gains"),
    [
        ({"a": 1}, {"a": 1}, 1, [], []),
        ({"a": 1}, {}, 1, ["lost: a"], []),
        ({"a": 3}, {"a": 2}, 1, ["less: a: 2, was 3"], []),
        ({"a": 3}, {"a": 4}, 1, [], ["more: a: 4, was 3"]),
        ({"a": "known"}, {"a": "new"}, 1, ["changed: a: new, was known"], []),
        ({"a": "known"}, {"a": 1}, 1, ["changed: a: 1, was known"], []),
        ({}, {"a": 1}, 1, [], ["gained: a"]),
        ({}, {"a": "known"}, 1, [], ["gained: a: known"]),
        ({"a": 1}, {"a": 0.96}, 1.05, [], []),
        ({"a": 1}, {"a": 0.94}, 1.05, ["less: a: 0.94, was 1"], []),
    ],
)
def test_what_is_lost_and_what_is_gained(
    frozen: Facts, now: Facts, slack: float, losses: list[str], gains: list[str]
) -> None:
    assert compare(frozen, now, slack) == (losses, gains)


def _answering(check: dict[str, Any], history: dict[str, Any]) -> Callable[..., Any]:
    def answer(command: str, *_: str) -> Any:
        return check if command == "check" else {"histories": [history]}

    return answer


_KNOWN: dict[str, Any] = {
    "known_divergences": [{"signature": _SIGNATURE}],
    "findings": [],
    "obligations": [
        {"claim": _CLAIM, "status": "refuted"},
        {"claim": _CLAIM, "status": "proved"},
        {"claim": "mask_keeps_every_reachable_block", "status": "proved"},
    ],
}
_PLAYED: dict[str, Any] = {
    "number": 7,
    "verdict": "diverges",
    "findings": [{"signature": _SIGNATURE}],
}
_OPEN = {"claim": _CLAIM, "status": "inconclusive"}


@pytest.mark.parametrize(
    ("part", "check", "history", "losses"),
    [
        ("check", {"known_divergences": []}, {}, [f"lost: R has {_HIT} {_PLACE}"]),
        (
            "check",
            {"known_divergences": [], "findings": _KNOWN["known_divergences"]},
            {},
            [f"changed: R has {_HIT} {_PLACE}: new, fault 9, was known, fault 9"],
        ),
        ("check", {"obligations": _KNOWN["obligations"][1:]}, {}, [f"lost: R refutes {_CLAIM}"]),
        (
            "check",
            {"obligations": [*_KNOWN["obligations"], _OPEN]},
            {},
            [f"lost: R is judged by {_CLAIM}"],
        ),
        (
            "check",
            {"obligations": _KNOWN["obligations"][:2]},
            {},
            ["lost: R is judged by mask_keeps_every_reachable_block"],
        ),
        ("corpus", {}, {"findings": []}, [f"lost: R with corpus history 7 has {_HIT} {_PLACE}"]),
        ("corpus", {}, {"verdict": "inconclusive"}, ["lost: R with corpus history 7 is judged"]),
        ("faults", {"known_divergences": []}, {}, [f"lost: fault 9 is found by {_HIT}"]),
    ],
)
def test_each_part_shows_what_is_lost(
    part: str,
    check: dict[str, Any],
    history: dict[str, Any],
    losses: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(yardstick, "FROZEN", tmp_path)
    monkeypatch.setattr(yardstick, "RELEASES", ("R",))
    monkeypatch.setattr(yardstick, "OF_FAULTS", ("S",))
    monkeypatch.setattr(faults, "load", lambda: [_Nine()])
    monkeypatch.setattr(yardstick, "git", lambda *_: "")
    yardstick.checked.cache_clear()
    monkeypatch.setattr(yardstick, "hitproof", _answering(_KNOWN, _PLAYED))
    yardstick.main(["--freeze", part])

    yardstick.checked.cache_clear()
    with pytest.raises(SystemExit) as same:
        yardstick.main([part])
    assert same.value.code == 0

    yardstick.checked.cache_clear()
    monkeypatch.setattr(yardstick, "hitproof", _answering(_KNOWN | check, _PLAYED | history))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        yardstick.main([part])
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[:-1] == losses
    yardstick.checked.cache_clear()


class _Nine:
    number = 9

    def explains(self, *_: object) -> bool:
        return True


def test_the_speed_is_that_of_the_frozen_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "git", lambda *_: "")
    monkeypatch.setattr(yardstick, "seconds", lambda tree, _: 2 if tree == yardstick.ROOT else 1)
    part = yardstick.PARTS["speed"]
    assert part.goal is not None
    losses, gains = compare(part.goal, part.measure("commit"), part.slack)
    assert losses == [f"less: {fact}: 0.5, was 1" for fact in part.goal]
    assert gains == []


def test_shares_and_branches_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = [{"modules": {"block_pool": {"branches": 158, "run": 147}}}]

    def answer(command: str, *_: str) -> Any:
        return branches if command == "branches" else {"share": 91.5}

    monkeypatch.setattr(yardstick, "hitproof", answer)
    assert yardstick.of_branches("") == {"branches of block_pool are run": 147}
    assert set(yardstick.of_selftest("").values()) == {91.5}
    assert yardstick.of_selftest("").keys() == yardstick.read("selftest").facts.keys()


def test_frozen_files_are_there_and_name_a_commit() -> None:
    for name in yardstick.PARTS:
        frozen = yardstick.read(name)
        assert len(frozen.commit) == 40
        assert frozen.facts


def test_each_fault_that_bugs_had_is_frozen() -> None:
    frozen = {int(fact.split()[1]) for fact in yardstick.read("faults").facts}
    assert {each.number for each in faults.load() if each.number <= max(frozen)} <= frozen


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"commit": "c"})])
def test_a_broken_file_names_the_remedy(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yardstick, "FROZEN", tmp_path)
    (tmp_path / "check.json").write_text(text, encoding="utf-8")
    with pytest.raises(YardstickError, match="--freeze check"):
        yardstick.read("check")


def test_a_refusal_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CompletedProcess([], 3, '{"error": "no answer"}', "hitproof: no answer")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(YardstickError, match="hitproof prove exits with 3: 'hitproof: no answer'"):
        yardstick.hitproof("prove")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["chekc"], "there is no part 'chekc'"),
        (["check"], "hitproof check 0.22.1 --timeout 600 exits with 1"),
        (["corpus"], "use a clone with its whole history"),
    ],
)
def test_says_what_is_wrong(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(yardstick, "read", lambda _: yardstick.Frozen("no-such-commit", {}))
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(SystemExit) as ended:
        yardstick.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err

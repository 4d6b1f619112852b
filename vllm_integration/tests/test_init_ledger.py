"""`hitproof init-ledger`: it adopts what is new, and never what a ledger cannot hold."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.ledger.ledger import Entry, judge, load
from hitproof.conformance.ledger.records import UNRELEASED, Record, read
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.commands.configuration import FILE, options
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.obligations import Task, tasks
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.tests.conftest import MANAGERS, Copy
from hitproof.vllm_integration.tests.reports import (
    changed_policy,
    conforming,
    diverging,
    inconclusive,
)
from hitproof.vllm_integration.verdict import Verdict


@pytest.fixture
def behaves(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes every check of a target end in a report, compared with the given ledger.

    What it gives back gets an item for each check that is made.
    """

    def make(report: Report) -> list[None]:
        made: list[None] = []

        def check(run: Run, _: object) -> Report:
            made.append(None)
            speaking = [e for e in run.entries if e.applies_to(report.target.version)]
            return replace(report, judgement=judge(report.judgement.new, speaking))

        for command in ("check", "init", "init_ledger"):
            monkeypatch.setattr(
                f"hitproof.vllm_integration.commands.{command}.resolve",
                lambda *_, **__: report.target,
            )

        def recorded(*_: object, **__: object) -> tuple[Record, list[str]]:
            return Record.of(UNRELEASED, Profile.QUICK, []), []

        monkeypatch.setattr("hitproof.vllm_integration.gate.gate.check", check)
        monkeypatch.setattr("hitproof.vllm_integration.gate.gate.recorded", recorded)
        return made

    return make


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.toml"
    path.touch()
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_the_target_then_conforms(behaves: Any, empty: Path, tmp_path: Path) -> None:
    made = behaves(diverging())
    new = tmp_path / "new.toml"
    assert run("check", "fork", "--ledger", empty)[0] == 1
    made.clear()
    assert run("init-ledger", "fork", "--ledger", empty, "-o", new) == (0, f"{new} has 1 entry\n")
    assert len(made) == 2
    assert run("check", "fork", "--ledger", new)[0] == 0
    (entry,) = load(new)
    assert "in vLLM fork" in entry.reason
    assert read(new)[UNRELEASED].profiles == {Profile.QUICK}
    behaves(conforming())
    assert run("check", "fork", "--ledger", new)[0] == 1  # the entry is stale


def test_what_is_known_keeps_its_reason(behaves: Any, empty: Path, tmp_path: Path) -> None:
    behaves(diverging())
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    run("init-ledger", "fork", "--ledger", empty, "-o", first)
    first.write_text(first.read_text().replace("Adopted", "Looked into"))
    assert run("init-ledger", "fork", "--ledger", first, "-o", second)[0] == 0
    assert load(second) == load(first)
    behaves(conforming())
    third = tmp_path / "third.toml"
    assert run("init-ledger", "fork", "--ledger", first, "-o", third)[0] == 0
    assert not load(third)


def test_an_entry_that_another_ones_history_showed_is_no_longer_adopted(
    behaves: Any, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that do not speak of the target are dropped, and with them what they played."""
    report = diverging()
    behaves(report)
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    run("init-ledger", "fork", "--ledger", empty, "-o", first)
    entry = first.read_text()
    first.write_text(entry + entry.replace('releases = ""', 'releases = "<0.1"'))
    assert len(load(first)) == 2

    def check(run: Run, _: object) -> Report:
        shown = report.judgement.new if len(run.entries) == 2 else ()
        speaking = [e for e in run.entries if e.applies_to(report.target.version)]
        return replace(report, judgement=judge(shown, speaking))

    monkeypatch.setattr("hitproof.vllm_integration.gate.gate.check", check)
    assert run("init-ledger", "fork", "--ledger", first, "-o", second)[0] == 0
    assert not load(second)


def test_no_file_is_overwritten(behaves: Any, empty: Path, tmp_path: Path) -> None:
    made = behaves(diverging())
    code, said = run("init-ledger", "fork", "--ledger", empty, "--output", empty)
    assert (code, empty.read_text()) == (2, "")
    assert "exists already; name another file" in said
    code, said = run("init-ledger", "fork", "--output", tmp_path / "no" / "x.toml")
    assert code == 2
    assert "is in a directory that does not exist" in said
    assert not made


@pytest.mark.parametrize(
    ("report", "code", "sentence"),
    [
        (changed_policy(), Verdict.DIVERGES, "check with --policy"),
        (inconclusive(), Verdict.INCONCLUSIVE, "not everything could be judged"),
    ],
)
def test_what_a_ledger_cannot_adopt_is_said(
    report: Report, code: Verdict, sentence: str, behaves: Any, empty: Path, tmp_path: Path
) -> None:
    behaves(report)
    ended, said = run("init-ledger", "fork", "--ledger", empty, "-o", tmp_path / "x.toml")
    assert ended == int(code)
    assert sentence in said


def test_a_target_that_never_stops_to_show_more(
    behaves: Any, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = diverging()
    behaves(report)
    monkeypatch.setattr("hitproof.vllm_integration.gate.gate.check", lambda *_, **__: report)
    code, said = run("init-ledger", "fork", "--ledger", empty, "-o", tmp_path / "x.toml")
    assert code == 1
    assert "still found new divergences" in said


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def test_init_sets_a_checkout_up(
    behaves: Any, empty: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.commands.init.LEDGER", empty)
    report = diverging()
    target = replace(report.target, version="0.33.0", inferred="its git tags")
    behaves(replace(report, target=target))
    code, said = run("init", ".", "--quick", "--alias", "new=old", "--manager", "a.b:C")
    assert (code, said) == (
        0,
        "wrote hitproof.toml, .github/workflows/hitproof.yml and hitproof-ledger.toml "
        "with 1 entry\n",
    )
    assert options(checkout / FILE) == {
        "ledger": checkout / "hitproof-ledger.toml",
        "release": "0.33.0",
        "manager": ["a.b:C"],
        "alias": ["new=old"],
        "quick": True,
        "thorough": False,
    }
    assert len(load(checkout / "hitproof-ledger.toml")) == 1
    workflow = (checkout / ".github" / "workflows" / "hitproof.yml").read_text()
    assert "fetch-depth: 0" in workflow
    assert run("check", "fork")[0] == 0  # by the ledger that the file names
    assert run("check", "fork", "--ledger", empty)[0] == 1
    code, said = run("init", ".")
    assert (code, said) == (2, "hitproof: hitproof.toml exists already; remove it or keep it\n")


def test_init_writes_policies_down_that_a_ledger_cannot_adopt(
    behaves: Any, empty: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.commands.init.LEDGER", empty)
    (change,) = changed_policy().policy_changes
    behaves(changed_policy())
    code, said = run("init")
    assert code == 0, said
    assert f"sets the policy {change.policy.name}={change.actual}" in said
    policies = options(checkout / FILE)["policy"]
    assert policies == [f"{change.policy.name}={change.actual}"]


def test_init_says_what_no_ledger_can_adopt(
    behaves: Any, empty: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.commands.init.LEDGER", empty)
    behaves(inconclusive())
    code, said = run("init")
    assert code == int(Verdict.INCONCLUSIVE)
    assert "not everything could be judged" in said
    assert (checkout / FILE).is_file()


@pytest.mark.long
@pytest.mark.release
def test_a_fork_adopts_what_it_has_and_fails_on_what_is_new(
    broken_copy: Copy, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.22.1 as a checkout, by the masks and lookups of sliding windows alone."""
    checks = ("check_mask", "check_lookup")
    judged = {claim: CLAIMS[claim] for claim, run in CHECKS.items() if run.__name__ in checks}
    monkeypatch.setattr(gate, "CLAIMS", judged)
    wanted = {(check, GroupKind.SLIDING_WINDOW) for check in checks}

    def few(profile: Profile, entries: Sequence[Entry]) -> list[Task]:
        return [task for task in tasks(profile, entries) if task.entry in wanted]

    monkeypatch.setattr(gate, "tasks", few)
    fork, new = broken_copy("0.22.1", {}), tmp_path / "new.toml"
    code, said = run("init-ledger", "--quick", fork, "--ledger", empty, "-o", new)
    assert code == 0, said
    adopted = load(new)
    assert Code.LOOKAHEAD_BLOCK_UNREGISTERED in {entry.signature.code for entry in adopted}
    assert run("check", "--quick", fork, "--ledger", new)[0] == 0

    managers = fork / MANAGERS
    line = "        # The number of contiguous blocks needed for prefix cache hit.\n"
    shorter = "        max_length = max_length if max_length < 10 else 0\n"
    text = managers.read_text()
    assert line in text
    managers.write_text(text.replace(line, shorter))
    code, said = run("check", "--quick", "--format", "json", fork, "--ledger", new)
    assert code == 1, said
    report = json.loads(said[said.index("{") :])
    assert {f["signature"]["claim"] for f in report["findings"]} >= {
        "lookup_returns_longest_valid_hit"
    }
    known = [entry.signature.as_json() for entry in adopted]
    assert not [f for f in report["findings"] if f["signature"] in known]
    assert not report["stale_ledger_entries"]

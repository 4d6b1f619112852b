"""Real releases for tests, copies of them with one fault each, and the command."""

import fcntl
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import Entry, load
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration import bundled, cli
from hitproof.vllm_integration.gate import gate, report
from hitproof.vllm_integration.gate.obligations import Task, tasks
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.sandbox.processes import is_running
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.forkserver import COMMAND, INTERPRETER, PYTHON

CORE = "vllm/v1/core/"
MANAGERS = f"{CORE}single_type_kv_cache_manager.py"
TIER = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/store/coordinator.py"
OFFLOADING = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py"
EDITED = (
    TIER,
    OFFLOADING,
    *(
        f"{CORE}{module}.py"
        for module in (
            "single_type_kv_cache_manager",
            "kv_cache_coordinator",
            "kv_cache_manager",
            "block_pool",
            "encoder_cache_manager",
            "kv_cache_utils",
            "kv_cache_planning",  # from 0.33 on
            "sched/scheduler",
            "sched/async_scheduler",
        )
    ),
)

# Tests run side by side already.
os.environ.setdefault("HITPROOF_JOBS", "1")
# What failed in one test is nothing to another.
os.environ.setdefault("HITPROOF_NO_CACHE", "1")


def limits(timeout: float = 60.0) -> Limits:
    """One worker at a time, forked off an interpreter that has loaded what targets import."""
    return Limits(os.environ.get(PYTHON, sys.executable), timeout, jobs=1)


@pytest.fixture
def real_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets start in an interpreter of their own, not in a fork of one."""
    monkeypatch.setenv(PYTHON, os.environ[INTERPRETER])


LOOKUP = "        # The number of contiguous blocks needed for a prefix cache hit.\n"
"""A line in the lookup of a sliding window of 0.33.0."""

Edits = dict[str, str]
Copy = Callable[[str, Edits], Path]
Judge = Callable[..., tuple[int, dict[str, Any]]]
Check = Callable[..., "Checked"]
JudgeClaims = Callable[..., tuple[int, dict[str, Any]]]


def edits(table: str) -> dict[str, dict[str, Any]]:
    """Faults of releases, by name."""
    text = Path(__file__).with_name("cases").joinpath("edits.toml").read_text("utf-8")
    found: dict[str, dict[str, Any]] = tomllib.loads(text)[table]
    return found


@cache
def release(version: str) -> Path:
    """The root of a real release, fetched from the package index on first use."""
    root = resolve(version).root
    assert root is not None
    return root


@pytest.fixture
def broken_copy(tmp_path: Path) -> Copy:
    """Makes a copy of a release with edits where the text is; the rest is linked, not copied."""

    def copy(version: str, edits: Edits) -> Path:
        original, root = release(version), tmp_path / "checkout"
        present = [path for path in EDITED if (original / path).exists()]
        texts = {path: (original / path).read_text() for path in present}
        for old, new in edits.items():
            holding = [path for path, text in texts.items() if old in text]
            assert holding, f"{old!r} is not in {version}"
            for path in holding:
                texts[path] = texts[path].replace(old, new)
        link(original, root, texts)
        return root

    return copy


def link(original: Path, root: Path, texts: Mapping[str, str]) -> None:
    """Make ``root`` a tree like ``original``, with other texts in some files.

    What holds none of those files is one link: to make and remove thousands takes seconds.
    """
    root.mkdir()
    for each in original.iterdir():
        within = {path: text for path, text in texts.items() if path.startswith(f"{each.name}/")}
        if each.name in texts:
            (root / each.name).write_text(texts[each.name])
        elif within:
            inner = {path.removeprefix(f"{each.name}/"): text for path, text in within.items()}
            link(each, root / each.name, inner)
        else:
            (root / each.name).symlink_to(each)


def hitproof(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do."""
    program = "from hitproof.vllm_integration.cli import main; main()"
    return subprocess.run(
        [os.environ.get(COMMAND, sys.executable), "-c", program, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def check_json(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `hitproof check --quick`."""
    result = hitproof("check", "--quick", "--format", "json", *arguments)
    return result.returncode, json.loads(result.stdout)


@dataclass(frozen=True)
class Checked:
    """What `hitproof check` ended with: its exit code, what it printed, and its JSON."""

    code: int
    text: str
    report: dict[str, Any]


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Runs `hitproof check` on a release, once for all tests, whatever process they run in."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "checked"
    shared.mkdir(exist_ok=True)

    def run(*words: str) -> Checked:
        place, report = shared / f"{'_'.join(words)}.run", shared / f"{'_'.join(words)}.json"
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                result = hitproof("check", *words, "--write", f"json={report}")
                assert report.exists(), result.stderr
                place.write_text(json.dumps([result.returncode, result.stdout]))
        code, text = json.loads(place.read_text())
        return Checked(code, text, json.loads(report.read_text()))

    return run


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    """What was said on failure: one sentence on standard error, and no traceback."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("hitproof: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    return lines[0].removeprefix("hitproof: ")


def fake_checkout(root: Path, text: str) -> Path:
    """A checkout whose package does one thing on import."""
    (root / "vllm/v1/core").mkdir(parents=True)
    (root / "vllm/__init__.py").write_text(text)
    return root


def ended(process: int) -> bool:
    """Whether a process that was killed ends, but for its entry."""
    for _ in range(50):
        if not is_running(process):
            return True
        time.sleep(0.1)
    return False


PLAIN = Play(Origin.FAMILY, "0.0")
"""A history of full attention alone, which has no divergence."""


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Runs `hitproof check` in this process on a few tasks.

    They settle every claim but those on retention and EAGLE. 0.33.0 has no divergence there but in
    block hashes, which the ledger has (on the one configuration judged here), so a target may
    conform. One task, the last, looks up a sliding window of more than nine tokens; but for it and
    the policies, that lookup is left alone. The one history is of full attention alone.
    """
    by_entry = {task.entry: task for task in reversed(tasks(Profile.QUICK, ()))}
    wanted = [
        ("check_common_hit", GroupKind.FULL_ATTENTION),
        ("check_mask", GroupKind.FULL_ATTENTION),
        ("check_sharing", GroupKind.FULL_ATTENTION),
        ("check_pool", GroupKind.FULL_ATTENTION),
        ("check_junctions", GroupKind.MAMBA),
        ("check_fine", GroupKind.MAMBA),
        ("check_lookup", GroupKind.SLIDING_WINDOW),
    ]
    settled = {c for c, check in CHECKS.items() if check.__name__ in dict(wanted)}
    settled.remove("eagle_needs_tail_plus_one")  # EAGLE is off in all of them
    monkeypatch.setattr(report, "CLAIMS", {claim: CLAIMS[claim] for claim in settled})
    monkeypatch.setattr(gate, "tasks", lambda *_: [by_entry[entry] for entry in wanted])
    monkeypatch.setattr(gate, "histories", lambda *_: [PLAIN])
    monkeypatch.setattr(gate, "statements", lambda _: [])
    sharing = by_entry[("check_sharing", GroupKind.FULL_ATTENTION)].configuration
    hashes = tuple(
        replace(entry, configuration=sharing)
        for entry in load(bundled.LEDGER)
        if entry.signature.claim == "reused_content_is_determined_by_the_hit"
        and entry.signature.kind == "block_hash"
        and entry.applies_to("0.33.0")
    )
    monkeypatch.setattr("hitproof.vllm_integration.commands.check.load", lambda _: hashes)

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        words = ["check", "--quick", "--format", "json", *arguments]
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        return result.exit_code, json.loads(result.stdout)

    return run


@pytest.fixture
def judge_claims(monkeypatch: pytest.MonkeyPatch) -> JudgeClaims:
    """Runs `hitproof check --quick` in this process on all that settles some claims.

    That is each of their checks on each configuration, against what the ledger has of them, and a
    history of full attention alone.
    """

    def run(claims: Collection[str], *arguments: object) -> tuple[int, dict[str, Any]]:
        checks = {CHECKS[claim] for claim in claims}
        judged = {claim: about for claim, about in CLAIMS.items() if CHECKS[claim] in checks}

        def wanted(profile: Profile, entries: Sequence[Entry]) -> list[Task]:
            return [task for task in tasks(profile, entries) if task.claim in judged]

        def known(path: Path) -> tuple[Entry, ...]:
            return tuple(
                entry
                for entry in load(path)
                if entry.signature.claim in judged and not isinstance(entry.configuration, Play)
            )

        monkeypatch.setattr(report, "CLAIMS", judged)
        monkeypatch.setattr(gate, "tasks", wanted)
        monkeypatch.setattr(gate, "histories", lambda *_: [PLAIN])
        monkeypatch.setattr(gate, "statements", lambda _: [])
        monkeypatch.setattr("hitproof.vllm_integration.commands.check.load", known)
        words = ["check", "--quick", "--format", "json", *arguments]
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        return result.exit_code, json.loads(result.stdout)

    return run

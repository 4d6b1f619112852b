"""Classes of a fork in place of vLLM's: judged, reported, and refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.tests.editing import cases
from hitproof.spec.claims import Status
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import (
    Copy,
    Judge,
    fake_checkout,
    hitproof,
)

WINDOWS = """\
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

class Sound(SlidingWindowManager):
    def __init__(self, *args, **kwargs):
        open({done!r}, "a").write("window ")
        super().__init__(*args, **kwargs)

    @classmethod
    def find_longest_cache_hit(cls, *args, **kwargs):
        return super().find_longest_cache_hit(*args, **kwargs)

class Broken(Sound):
    @classmethod
    def find_longest_cache_hit(cls, *, max_length, **kwargs):
        max_length = max_length if max_length < 10 else 0
        return super().find_longest_cache_hit(max_length=max_length, **kwargs)
"""
WHOLE = """\
from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator, UnitaryKVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager

class Sound(KVCacheManager):
    def __init__(self, *args, **kwargs):
        open({done!r}, "a").write("manager ")
        super().__init__(*args, **kwargs)

class Unitary(UnitaryKVCacheCoordinator):
    def __init__(self, *args, **kwargs):
        open({done!r}, "a").write("unitary ")
        super().__init__(*args, **kwargs)

class Hybrid(HybridKVCacheCoordinator):
    def __init__(self, *args, **kwargs):
        open({done!r}, "a").write("hybrid ")
        super().__init__(*args, **kwargs)

class Broken(UnitaryKVCacheCoordinator):
    def find_longest_cache_hit(self, hashes, max_length):
        return super().find_longest_cache_hit(hashes, max_length // 2)
"""


@pytest.fixture
def fork(broken_copy: Copy, tmp_path: Path) -> Any:
    """Makes a fork with classes of its own; what they note comes back with it."""

    def make(version: str) -> tuple[Path, Path]:
        root, done = broken_copy(version, {}), tmp_path / "done"
        done.touch()
        (root / "vllm_fork").mkdir()
        (root / "vllm_fork/__init__.py").touch()
        (root / "vllm_fork/windows.py").write_text(WINDOWS.format(done=str(done)))
        (root / "vllm_fork/whole.py").write_text(WHOLE.format(done=str(done)))
        return root, done

    return make


def statuses(report: dict[str, Any], claim: str) -> set[str]:
    return {o["status"] for o in report["obligations"] if o["claim"] == claim}


SOUND = (
    ("--manager", "vllm_fork.windows:Sound"),
    ("--manager", "vllm_fork.whole:Sound"),
    ("--coordinator", "vllm_fork.whole:Unitary"),
    ("--coordinator", "vllm_fork.whole:Hybrid"),
)


@pytest.mark.long
@pytest.mark.release
def test_sound_classes_conform(fork: Any, judge: Judge) -> None:
    root, done = fork("0.33.0")
    code, report = judge(*(word for pair in SOUND for word in pair), root)
    assert (code, report["verdict"]) == (0, "conforms"), report["findings"]
    assert set(done.read_text().split()) == {"window", "manager", "unitary", "hybrid"}
    assert report["target"]["managers"] == [name for option, name in SOUND if option[2] == "m"]
    assert report["target"]["coordinators"] == [name for option, name in SOUND if option[2] == "c"]


@pytest.mark.long
@pytest.mark.release
def test_broken_classes_are_found(fork: Any, judge: Judge) -> None:
    root, done = fork("0.33.0")
    broken = ("--manager", "vllm_fork.windows:Broken", "--coordinator", "vllm_fork.whole:Broken")
    code, report = judge(*broken, root)
    assert (code, report["verdict"]) == (1, "diverges")
    found = {f["signature"]["claim"]: f for f in report["findings"]}
    window = found["lookup_returns_longest_valid_hit"]
    assert window["class"] == "lost hit"
    assert window["source"].startswith("vllm_fork/windows.py:")
    assert found["common_hit_is_the_longest"]["class"] == "lost hit"
    assert done.read_text()
    code, report = judge(root)  # without them it is as vLLM made it
    assert (code, report["verdict"]) == (0, "conforms")


@pytest.mark.release
@pytest.mark.parametrize("version", ["0.22.1"])
def test_they_are_built_before_the_registry_too(version: str, fork: Any, judge: Judge) -> None:
    root, done = fork(version)
    _, report = judge("--manager", "vllm_fork.windows:Broken", root)
    assert statuses(report, "lookup_returns_longest_valid_hit") == {Status.REFUTED}
    assert "window" in done.read_text()


@pytest.mark.long
@pytest.mark.release
def test_a_fork_that_builds_others_is_inconclusive(fork: Any, judge: Judge) -> None:
    root, _ = fork("0.33.0")
    path = root / "vllm/v1/core/kv_cache_coordinator.py"
    text = path.read_text() + "\nMine = UnitaryKVCacheCoordinator\n"
    path.write_text(text.replace("return UnitaryKVCacheCoordinator(", "return Mine("))
    code, report = judge("--coordinator", "vllm_fork.whole:Unitary", root)
    assert (code, report["verdict"]) == (3, "inconclusive")
    (reason,) = {o["detail"] for o in report["obligations"] if o["status"] == "inconclusive"}
    assert reason == (
        "the target builds a UnitaryKVCacheCoordinator, not the Unitary that was named instead"
    )
    assert Status.PROVED in statuses(report, "lookup_returns_longest_valid_hit")


@pytest.mark.release
def test_the_other_commands_build_them_too(fork: Any) -> None:
    root, done = fork("0.33.0")
    vector = Path(__file__).resolve().parents[2] / "conformance/vectors/eagle_with_mask.json"
    result = hitproof(
        "replay", vector, root, "--manager", "vllm_fork.windows:Broken", "--format", "json"
    )
    assert result.returncode == 1, result.stderr
    assert json.loads(result.stdout)["target"]["managers"] == ["vllm_fork.windows:Broken"]
    assert "window" in done.read_text()
    played = ["lockstep", "--histories", "30", "--shrink-budget", "0", "--format", "json"]
    result = hitproof(*played, root, "--coordinator", "vllm_fork.whole:Broken")
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["target"]["coordinators"] == ["vllm_fork.whole:Broken"]
    assert {f["what"]["divergence"] for f in report["findings"]} == {"lost hit"}


@pytest.mark.long(keep=1)
@pytest.mark.release
@cases("options, sentence")
def test_what_cannot_be_built_is_refused(
    options: list[str], sentence: str, fork: Any, judge: Judge
) -> None:
    code, report = judge(*options, fork("0.33.0")[0])
    assert (code, report["verdict"]) == (2, "usage")
    assert sentence in report["error"]


def test_the_label_names_them(tmp_path: Path) -> None:
    target = Target("fork", tmp_path, None, ("a.b:C",), ("d:E",))
    assert target.label == "fork with a.b:C, d:E"
    assert not target.has("a.b:C")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.py").touch()
    assert target.has("a.b:C")
    assert Target("fork", tmp_path, None).label == "fork"


def test_a_comparison_builds_in_the_base_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, head = (fake_checkout(tmp_path / name, "") for name in ("base", "head"))
    for root, module in ((base, "both"), (head, "both"), (head, "new")):
        (root / f"{module}.py").touch()
    compared: list[Target] = []

    def compare(base: Target, run: Run, _: object) -> None:
        compared.extend((base, run.target))
        raise WorkerGone("that is all")

    monkeypatch.setattr("hitproof.vllm_integration.commands.diff.compare", compare)
    words = ["diff", base, head, "--manager", "both:A", "--manager", "new:B"]
    words += ["--coordinator", "elsewhere:C"]
    assert CliRunner().invoke(cli.app, [str(word) for word in words]).exit_code == 3
    assert [target.managers for target in compared] == [("both:A",), ("both:A", "new:B")]
    assert [target.coordinators for target in compared] == [("elsewhere:C",)] * 2

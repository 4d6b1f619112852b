"""Refactorings of vLLM's own functions are proved equivalent, and faults are told apart."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.editing import cases
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.diff import Diff, compare
from hitproof.vllm_integration.gate.equivalence import Version, Versions
from hitproof.vllm_integration.gate.obligations import tasks
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.diff import diff_json
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.changed import changed_functions
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import MANAGERS, PLAIN, Copy, edits, release
from hitproof.vllm_integration.tests.forkserver import PYTHON

VERSIONS = edits("versions")
CHUNKS = "ChunkedLocalAttentionManager.get_num_skipped_tokens"


QUICK = ("another expression", "a shifted loop", "rounded up", "a loop that ends early")
"""Those that take less than a second."""


@pytest.mark.release
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in VERSIONS]
)
def test_refactorings_are_proved_equivalent_and_faults_refuted_with_values(name: str) -> None:
    version = VERSIONS[name]
    replaced = [(version["old"], version["new"])]
    if "helper" in version:
        replaced.append(("    @classmethod\n    def find_longest_cache_hit(\n", version["helper"]))
    module = f"vllm.v1.core.{version.get('module', 'single_type_kv_cache_manager')}"
    program = "hitproof.vllm_integration.tests.equivalence_program"
    words = [os.environ[PYTHON], "-m", program, str(release("0.33.0"))]
    asked = json.dumps([module, version["function"], replaced])
    printed = subprocess.run(words, input=asked, capture_output=True, text=True, check=True).stdout
    found = json.loads(printed.partition("ANSWER")[2])
    if version["equivalent"]:
        assert found["status"] == Status.PROVED, found
        assert not found["detail"] or "module" in version
    else:
        assert found["status"] == Status.REFUTED
        assert " instead of " in found["detail"]


# --- what a head changes


BASE = '''\
"""Text."""
SIZE = 3


class Manager:
    def hit(self) -> int:
        """Documented."""
        return SIZE  # three

    def mask(self) -> int:
        return self.hit()
'''


@cases("old, new, names, elsewhere")
def test_changed_functions_are_told_from_other_changes(
    tmp_path: Path, old: str, new: str, names: list[str], elsewhere: int
) -> None:
    assert old in BASE
    for name, text in (("base", BASE), ("head", BASE.replace(old, new))):
        (tmp_path / name / MANAGERS).parent.mkdir(parents=True)
        (tmp_path / name / MANAGERS).write_text(text)
    found = changed_functions(tmp_path / "base", tmp_path / "head")
    assert [name for _, name in found.names] == names
    assert len(found.elsewhere) == elsewhere


# --- the comparison


@pytest.mark.release
@pytest.mark.long
def test_what_is_proved_equivalent_is_not_asked_again(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "check_lookup", GroupKind.FULL_ATTENTION
    covered = Versions([Version(CHUNKS, Status.PROVED, "")]).covers
    every = (task for task in tasks(Profile.QUICK, ()) if task.entry == entry)
    asked = [next(task for task in every if covered(task))]
    monkeypatch.setattr(gate, "tasks", lambda *_: asked)
    monkeypatch.setattr(gate, "histories", lambda *_: [PLAIN])
    monkeypatch.setattr(gate, "statements", lambda _: [])

    def compared(version: str) -> Diff:
        head = broken_copy("0.33.0", {VERSIONS[version]["old"]: VERSIONS[version]["new"]})
        limits = Limits(python=os.environ[PYTHON], timeout=600)
        run = Run(resolve(str(head)), Profile.QUICK, limits=limits)
        found = compare(resolve("0.33.0"), run, lambda *_: None)
        shutil.rmtree(head)
        return found

    same = compared("another expression")
    assert same.versions.in_words() == [
        f"{CHUNKS}: proved equivalent",
        "not asked of the head again, since only these change: 1 check of a group",
    ]
    assert same.proved
    assert not same.changed
    worse = compared("rounded up")
    (line,) = worse.versions.in_words()
    assert line.startswith(f"{CHUNKS}: not equivalent: ")
    assert diff_json(worse)["equivalence"]["checks_not_repeated"] == 0

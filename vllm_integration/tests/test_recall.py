"""Answers about unchanged code are reused, and about changed code never."""

import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hitproof.conformance.scope.configurations import single_group
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.commands.options import MEMORY, in_bytes
from hitproof.vllm_integration.gate import store as stores
from hitproof.vllm_integration.gate.recall import Recall, Recalling
from hitproof.vllm_integration.gate.store import FILE, Store
from hitproof.vllm_integration.gate.trees import Changed, Digests
from hitproof.vllm_integration.sandbox.driver import (
    EnvironmentFailure,
    Imported,
    WorkerGone,
    Workers,
    find_python,
)
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import MANAGERS, Copy
from hitproof.vllm_integration.tests.forkserver import PYTHON

PROVED = {"statuses": {"claim": "proved"}, "detail": ""}
REFUTED = {"statuses": {"claim": "refuted"}, "detail": ""}
OPEN = {"statuses": {"claim": "proved", "other": "inconclusive"}, "detail": "too large"}


class FakeWorkers:
    """Workers that answer as they are told to, and count what they are asked."""

    def __init__(self, root: Path, answer: dict[str, Any], package: str = "vllm") -> None:
        self.answer, self.asked, self.any_started = answer, 0, False
        files = {str(path) for path in (root / package).rglob("*.py")}
        places = {root, *(path.parent for path in (root / package).rglob("*.py"))}
        self.imported = Imported(files, {*map(str, places)})

    def start(self) -> "FakeWorkers":
        self.any_started = True
        return self

    def ask(self, _: float, **message: Any) -> dict[str, Any]:
        assert message
        self.asked += 1
        if "gone" in self.answer:
            raise WorkerGone("it ended")
        return self.answer

    def close(self) -> None:
        pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with two modules and a file of data."""
    package = tmp_path / "tree" / "vllm" / "core"
    package.mkdir(parents=True)
    for name in ("__init__.py", "pool.py", "data.json", "../__init__.py"):
        (package / name).write_text("1\n")
    return tmp_path / "tree"


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", lambda _: None)


def judged(store: Store, root: Path, answer: dict[str, Any], **target: Any) -> tuple[Any, int]:
    """The answer of one run, and how often a worker was asked."""
    time.sleep(0.02)  # files are older than the run
    about = replace(Target(str(root), root, "0.33.0"), **target)
    recall = Recall(store, about, sys.executable, 1 << 30, {})
    workers = FakeWorkers(root, answer)
    recalling = Recalling(cast("Workers", workers), recall)
    found = recalling.ask(1.0, op="check", claim="claim")
    recall.keep(workers.imported)
    return found, workers.asked


def test_an_answer_about_unchanged_code_is_reused(root: Path, kept: Store) -> None:
    assert judged(kept, root, PROVED) == (PROVED, 1)
    assert judged(kept, root, REFUTED) == (PROVED, 0)


def test_what_failed_stays_what_failed(root: Path, kept: Store) -> None:
    judged(kept, root, REFUTED)
    assert judged(kept, root, PROVED) == (REFUTED, 0)


def edited(root: Path) -> None:
    (root / "vllm/core/pool.py").write_text("2\n")


def restored_time(root: Path) -> None:
    """Same size and time of change, as an archive may have it."""
    path = root / "vllm/core/pool.py"
    before = path.stat()
    path.write_text("3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def removed(root: Path) -> None:
    (root / "vllm/core/pool.py").unlink()


def shadowed(root: Path) -> None:
    (root / "vllm/core/pool").mkdir()
    (root / "vllm/core/pool/__init__.py").write_text("")


def shadowed_package(root: Path) -> None:
    (root / "torch.py").write_text("")


def new_data(root: Path) -> None:
    (root / "vllm/core/data.json").write_text("2\n")


@pytest.mark.parametrize(
    "change", [edited, restored_time, removed, shadowed, shadowed_package, new_data]
)
def test_a_change_is_judged_anew(root: Path, kept: Store, change: Callable[[Path], None]) -> None:
    judged(kept, root, PROVED)
    change(root)
    assert judged(kept, root, REFUTED) == (REFUTED, 1)


def test_what_is_not_read_is_no_change(root: Path, kept: Store) -> None:
    judged(kept, root, PROVED)
    (root / "vllm" / "core" / "__pycache__").mkdir()
    (root / "report").mkdir()
    (root / "report" / "index.html").write_text("")
    (root / "result.json").write_text("")
    assert judged(kept, root, REFUTED) == (PROVED, 0)


def test_a_change_that_is_undone_is_none(root: Path, kept: Store) -> None:
    judged(kept, root, PROVED)
    edited(root)
    judged(kept, root, REFUTED)
    (root / "vllm/core/pool.py").write_text("1\n")
    assert judged(kept, root, OPEN) == (PROVED, 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"managers": ("vllm.core:Mine",)},
        {"coordinators": ("vllm.core:Mine",)},
        {"aliases": ("new=old",)},
        {"version": "0.14.0"},
    ],
)
def test_what_is_asked_for_counts(root: Path, kept: Store, asked: dict[str, Any]) -> None:
    judged(kept, root, PROVED)
    assert judged(kept, root, REFUTED, **asked) == (REFUTED, 1)


@pytest.mark.parametrize("variable", ["PATH", "PYTHONPATH", "LD_LIBRARY_PATH"])
def test_the_environment_of_the_worker_counts(
    root: Path, kept: Store, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(kept, root, PROVED)
    monkeypatch.setenv("VLLM_WORKER_NEVER_SEES_THIS", "1")
    assert judged(kept, root, REFUTED) == (PROVED, 0)
    monkeypatch.setenv(variable, "/elsewhere")
    assert judged(kept, root, REFUTED) == (REFUTED, 1)


def test_what_is_read_elsewhere_counts(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "torch.py"
    other.write_text("1\n")
    time.sleep(0.02)
    digests = Digests(root)
    imported = Imported({str(other)}, {str(tmp_path)})
    around = digests.surroundings(imported)
    assert digests.are(around)
    assert not digests.tree(imported)
    os.utime(other, ns=(0, 0))
    assert not Digests(root).are(around)
    around = Digests(root).surroundings(imported)
    (tmp_path / "torch-2.0.dist-info").mkdir()
    assert not Digests(root).are(around)
    around = Digests(root).surroundings(imported)
    (tmp_path / "editable.pth").write_text("/one\n")
    assert not Digests(root).are(around)
    around = Digests(root).surroundings(imported)
    (tmp_path / "editable.pth").write_text("/another\n")  # read before anybody notes it
    assert not Digests(root).are(around)


def test_what_is_open_is_not_kept(root: Path, kept: Store) -> None:
    assert judged(kept, root, OPEN) == (OPEN, 1)
    assert judged(kept, root, PROVED) == (PROVED, 1)
    with pytest.raises(WorkerGone):
        judged(kept, edited_copy(root), {"gone": True})
    assert judged(kept, edited_copy(root), REFUTED) == (REFUTED, 1)


def edited_copy(root: Path) -> Path:
    edited(root)
    return root


def test_nothing_is_kept_of_a_run_during_which_a_file_changes(root: Path, kept: Store) -> None:
    target = Target(str(root), root, "0.33.0")
    recall = Recall(kept, target, sys.executable, 1 << 30, {})
    workers = FakeWorkers(root, PROVED)
    Recalling(cast("Workers", workers), recall).ask(1.0, op="check", claim="claim")
    time.sleep(0.02)
    edited(root)
    recall.keep(workers.imported)
    assert judged(kept, root, REFUTED) == (REFUTED, 1)
    with pytest.raises(Changed):
        Digests(root).check_unchanged(workers.imported, 0.0)


def test_the_same_code_elsewhere_is_the_same(root: Path, kept: Store, tmp_path: Path) -> None:
    said = {**REFUTED, "detail": f"{root}/vllm/core/pool.py is wrong"}
    judged(kept, root, said)
    moved = root.rename(tmp_path / 'with "quotes"')
    found, asked = judged(kept, moved, PROVED)
    assert (found["detail"], asked) == (f"{moved}/vllm/core/pool.py is wrong", 0)


def test_more_that_is_read_later_counts(root: Path, kept: Store) -> None:
    judged(kept, root, PROVED)
    time.sleep(0.02)
    target = Target(str(root), root, "0.33.0")
    recall = Recall(kept, target, sys.executable, 1 << 30, {})
    workers = FakeWorkers(root, REFUTED)
    late = root / "late.py"
    Recalling(cast("Workers", workers), recall).ask(1.0, op="check", claim="another")
    recall.keep(Imported({str(late)}))  # it is not there
    late.write_text("")
    recall = Recall(kept, target, sys.executable, 1 << 30, {})
    assert not recall.knows


def test_a_target_that_does_not_import_is_no_lost_worker(root: Path, kept: Store) -> None:
    judged(kept, root, PROVED)

    class Broken(FakeWorkers):
        def start(self) -> FakeWorkers:
            raise EnvironmentFailure("it does not import")

    target = Target(str(root), root, "0.33.0")
    workers = Broken(root, PROVED)
    for started, error in ((False, EnvironmentFailure), (True, WorkerGone)):
        workers.any_started = started
        recall = Recall(kept, target, sys.executable, 1 << 30, {})
        with pytest.raises(error):
            Recalling(cast("Workers", workers), recall).ask(1.0, op="check", claim="new")


@pytest.mark.parametrize("damage", [b"", b"no database", None])
def test_a_damaged_store_is_made_anew(root: Path, tmp_path: Path, damage: bytes | None) -> None:
    said: list[str] = []
    cache = tmp_path / "cache"
    judged(Store(cache, said.append), root, PROVED)
    if damage is None:  # in the middle
        with sqlite3.connect(cache / FILE) as database:
            database.execute("UPDATE answers SET answer = x'00'")
    else:
        (cache / FILE).write_bytes(damage)
    assert judged(Store(cache, said.append), root, REFUTED)[0] == REFUTED
    assert len(said) == (damage != b"")
    assert judged(Store(cache, said.append), root, PROVED) == (REFUTED, 0)


def test_a_store_that_cannot_be_written_does_no_harm(root: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "cache").write_text("no directory")
    for _ in range(2):
        assert judged(Store(tmp_path / "cache", said.append), root, PROVED) == (PROVED, 1)
    (tmp_path / "other" / FILE).mkdir(parents=True)
    assert judged(Store(tmp_path / "other", said.append), root, PROVED) == (PROVED, 1)
    assert not said


def test_a_store_that_is_only_read_is_used(root: Path, kept: Store, tmp_path: Path) -> None:
    judged(kept, root, PROVED)
    read = Store(tmp_path / "cache", lambda _: None)
    read._database.execute("PRAGMA query_only = 1")
    assert judged(read, root, REFUTED) == (PROVED, 0)
    edited(root)
    assert judged(read, root, REFUTED) == (REFUTED, 1)


def test_a_locked_store_does_no_harm(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_BUSY_SECONDS", 0.0)
    store = Store(tmp_path / "cache", lambda _: None)
    other = sqlite3.connect(tmp_path / "cache" / FILE)
    other.execute("BEGIN EXCLUSIVE")
    assert judged(store, root, PROVED) == (PROVED, 1)
    other.rollback()
    assert judged(store, root, REFUTED) == (PROVED, 0)  # kept in the process, without the file
    assert judged(Store(tmp_path / "cache", lambda _: None), root, REFUTED) == (REFUTED, 1)
    other.close()


def test_runs_side_by_side_keep_their_own(root: Path, tmp_path: Path) -> None:
    one, other = (Store(tmp_path / "cache", lambda _: None) for _ in range(2))
    judged(one, root, PROVED)
    edited(root)
    judged(other, root, REFUTED)
    assert judged(one, root, OPEN) == (REFUTED, 0)


def test_the_store_stays_small(
    root: Path, kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MOST_BYTES", 30_000)
    for number in range(30):
        (root / "vllm/core/pool.py").write_text(f"{number}\n")
        noise = os.urandom(4_000).hex()
        judged(kept, root, {**PROVED, "detail": noise})
    assert (tmp_path / "cache" / FILE).stat().st_size < 200_000
    assert judged(kept, root, REFUTED)[1] == 0
    (root / "vllm/core/pool.py").write_text("0\n")
    assert judged(kept, root, REFUTED)[1] == 1


def test_no_tree_takes_the_number_of_another(kept: Store) -> None:
    first = kept.keep_tree(None, b"context", (b"around", {}), {"a": "1"})
    with kept._using() as database, database:
        database.execute("DELETE FROM trees")
    assert kept.keep_tree(None, b"context", (b"around", {}), {"a": "2"}) != first


BLOCKS = "blocks = cdiv(window_size - 1, block_size)"
"""A line of 0.33.0."""


@pytest.mark.long
@pytest.mark.release
def test_a_real_target(broken_copy: Copy, kept: Store) -> None:
    window = single_group(GroupKind.SLIDING_WINDOW, 2, 1, 4, False, 6)
    question = {
        "op": "check",
        "claim": "hit_has_every_block_attention_reads",
        "configuration": window.as_json(),
        "facts": False,
    }
    root = broken_copy("0.33.0", {})
    time.sleep(0.02)

    def asked() -> tuple[dict[str, Any], bool]:
        target = Target(str(root), root, "0.33.0")
        python, memory = find_python(os.environ[PYTHON]), in_bytes(MEMORY)
        recall = Recall(kept, target, python, memory, {})
        with Workers(target, python, memory, {}) as workers:
            recalling = Recalling(workers, recall)
            try:
                answer = recalling.ask(300.0, **question)
            finally:
                recalling.close()
            recall.keep(workers.imported)
            return answer, workers.any_started

    first, started = asked()
    assert started
    assert asked() == (first, False)
    manager = root / MANAGERS
    manager.write_text(manager.read_text().replace(BLOCKS, BLOCKS.replace("- 1", "- 3")))
    time.sleep(0.02)
    wrong, started = asked()
    assert started
    assert "refuted" in wrong["statuses"].values()
    assert json.dumps(asked()) == json.dumps((wrong, False))
    shutil.copytree(root / "vllm/v1/core/sched", root / "vllm/v1/core/block_pool")
    time.sleep(0.02)
    with pytest.raises(EnvironmentFailure):
        asked()  # a package comes before the module of that name

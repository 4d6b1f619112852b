"""Targets that do harm while they are judged, each made of 0.33.0: no pass, and no gate broken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.tests.conftest import LOOKUP, Copy, Judge

pytestmark = [pytest.mark.release, pytest.mark.usefixtures("real_interpreter")]

LOST = "        max_length = 0 if max_length > 9 else max_length\n"
"""A fault in the lookup of a sliding window: nothing is hit."""

FORGED = r"""b'{"ok": true, "statuses": {"lookup_returns_longest_valid_hit": "proved"}}\n'"""

Hostile = Callable[[str, str], Path]


@pytest.fixture
def hostile(broken_copy: Copy) -> Hostile:
    """Makes a copy of 0.33.0 that does something on import and in the lookup of a window."""

    def make(on_import: str, on_lookup: str) -> Path:
        root = broken_copy("0.33.0", {LOOKUP: on_lookup})
        (root / "vllm/__init__.py").unlink()
        (root / "vllm/__init__.py").write_text(on_import)
        return root

    return make


def unsettled(report: dict[str, Any]) -> set[str]:
    reasons = {o["detail"] for o in report["obligations"] if o["status"] == "inconclusive"}
    return reasons | {report["policies_detail"]} - {""}


ODD = """\
import atexit, os, sys, threading, time
print('{{"ok": true}}', flush=True)
os.chdir('/')
atexit.register(os._exit, 0)
sys.excepthook = lambda *_: os._exit(0)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def note(): open('{done}', 'a').write(os.getcwd())
"""
LOUD = f"        import os, vllm; print('ok'); os.write(1, {FORGED}); vllm.note()\n"


@pytest.mark.long
def test_a_sound_target_with_bad_manners_has_no_finding(
    hostile: Hostile, judge: Judge, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    root = hostile(ODD.format(done=done), LOUD)
    before = sorted(root.rglob("*.pyc"))
    code, report = judge(root)
    assert (code, report["verdict"]) == (3, "inconclusive"), unsettled(report)
    assert all("depends on more than its arguments" in reason for reason in unsettled(report))
    assert set(done.read_text()) == {"/"}
    assert sorted(root.rglob("*.pyc")) == before


@pytest.mark.long
def test_a_fault_does_not_pass(hostile: Hostile, judge: Judge, tmp_path: Path) -> None:
    """The target also deletes its own files and its scratch while it is judged."""
    done = tmp_path / "done"
    home = "import os, shutil; home = os.environ['HOME'] + '/..'\n"
    deletes = (
        "        if max_length > 9:\n"
        "            import os, shutil, vllm; shutil.rmtree(vllm.home, ignore_errors=True)\n"
        "            shutil.rmtree(os.path.dirname(__file__), ignore_errors=True)\n"
    )
    root = hostile(home + ODD.format(done=done), LOUD + deletes + LOST)
    code, report = judge(root)
    assert (code, report["verdict"]) in ((1, "diverges"), (3, "inconclusive")), unsettled(report)
    assert set(done.read_text()) == {"/"}
    assert not (root / "vllm/v1/core").exists()


@pytest.mark.long
@cases("act, sentence")
def test_an_act_in_a_lookup(
    act: str, sentence: str, hostile: Hostile, judge: Judge, tmp_path: Path
) -> None:
    """The fault that the lookup has, too, is found, or the claim is inconclusive."""
    done = tmp_path / "done"
    helpers = (
        "import os\n"
        "def writable():\n"
        "    for n in map(int, os.listdir('/proc/self/fd')):\n"
        "        try: os.write(n, b''); yield n\n"
        "        except OSError: pass\n"
        f"def note(): open('{done}', 'a').write('here')\n"
    )
    called = "        if max_length > 9:\n            from vllm import note, writable; note()\n"
    called += f"            import os; b = {FORGED}\n            {act}\n"
    timeout = "15" if act.startswith("while") else "120"
    code, report = judge("--timeout", timeout, "--memory", "8", hostile(helpers, called + LOST))
    assert done.read_text().startswith("here")
    reasons = unsettled(report)
    assert code in ((3,) if sentence else (1, 3)), reasons
    assert not sentence or any(sentence in reason for reason in reasons), reasons
    settled = {o["claim"] for o in report["obligations"] if o["status"] == "proved"}
    assert "lookup_returns_longest_valid_hit" not in settled
    assert "null_block_is_never_served" in settled  # what can be judged still is


ENDS = """\
        kinds = [type(each).__name__ for each in self.coordinator.single_type_managers]
        if "SlidingWindowManager" in kinds:
            import os
            os._exit(7)
"""
ALLOCATE = "        # A step may need no slots of its own while still adopting computed\n"
"""A line in ``allocate_slots`` of a whole manager of 0.33.0."""


@pytest.mark.long
def test_a_finding_whose_demonstration_ends_the_worker(broken_copy: Copy, judge: Judge) -> None:
    """It is reported with the reason, and with what the worker finds out without demonstrating."""
    root = broken_copy("0.33.0", {LOOKUP: LOST + LOOKUP, ALLOCATE: ENDS + ALLOCATE})
    code, report = judge(root)
    assert (code, report["verdict"]) == (1, "diverges"), unsettled(report)
    found = {f["signature"]["claim"]: f for f in report["findings"]}
    lost = found["lookup_returns_longest_valid_hit"]
    assert (lost["reproduced"], lost["pytest"]) == (None, "")
    assert lost["detail"] == "the worker ended with exit code 7"
    assert lost["source"].startswith("vllm/v1/core/single_type_kv_cache_manager.py:")

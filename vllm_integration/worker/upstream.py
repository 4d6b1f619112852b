"""vLLM's own tests of the prefix cache, run in a copy of the worker on the imported vLLM.

They run without vLLM's ``conftest.py``, and offline. Tests that fail on the unmodified target, for
lack of a model or a device, are left out.
"""

import contextlib
import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

FILES = ("test_prefix_caching.py", "test_single_type_kv_cache_manager.py")
"""The files, in vLLM's folder ``tests/v1/core``."""


def present() -> list[Path]:
    """The files that the target has beside its package."""
    import vllm

    folder = Path(vllm.__file__ or "").parent.parent / "tests" / "v1" / "core"
    return [path for name in FILES if (path := folder / name).exists()]


def failures(left_out: Collection[str] = (), *, first: bool = False) -> list[str]:
    """The tests that fail, by name; with ``first`` only the first. Call it in a copy."""
    import pytest

    os.environ["HF_HUB_OFFLINE"] = "1"
    files = present()
    recorder = _Recorder()
    arguments = ["--noconftest", "-p", "no:cacheprovider", "-q", f"--rootdir={files[0].parent}"]
    arguments += ["-x"] if first else []
    arguments += [f"--deselect={name}" for name in left_out]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*arguments, *map(str, files)], plugins=[recorder])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        recorder.failed.append(f"pytest ends with {code!r}")
    return recorder.failed


class _Recorder:
    """A plugin of pytest that keeps the names of failed tests."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

"""Runs test cases under a target's interpreter; a script that imports nothing of ours.

``python -P run_cases.py ROOT REPORT FILE...``: ROOT is put on the path unless it is empty. REPORT
gets a JSON object with the result of each file's test: the name of the exception and its text, or
two empty strings. If pytest can be imported it runs the tests; else they are called directly.
"""

import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

Ending = tuple[str, str]


def main() -> None:
    """Run the files that the command line names."""
    root, report, *files = sys.argv[1:]
    if root:
        sys.path.insert(0, root)
    try:
        import pytest
    except ModuleNotFoundError:
        endings = {file: _called(file) for file in files}
    else:
        watcher = _Watcher()
        options = ["-q", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib"]
        options.append("--continue-on-collection-errors")
        pytest.main(
            [*options, "-c", os.devnull, "--rootdir", os.path.dirname(files[0]), *files],
            plugins=[watcher],
        )
        endings = watcher.endings
    with open(report, "w", encoding="utf-8") as out:
        json.dump(endings, out)


class _Watcher:
    """A pytest plugin that records the result of each test."""

    def __init__(self) -> None:
        self.endings: dict[str, Ending] = {}

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Pytest's hook: a phase of a test ended."""
        if call.when == "call":
            error = call.excinfo.value if call.excinfo else None
            self.endings[str(item.path)] = _ending(error)

    def pytest_collectreport(self, report: Any) -> None:
        """Pytest's hook: a file was imported, or was not."""
        if report.failed:
            self.endings[str(report.fspath)] = ("ImportError", str(report.longrepr)[-300:])


def _called(file: str) -> Ending:
    try:
        module = _imported(file)
        for name, test in vars(module).items():
            if name.startswith("test_"):
                test()
    except Exception as error:
        return _ending(error)
    return _ending(None)


def _imported(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("case", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # vLLM imports connectors by its name
    spec.loader.exec_module(module)
    return module


def _ending(error: BaseException | None) -> Ending:
    return ("", "") if error is None else (type(error).__name__, str(error)[:300])


if __name__ == "__main__":
    main()

"""Which of the long tests run, and the fork servers that tests start processes from."""

import os
import shutil
import sys
import tempfile
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from hitproof.vllm_integration.tests import forkserver
from hitproof.vllm_integration.tests.forkserver import COMMAND, INTERPRETER, PYTHON, Program

_SAMPLE = 16
"""In a sample, about one long test in this many is run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("hitproof's tests")
    group.addoption(
        "--long",
        choices=("none", "sample", "all"),
        default="none",
        help="Which tests marked long are run. [default: none]",
    )
    group.addoption("--seed", default="1", help="Equal seeds choose equal samples. [default: 1]")


def pytest_configure(config: pytest.Config) -> None:
    """Start the fork servers, once for all processes of the run."""
    if hasattr(config, "workerinput"):
        return
    directory = Path(tempfile.mkdtemp(prefix="hitproof-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    os.environ.setdefault(INTERPRETER, os.environ.get(PYTHON, sys.executable))
    for variable, program, python in (
        (PYTHON, Program.RELEASE, os.environ[INTERPRETER]),
        (COMMAND, Program.COMMAND, sys.executable),
    ):
        place = directory / program
        place.mkdir()
        config.add_cleanup(partial(forkserver.stop, forkserver.start(place, program, python)))
        os.environ[variable] = str(place / "python")


def _long(items: list[pytest.Item]) -> set[str]:
    """The names of the long tests: of `long(keep=n)`, all cases of a function but its first n."""
    names, kept = set[str](), Counter[str]()
    for item in items:
        if (mark := item.get_closest_marker("long")) is None:
            continue
        function = item.nodeid.partition("[")[0]
        kept[function] += 1
        if kept[function] > mark.kwargs.get("keep", 0):
            names.add(item.nodeid)
    return names


def _drawn(name: str, seed: str) -> bool:
    """Whether a sample has the test, whatever other tests there are."""
    return int.from_bytes(sha256(f"{seed} {name}".encode()).digest()) % _SAMPLE == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests that are not asked for."""
    which, seed = config.getoption("--long"), config.getoption("--seed")
    names = _long(items)
    if not names or which == "all":
        return
    left_out = {name for name in names if which == "none" or not _drawn(name, seed)}
    deselected = [item for item in items if item.nodeid in left_out]
    items[:] = [item for item in items if item.nodeid not in left_out]
    config.hook.pytest_deselected(items=deselected)


def pytest_report_header(config: pytest.Config) -> str:
    """Which long tests run, and how to run the same again."""
    which, seed = config.getoption("--long"), config.getoption("--seed")
    return f"long tests: --long={which}" + (f" --seed={seed}" if which == "sample" else "")

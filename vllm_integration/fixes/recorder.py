"""A plugin of pytest for vLLM's own tests: vLLM runs on the CPU, and each outcome is written down.

It runs in the target's process, without hitproof: it is copied to a folder of its own. The file
that the environment variable names gets a line for each test that begins and ends, so that
what ran is known of a run that a test ends.
"""

import os
import signal
from typing import Any


def pytest_configure() -> None:
    """Have vLLM take the platform for a CPU, which it finds only where it is installed for one."""
    import huggingface_hub.constants
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    # A fork of an interpreter that has loaded it takes no other from the environment.
    huggingface_hub.constants.HF_HUB_CACHE = os.environ["HF_HUB_CACHE"]
    vllm.platforms._current_platform = CpuPlatform()


def _tell(word: str, test: str) -> None:
    with open(os.environ["RECORDER_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(f"{word} {test}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins; one that does not end ends the run."""
    signal.alarm(int(os.environ["RECORDER_SECONDS"]))
    _tell("begins", nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """A phase of a test has ended: it passes with the call, and fails or is skipped in any."""
    if not report.passed or report.when == "call":
        _tell(report.outcome, report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test has ended."""
    del nodeid
    signal.alarm(0)


def pytest_sessionfinish() -> None:
    """All tests have run."""
    _tell("ends", "the run")

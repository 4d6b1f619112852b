"""The fork server of tests: what tests start is forked off it, and not started anew."""

import os
import subprocess
from pathlib import Path

import pytest

from hitproof.vllm_integration.sandbox.processes import environment
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.forkserver import INTERPRETER, PYTHON


@pytest.mark.release
@pytest.mark.parametrize(("python", "forked"), [(PYTHON, True), (INTERPRETER, False)])
def test_targets_start_in_forks(python: str, forked: bool, tmp_path: Path) -> None:
    """Where the environment of targets is not that of the server, each start takes seconds more."""
    said = subprocess.run(
        [os.environ[python], "-P", "-c", "import sys; print('torch' in sys.modules)"],
        env=environment(resolve("0.33.0"), tmp_path),
        capture_output=True,
        check=True,
        text=True,
    )
    assert said.stdout.strip() == str(forked)

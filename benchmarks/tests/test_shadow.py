"""The benchmark of the shadow runs on a real release, and the shadow judges what it times."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.manager import LAYOUTS, OPERATIONS
from benchmarks.shadow import WHOLE

ROOT = Path(__file__).resolve().parents[2]


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do: vLLM is imported into that process."""
    command = [sys.executable, "-m", "benchmarks.shadow", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.release
@pytest.mark.skipif(find_spec("torch") is None, reason="this interpreter lacks what vLLM imports")
def test_every_operation_is_timed_with_and_without_a_shadow() -> None:
    result = benchmark("--tokens", "4000", "--repetitions", "1", "--format", "json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    found = {(row["layout"], row["operation"]) for row in rows}
    operations = (*OPERATIONS, WHOLE)
    assert found == {(layout, operation) for layout in LAYOUTS for operation in operations}
    assert all(row["plain_ms"] > 0 and row["shadowed_ms"] > 0 for row in rows)


def test_says_what_is_wrong() -> None:
    result = benchmark("--tokens", "1")
    assert (result.returncode, "give at least" in result.stderr) == (2, True)

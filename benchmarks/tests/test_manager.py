"""The benchmark runs on a real release and says how often each side asks the pool."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.manager import LAYOUTS, OPERATIONS

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.release
runs_vllm = pytest.mark.skipif(
    find_spec("torch") is None, reason="this interpreter lacks what vLLM imports"
)


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as users do: vLLM is imported into that process."""
    command = [sys.executable, "-m", "benchmarks.manager", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
@runs_vllm
def test_every_operation_is_compared() -> None:
    result = benchmark("--tokens", "4000", "--repetitions", "1", "--format", "json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    found = {(row["layout"], row["operation"]): row for row in rows}
    assert set(found) == {(layout, operation) for layout in LAYOUTS for operation in OPERATIONS}
    assert all(row["reference_ms"] > 0 and row["vllm_ms"] > 0 for row in rows)
    # The reference never asks more often than vLLM does, and asks nothing but in lookups.
    assert all(row["reference_probes"] <= row["vllm_probes"] for row in rows)
    for (_, operation), row in found.items():
        assert (row["reference_probes"] > 0) == operation.startswith("lookup")
    miss = found["window 1024", "lookup, miss"]
    assert 4 * miss["reference_probes"] <= miss["vllm_probes"]


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [(("--tokens", "1"), "give at least"), (("--release", "nothing"), "name a release")],
)
def test_says_what_is_wrong(arguments: tuple[str, ...], remedy: str) -> None:
    result = benchmark(*arguments)
    assert result.returncode == 2
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr

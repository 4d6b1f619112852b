"""The command `hitproof campaign`: what it prints, its exit codes, and how it is interrupted."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hitproof.vllm_integration.campaign import engines

PROGRAM = "from hitproof.vllm_integration.cli import main; main()"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Simulations on the reference, which need no vLLM."""
    file = tmp_path / "sweep.json"
    lists = {"target": ["reference"], "workload": ["chat"], "requests": [6], "tokens": [2048]}
    file.write_text(json.dumps(lists | {"seed": list(range(1, 41))}))
    return file


def command(*words: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, "campaign", *map(str, words)]


def finished(*words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a campaign."""
    done = subprocess.run(
        command(*words, "--format", "json"), capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_says_how_to_go_on_and_does(
    number: signal.Signals, sweep: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("simulate", sweep, "--out", out, "--workers", "1")
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True) as process:
        while not any(part.read_bytes() for part in (out / "parts").glob("*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    kept = f"finished jobs are kept in {out}; run the same command again to resume"
    assert kept in " ".join(told.split())
    assert "Traceback" not in told
    before = (out / "results.jsonl").read_text().splitlines()
    assert 0 < len(before) < 40
    code, report = finished(*words, "--report", tmp_path / "page")
    assert (code, report["verdict"], report["jobs"], report["left"]) == (0, "conforms", 40, 0)
    after = (out / "results.jsonl").read_text().splitlines()
    assert set(before) < set(after)
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Utilisation over time" in page
    assert "Hits in tokens" in page
    # Cut short by choice, it is no pass.
    code, report = finished("simulate", sweep, "--out", tmp_path / "cut", "--jobs", 3)
    assert (code, report["verdict"], report["jobs"]) == (3, "inconclusive", 3)


def test_another_python_on_the_cluster_is_told() -> None:
    mismatch = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
        "This process on node 10.0.0.2 was started with:\n    Ray: 2.60.0\n    Python: 3.11.2\n"
    )
    told = engines._of_ray("10.0.0.1:6379", mismatch)
    assert told.startswith("the cluster at 10.0.0.1:6379 has another Ray or Python; use the same")
    assert "Python: 3.12.1" in told
    assert "\n" not in told

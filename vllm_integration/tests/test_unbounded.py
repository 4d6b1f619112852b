"""vLLM's own functions are proved for all lengths, and faults past any bound are refuted."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hitproof.spec.claims import Status
from hitproof.vllm_integration.tests.conftest import Copy, release
from hitproof.vllm_integration.tests.forkserver import PYTHON

CAUSE = (
    "With EAGLE, boundaries near the start of a request are lost where blocks are smaller than the "
    "alignment"
)


def settled(root: Path, *names: str) -> dict[str, dict[str, Any]]:
    """What is known of these statements about a target, of all by default."""
    program = "hitproof.vllm_integration.tests.unbounded_program"
    words = [os.environ[PYTHON], "-m", program, str(root), *names]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(result.stdout[result.stdout.index("{") :])
    return found


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("version", ["0.33.0", "0.23.0"])
def test_functions_are_proved_for_all_lengths(version: str) -> None:
    found = settled(release(version))
    assert {
        name: (each["status"], each["detail"]) for name, each in found.items()
    } == dict.fromkeys(found, (Status.PROVED, ""))
    outside = {name: each["outside"] for name, each in found.items() if each["outside"]}
    assert outside == {"lookup sliding_window eagle": [CAUSE]}


WINDOW = "lookup sliding_window"
FAULTS = {
    "past block 100": (
        WINDOW,
        "        num_contiguous_blocks = 0\n        match_found = False\n",
        "        num_contiguous_blocks = 0\n        match_found = False\n"
        "        if max_num_blocks > 100:\n            num_contiguous_blocks = 1\n",
        lambda shown: shown["max_length"] // shown["configuration"]["block_size"] > 100,
    ),
    "for a block size above 64": (
        "lookup mamba",
        "        hit_length = 0\n\n        block_size = kv_cache_spec.block_size\n",
        "        hit_length = 0\n\n        block_size = kv_cache_spec.block_size\n"
        "        if block_size > 64:\n            max_length -= block_size\n",
        lambda shown: shown["configuration"]["block_size"] > 64,
    ),
    "for a window longer than seven alignments": (
        WINDOW,
        "        num_contiguous_blocks = 0\n        match_found = False\n",
        "        num_contiguous_blocks = 0\n        match_found = False\n"
        "        if kv_cache_spec.sliding_window > 7 * alignment_tokens:\n"
        "            sliding_window_contiguous_blocks -= 1\n",
        lambda shown: shown["configuration"]["window"] > 7 * shown["configuration"]["alignment"],
    ),
}


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_past_any_bound_are_refuted_with_values(broken_copy: Copy, fault: str) -> None:
    name, old, new, reaches = FAULTS[fault]
    found = settled(broken_copy("0.33.0", {old: new}), name)[name]
    assert found["status"] == Status.REFUTED, found["detail"]
    assert reaches(found["evidence"])  # type: ignore[no-untyped-call]

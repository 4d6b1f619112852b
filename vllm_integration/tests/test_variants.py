"""Faults that only some specs, pools or requests meet are seen."""

import json
import os
import subprocess

import pytest

from hitproof.vllm_integration.tests.conftest import release
from hitproof.vllm_integration.tests.forkserver import PYTHON


@pytest.mark.release
@pytest.mark.long
def test_faults_that_some_variants_meet_are_seen() -> None:
    program = "hitproof.vllm_integration.tests.varied_faults"
    words = [os.environ[PYTHON], "-m", program, str(release("0.33.0"))]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    seen = json.loads(result.stdout[result.stdout.index("{") :])
    assert len(seen) > 20
    assert {fault for fault, by in seen.items() if not by} == set()

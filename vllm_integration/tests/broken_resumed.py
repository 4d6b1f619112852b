"""What is seen of a target that resumes requests before their output in flight is delivered.

Run in a process of its own with the target on its path; writes what a history shows of that which
shows nothing of the target as it is.
"""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workload_json import read_workload
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_HISTORY = Path(__file__).parents[1] / "known" / "scheduler_raises_in_flight.json"
"""One that showed this in earlier releases."""
_STALE = "num_stale_output_tokens"


def _stale(request: Any) -> int:
    """None, for whoever plans a step."""
    plans = sys._getframe(1).f_code.co_name == "schedule"
    return 0 if plans else int(vars(request)[_STALE])


def _set_stale(request: Any, number: int) -> None:
    vars(request)[_STALE] = number


if __name__ == "__main__":
    from vllm.v1.request import Request

    subject = VllmSchedulers()
    resumes = patch.object(Request, _STALE, property(_stale, _set_stale), create=True)
    made = [read_workload(_HISTORY.read_text(encoding="utf-8"))]
    write(answers(subject, silent(subject, made), {"resumes early": ("", resumes)}))

"""What generated histories show of a target that resumes requests before their output is delivered.

Run in a process of its own with the target on its path; writes what each of the first histories
shows of that, and what they show of the target as it is.
"""

import json
import sys
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.resumed_workloads import resumed_workload
from hitproof.conformance.scheduling.playing import play
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers

_NUMBERS = range(3)
_STALE = "num_stale_output_tokens"


def shown(subject: VllmSchedulers, number: int) -> list[str]:
    """What a history shows."""
    causes = play(resumed_workload(f"1:{number}"), subject).causes
    return [str(each.signature.defect) for each in causes]


def _stale(request: Any) -> int:
    """None, for whoever plans a step."""
    plans = sys._getframe(1).f_code.co_name == "schedule"
    return 0 if plans else int(vars(request)[_STALE])


def _set_stale(request: Any, number: int) -> None:
    vars(request)[_STALE] = number


if __name__ == "__main__":
    from vllm.v1.request import Request

    subject = VllmSchedulers()
    answers: dict[str, list[str]] = {"none": [e for n in _NUMBERS for e in shown(subject, n)]}
    with patch.object(Request, _STALE, property(_stale, _set_stale), create=True):
        answers |= {f"history {number}": shown(subject, number) for number in _NUMBERS}
    print(f"\nfound {json.dumps(answers)}")

"""What requests hit on the target's scheduler alone, in the groups that doctor derived.

Run in a process of its own with the target on its path: reads scheduler histories, a JSON list,
from standard input, and writes the hit of the last request of each.
"""

import json
import sys

from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.scheduling.playing import play
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers


def hit(subject: VllmSchedulers, text: str) -> int | str | None:
    """The hit of the last request of a history."""
    history = read_workload(text)
    outcome = play(history, subject)
    return outcome.refused or outcome.lives[list(history.requests)[-1]].hit


if __name__ == "__main__":
    subject = VllmSchedulers()
    found = [hit(subject, each) for each in json.loads(sys.stdin.read())]
    print(f"\nhits {json.dumps(found)}")

"""What generated histories show of a target of which one part is broken.

For the modules that are run in a process of their own with the target on its path.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.playing import play
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers


def shown(subject: VllmSchedulers, history: SchedulerHistory) -> set[str]:
    """What a history shows."""
    return {str(each.signature.defect) for each in play(history, subject).causes}


def found(subject: VllmSchedulers, histories: Iterable[SchedulerHistory], start: str) -> list[str]:
    """What begins so, in the first history that shows it."""
    for history in histories:
        if fitting := [each for each in shown(subject, history) if each.startswith(start)]:
            return fitting
    return []


def silent(
    subject: VllmSchedulers, histories: Iterable[SchedulerHistory]
) -> list[SchedulerHistory]:
    """The histories that show nothing of the target as it is."""
    return [history for history in histories if not shown(subject, history)]


def answers(
    subject: VllmSchedulers,
    histories: Iterable[SchedulerHistory],
    faults: Mapping[str, tuple[str, Any]],
) -> dict[str, Any]:
    """What was found without a fault, and of each: how that begins, and what breaks the target."""
    made = {"none": found(subject, histories, "")}
    for name, (start, fault) in faults.items():
        with fault:
            made[name] = found(subject, histories, start)
    return made


def write(made: Mapping[str, Any]) -> None:
    """Write the answers where the test reads them."""
    print(f"\nfound {json.dumps(made)}")

"""The order of groups: the layers of a model decide which comes first, and no hit depends on it.

The sources of histories have full attention first; about half of their histories are turned.
"""

from dataclasses import replace
from zlib import crc32

from hitproof.conformance.histories.schema import Evict, Expect, History, Hold, Step
from hitproof.conformance.histories.workloads import SchedulerHistory


def is_turned(name: str) -> bool:
    """Whether the history of this name is turned: as good as a throw of dice."""
    return crc32(f"order {name}".encode()) % 2 == 1


def turned(history: History) -> History:
    """The history with the groups in reverse, and whatever its steps say of each."""
    last = len(history.engine.groups) - 1

    def turn(step: Step) -> Step:
        if isinstance(step, Evict | Hold):
            return replace(step, group=last - step.group)
        if isinstance(step, Expect):
            tables = step.tables and step.tables[::-1]
            return replace(step, tables=tables, cached=step.cached and step.cached[::-1])
        return step

    engine = replace(history.engine, groups=history.engine.groups[::-1])
    return replace(history, engine=engine, steps=tuple(map(turn, history.steps)))


def turned_workload(history: SchedulerHistory) -> SchedulerHistory:
    """The scheduler history with the groups of the deployment, and their layers, in reverse."""
    asked = history.deployment
    deployment = replace(asked, groups=asked.groups[::-1], layers=asked.layers[::-1])
    return replace(history, deployment=deployment)

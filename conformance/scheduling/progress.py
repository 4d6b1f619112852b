"""Whether the requests of a scheduler get anywhere."""

from enum import StrEnum

from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.subject.schedulers import Plan

_EMPTY = 4
"""After this many empty steps in a row, with none in flight, nothing changes any more."""
_FRUITLESS = 64
"""This many steps per request without a token that was not computed before are a cycle."""


class Standstill(StrEnum):
    """How requests make no progress, or an engine does not come to rest."""

    STUCK = "stuck"
    CYCLE = "cycle"
    REST = "rest"


class Progress:
    """Follows the steps of one scheduler."""

    def __init__(self, history: SchedulerHistory) -> None:
        # With several pipeline ranks a decode waits for its turn.
        deployment = history.deployment
        several = () if deployment.connector is None else deployment.connector.several
        # A lookup goes from group to group, and back to the first.
        repeats = sum(each.later for each in several) * (2 + len(deployment.groups))
        self.patience = _EMPTY + deployment.ranks - 1 + repeats
        """The number of empty steps in a row that are a standstill."""
        self._most = _FRUITLESS * len(history.requests)
        self._empty = self._fruitless = 0
        self._was_paused = False
        self._furthest: dict[str, int] = {}

    def standstill(self, plan: Plan, *, idle: bool, paused: bool) -> Standstill | None:
        """How nothing goes on any more after a step, if it does not.

        ``idle`` is whether nothing is under way, in this step or elsewhere.
        """
        if paused != self._was_paused:
            self._was_paused, self._empty = paused, 0
        self._empty = self._empty + 1 if idle else 0
        new = False
        for each in plan.scheduled:
            end = each.start + each.num_tokens
            if end > self._furthest.get(each.request, 0):
                self._furthest[each.request], new = end, True
        self._fruitless = 0 if new or paused else self._fruitless + 1
        if self._empty >= self.patience:
            return Standstill.REST if paused else Standstill.STUCK
        return Standstill.CYCLE if self._fruitless >= self._most else None

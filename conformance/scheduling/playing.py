"""Plays a scheduler history, and once more for what one play does not say.

Whether a request makes no progress for lack of room, and which part loses a promised hit: one thing
is put in its place, and the history is played again.
"""

from dataclasses import replace
from typing import Any, cast

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.playing.expectations import Served
from hitproof.conformance.scheduling.deriving import refusal
from hitproof.conformance.scheduling.outcome import SchedulerOutcome
from hitproof.conformance.scheduling.player import play_on
from hitproof.conformance.scheduling.progress import Standstill
from hitproof.conformance.subject.schedulers import (
    Plan,
    RunningScheduler,
    SchedulerSubject,
    StartupRefused,
)

_ROOM = 8
"""How much larger a pool is where room is not scarce."""


def play(
    history: SchedulerHistory,
    subject: SchedulerSubject,
    policies: JudgedPolicies | None = None,
) -> SchedulerOutcome:
    """Play ``history`` on a scheduler of ``subject`` and judge every step.

    Raises `CannotJudge` when the subject lacks what the history asks for.
    """
    try:
        outcome = play_on(subject.start(history.deployment), history, policies)
    except StartupRefused as refused:
        return SchedulerOutcome(refused=str(refused), findings=refusal(history, str(refused)))
    for found in outcome.findings:
        if found.signature.code is Code.REQUEST_NEVER_FINISHES:
            # A request does not lack blocks if it is done, or needs a larger step or a load.
            told = dict(found.signature.defect.parameters)
            lacks_blocks = told["way"] != Standstill.REST and "at_once" not in told
            if lacks_blocks and not outcome.unloaded and _ends_with_room(history, subject):
                _name(found, way="room")
        elif found.signature.code is Code.PROMISED_HIT_MISSED and found.violation.expected:
            _name(found, by=_lost_by(history, subject, policies, outcome, found))
    return outcome


def _name(found: Occurrence, **parameters: str) -> None:
    """Name a finding by what another play has shown."""
    signature = found.signature
    defect = Defect.read(signature.code, dict(signature.defect.parameters) | parameters)
    booked = replace(signature, claim=defect.booked(signature.claim), defect=defect)
    found.violation = replace(found.violation, signature=booked)


def _ends_with_room(history: SchedulerHistory, subject: SchedulerSubject) -> bool:
    """Whether a larger pool is all that it takes for all requests to end.

    Except those that then wait for a load that is never made.
    """
    deployment, override = history.deployment, history.deployment.num_gpu_blocks_override
    larger = replace(
        deployment,
        num_gpu_blocks=_ROOM * deployment.num_gpu_blocks,
        num_gpu_blocks_override=None if override is None else _ROOM * override,
        rank_blocks=tuple(_ROOM * blocks for blocks in deployment.rank_blocks),
    )
    roomy = replace(history, deployment=larger)
    again = play_on(subject.start(roomy.deployment), roomy)
    codes = {found.signature.code for found in again.findings}
    return bool(again.unloaded) or not (again.ended or Code.REQUEST_NEVER_FINISHES in codes)


def _lost_by(
    history: SchedulerHistory,
    subject: SchedulerSubject,
    policies: JudgedPolicies | None,
    outcome: SchedulerOutcome,
    missed: Occurrence,
) -> str:
    """The part that loses a promised hit, the first one for which the finding stands."""
    part, due = dict(missed.signature.defect.parameters)["by"], missed.violation.expected
    assert isinstance(due, Served)
    if part == "lookup":
        names = [{request for request, _, _ in plan} for plan in outcome.plans]
        first = next(number for number, planned in enumerate(names) if due.request in planned)
        asked = _Asked(subject.start(history.deployment), first, due)
        play_on(cast(RunningScheduler, asked), history, policies)
        return "coordinator" if asked.groups_find_it else part
    if part == "mask" and history.deployment.retention_interval != "dense":
        dense = replace(history, deployment=replace(history.deployment, retention_interval="dense"))
        try:
            again = play_on(subject.start(dense.deployment), dense, policies)
        except StartupRefused:
            return part
        hit = again.lives[due.request].hit
        if hit is not None and hit >= due.tokens:
            return "retention"
        # Where the lookup does not find it either, the dense mask has kept it.
        kept = (
            dict(found.signature.defect.parameters)["by"] == "lookup"
            for found in again.findings
            if found.violation.expected == due
        )
        return "retention" if any(kept) else part
    return part


class _Asked:
    """A running scheduler whose groups are asked, each alone, before it first plans a request."""

    def __init__(self, scheduler: RunningScheduler, plan: int, due: Served) -> None:
        self._scheduler, self._left, self._due = scheduler, plan, due
        self.groups_find_it = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def schedule(self) -> Plan:
        """See `RunningScheduler`."""
        if self._left == 0:
            cap = self._due.tokens
            alone = self._scheduler.hits_per_group(self._due.request, cap)
            groups = self._scheduler.engine.groups
            self.groups_find_it = alone is not None and all(
                length >= cap
                for group, length in zip(groups, alone, strict=True)
                if group.prefix_cacheable
            )
        self._left -= 1
        return self._scheduler.schedule()

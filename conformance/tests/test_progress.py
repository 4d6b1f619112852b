"""A standstill is found after as many steps as requests may have to wait for their turn."""

from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    SchedulerHistory,
)
from hitproof.conformance.scheduling.progress import Progress, Standstill
from hitproof.conformance.subject.schedulers import Plan
from hitproof.spec.groups import Group, GroupKind

GROUPS = (Group(GroupKind.FULL_ATTENTION, 4),)


def standstills(ranks: int, *, idle: bool, paused: bool, steps: int) -> list[Standstill | None]:
    deployment = Deployment(
        GROUPS, 40, 64, 8, ranks=ranks, async_scheduling=ranks > 1, v2_model_runner=ranks > 1
    )
    progress = Progress(SchedulerHistory(deployment, {"a": Arrival((1, 2), (3,))}))
    return [progress.standstill(Plan(()), idle=idle, paused=paused) for _ in range(steps)]


def test_who_is_told_to_ask_again_may_have_to_wait() -> None:
    connector = Connector(offloads=4, chunk=1, later=2)
    deployment = Deployment(GROUPS, 40, 64, 8, connector=connector)
    progress = Progress(SchedulerHistory(deployment, {"a": Arrival((1, 2), (3,))}))
    found = [progress.standstill(Plan(()), idle=True, paused=False) for _ in range(12)]
    assert found.index(Standstill.STUCK) == 9


def test_a_decode_waits_for_its_turn_among_ranks() -> None:
    alone, spread = (standstills(n, idle=True, paused=False, steps=9) for n in (1, 3))
    assert (alone.index(Standstill.STUCK), spread.index(Standstill.STUCK)) == (3, 5)


def test_steps_that_lead_nowhere_are_a_cycle_unless_the_engine_is_paused() -> None:
    assert Standstill.CYCLE in standstills(1, idle=False, paused=False, steps=80)
    assert set(standstills(1, idle=False, paused=True, steps=80)) == {None}

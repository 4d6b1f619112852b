"""What a scheduler tells its KV connector: right calls are right, and each wrong one is seen."""

import pytest

from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.scheduling.contract import Contract
from hitproof.conformance.subject.schedulers import Plan, Scheduled, Told

ARRIVALS = {
    "a": Arrival((1, 2, 3), (4,)),
    "b": Arrival((1, 2, 3), (4,), session="s"),
    "c": Arrival((1, 2, 3, 5), (4,), session="s"),
}
STEP = Told("step")
NEW, ASKED, GIVEN, OVER = (
    Told("arrival", "a"),
    Told("lookup", "a", 2),
    Told("blocks", "a", 2),
    Told("end", "a"),
)
ADMITTED = (Scheduled("a", 2, 1, 0, ((1,),), True, True),)


@pytest.mark.parametrize(
    ("steps", "how"),
    [
        ([((NEW, ASKED, GIVEN, STEP), ADMITTED, ()), ((OVER, STEP), (), ("a",))], []),
        ([((NEW, ASKED, STEP), (), ()), ((ASKED, GIVEN, STEP), ADMITTED, ())], []),
        # A load that is waited for, and then the admission.
        ([((NEW, ASKED, GIVEN, STEP), (), ()), ((Told("blocks", "a"), STEP), ADMITTED, ())], []),
        ([((ASKED, GIVEN, STEP), ADMITTED, ())], ["arrival"]),
        ([((NEW, NEW, STEP), (), ())], ["arrival"]),
        ([((NEW, ASKED, STEP), ADMITTED, ())], ["blocks"]),
        ([((NEW, GIVEN, STEP), ADMITTED, ())], ["tokens"]),
        ([((NEW, ASKED, GIVEN, GIVEN, STEP), ADMITTED, ())], ["tokens"]),
        ([((NEW, ASKED, Told("blocks", "a", 3), STEP), ADMITTED, ())], ["tokens"]),
        ([((NEW, STEP), (), ()), ((STEP,), (), ("a",))], ["never"]),
        ([((NEW, OVER, OVER, STEP), (), ("a",))], ["again"]),
        ([((NEW, OVER, STEP), (), ("a",)), ((ASKED, STEP), (), ())], ["late"]),
        ([((NEW, OVER, GIVEN, STEP), (), ("a",))], ["late"]),
        ([((NEW,), (), ())], ["step"]),
        ([((NEW, STEP, STEP), (), ())], ["step"]),
        # To a connector the inputs of a session are one request.
        ([((Told("arrival", "s"), Told("end", "s"), STEP), (), ("c",))], []),
        ([(None, ADMITTED, ("a",))], []),
    ],
)
def test_each_wrong_call_is_found(
    steps: list[tuple[tuple[Told, ...] | None, tuple[Scheduled, ...], tuple[str, ...]]],
    how: list[str],
) -> None:
    contract = Contract(ARRIVALS)
    wrong = [
        each
        for told, scheduled, finished in steps
        for each in contract.judge(Plan(scheduled, finished, told=told))
    ]
    assert [dict(each.signature.defect.parameters)["how"] for each in wrong] == how

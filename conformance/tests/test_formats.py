"""Pages of several formats: a step reads no bytes that another group has left in one."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.histories.workloads import Arrival, Deployment
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scheduling.runner import ModelRunner, about
from hitproof.conformance.subject.schedulers import Plan, PoolState, Scheduled
from hitproof.spec.groups import Group, GroupKind

SIZE = 4
FULL = Group(GroupKind.FULL_ATTENTION, SIZE)
WINDOW = Group(GroupKind.SLIDING_WINDOW, SIZE, window=SIZE)
STATE = Group(GroupKind.MAMBA, SIZE)
ARRIVALS = {name: Arrival((number, 9, 9, 9), (7,)) for number, name in enumerate("ab")}
OF_STATE = "page-not-zeroed(of=state)"
TWO = ("float32", "fp8")
POOL = PoolState({}, 0, frozenset(range(1, 20)))


def runner_of(groups: tuple[Group, ...], precisions: tuple[str, ...] = ()) -> ModelRunner:
    engine = EngineConfiguration(groups, 20, SIZE, 64)
    requests = {name: each.request for name, each in ARRIVALS.items()}
    judge = Judge(engine, requests, Prefixes(requests, SIZE, 0), JudgedPolicies())
    content = ContentModel(
        engine, requests, lambda group, _c, defect, _d: judge.of_group(group, "x", defect)
    )
    deployment = Deployment(groups, 20, 64, 64)
    return ModelRunner(engine, ARRIVALS, content, about(deployment), precisions=precisions)


def found(
    groups: tuple[Group, Group],
    zeroed: tuple[int, ...] | None,
    num_tokens: int = 1,
    precisions: tuple[str, ...] = (),
) -> list[str]:
    """What is wrong where a request takes blocks 1 and 2 as those of each other's groups."""
    runner = runner_of(groups, precisions)
    first = Scheduled("a", 0, 4, 0, ((1,), (2,)), whole=True, first=True)
    second = Scheduled("b", 0, num_tokens, 0, ((2,), (1,)), whole=True, first=True)
    wrong = []
    for plan in (Plan((first,), zeroed=zeroed), Plan((second,), ("a",), zeroed=zeroed)):
        wrong += runner.execute(plan, POOL)[1]
    return [str(each.signature.defect) for each in wrong]


@pytest.mark.parametrize(
    ("groups", "precisions", "defects"),
    [
        ((FULL, STATE), (), [OF_STATE]),
        ((WINDOW, STATE), (), ["page-not-zeroed(of=state, reader=local)"]),
        ((FULL, WINDOW), TWO, ["page-not-zeroed(of=precision)"]),
        ((FULL, WINDOW), ("fp8", "fp8"), []),
        ((FULL, WINDOW), (), []),
    ],
)
def test_bytes_of_another_format_are_found(
    groups: tuple[Group, Group], precisions: tuple[str, ...], defects: list[str]
) -> None:
    assert found(groups, (), precisions=precisions)[:1] == defects
    assert not found(groups, (1, 2), precisions=precisions)
    assert not found(groups, None, precisions=precisions)  # the release does not say
    assert not found(groups, (), SIZE, precisions)  # all of it is written


def test_what_is_zeroed_is_not_what_its_key_says() -> None:
    runner = runner_of((FULL,))
    half = Scheduled("a", 0, 2, 0, ((1,),), whole=True, first=True)
    rest = replace(half, start=2, blocks=((),), whole=False, first=False)
    assert not runner.execute(Plan((half,), zeroed=(1,)), POOL)[1]
    (misread,) = runner.execute(Plan((rest,), zeroed=(1,)), POOL)[1]
    assert str(misread.signature.code) == "other-content-read"


def test_each_group_has_a_precision() -> None:
    with pytest.raises(HistoryError, match="one entry for each group"):
        Deployment((FULL, WINDOW), 20, 64, 64, precisions=("fp8",))

"""The mask check notices faults in what connectors store, and in what is registered too early."""

from typing import Any

import pytest

from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

WINDOW = single_group(GroupKind.SLIDING_WINDOW, 2, 3, 2, False, 10)
DRAFTED = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 2, True, 6)
CONFIGURATIONS = {
    "WINDOW": WINDOW,
    "DRAFTED": DRAFTED,
    "ALIGNED": single_group(GroupKind.SLIDING_WINDOW, 2, 1, 3, False, 10),
    "EARLY": single_group(GroupKind.SLIDING_WINDOW, 2, 3, 4, True, 9),
    "UNTHINNED": single_group(GroupKind.FULL_ATTENTION, 2, 2, None, True, 6),
}
FAULTS = faults(CASES / "reference.toml", reference_subject.__name__)["mask"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    fault, subject = FAULTS[name], ReferenceSubject()
    configuration = CONFIGURATIONS[fault["configuration"]]
    assert not check_mask(subject, configuration).evidence
    with edited(fault):
        found = check_mask(subject, configuration).evidence
    assert {item.signature.divergence for item in found} == {fault["divergence"]}
    assert fault["code"] in {item.signature.code for item in found}
    assert {dict(e.signature.defect.parameters)["during"] for e in found} == {fault["during"]}


class StoresTooFew(ReferenceSubject):
    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        return super().stored(configuration, end)[1:]


def test_blocks_that_are_not_accounted_for_are_inconclusive() -> None:
    result = check_mask(StoresTooFew(), WINDOW)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "9 of 10 blocks" in result.detail


def test_older_targets_are_judged_by_what_they_have() -> None:
    class Old(ReferenceSubject):
        def stored(self, *_: Any) -> list[bool]:
            raise Predates("the target is older")

        def registered_when_final(self, *_: Any, **__: Any) -> list[bool]:
            raise Predates("the target is older")

    for configuration in (WINDOW, DRAFTED):
        assert set(check_mask(Old(), configuration).statuses.values()) == {Status.PROVED}


def test_a_target_that_should_have_it_is_inconclusive() -> None:
    class Missing(ReferenceSubject):
        def stored(self, *_: Any) -> list[bool]:
            raise CannotJudge("masks of what is stored cannot be found")

    result = check_mask(Missing(), WINDOW)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}


class KeepsState(ReferenceSubject):
    """Registers nothing of what it was asked about before."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[Any] = set()

    def registered(self, *given: Any) -> list[bool]:
        found = super().registered(*given)
        if given in self._asked:
            return [False] * len(found)
        self._asked.add(given)
        return found

    def retained(self, *given: Any) -> list[bool]:
        found = super().retained(*given)
        if given in self._asked:
            return [not held for held in found]
        self._asked.add(given)
        return found


@pytest.mark.parametrize("check", [check_mask, check_retention])
def test_a_producer_that_keeps_state_is_not_proved(check: Any) -> None:
    result = check(KeepsState(), single_group(GroupKind.SLIDING_WINDOW, 4, 2, 6, True, 8))
    assert {*result.statuses.values()} == {Status.INCONCLUSIVE}
    assert "keeps state" in result.detail

"""Each check asks a subject for the capability that it names, and judges nothing without it."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from hitproof.conformance.checks.admission import check_admission
from hitproof.conformance.checks.agreement import check_agreement
from hitproof.conformance.checks.connector import check_local_prefix
from hitproof.conformance.checks.fine_hits import check_fine
from hitproof.conformance.checks.junctions import check_junctions
from hitproof.conformance.checks.lookup import check_common_hit, check_lookup
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.pool import check_pool
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.checks.sharing import check_sharing
from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.subjects import Subject
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import Group, GroupKind

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
WINDOW = single_group(SLIDING, 2, 1, 4, False, 6)
PLAIN = single_group(FULL, 4, 1, None, False, 24)
PAIR = Layout((Group(FULL, 1), Group(MAMBA, 1)), 4, False, 1)
TWO = Layout((Group(SLIDING, 1, 2), Group(FULL, 1)), 4, False, 1)
JUDGED: dict[Callable[[Any, Any], CheckResult], Any] = {
    check_lookup: WINDOW,
    check_agreement: TWO,
    check_common_hit: TWO,
    check_local_prefix: PAIR,
    check_fine: PLAIN,
    check_mask: WINDOW,
    check_retention: WINDOW,
    check_junctions: WINDOW,
    check_sharing: PLAIN,
    check_admission: WINDOW,
    check_tier_lookup: TWO,
    check_tier_masks: TWO,
}
"""All checks but that of the pool, which has one method to ask for and takes long."""


class Only:
    """The reference, as a subject that has one capability."""

    def __init__(self, capability: type) -> None:
        self._capability = capability

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._capability, name):
            raise AssertionError(f"{name} is not of a {self._capability.__name__}")
        return getattr(ReferenceSubject(), name)


def capability_of(check: Callable[[Any, Any], CheckResult]) -> type:
    """The capability that a check names."""
    named: type = get_type_hints(check)["subject"]
    return named


def test_every_check_names_one_capability_and_all_of_them_are_a_subject() -> None:
    named = {capability_of(check) for check in CHECKS.values()}
    assert Subject not in named
    assert named <= set(inspect.getmro(Subject))
    assert {check.__name__ for check in JUDGED} | {"check_pool"} == {
        check.__name__ for check in CHECKS.values()
    }


@pytest.mark.parametrize("check", JUDGED, ids=lambda check: str(check.__name__))
def test_a_check_asks_for_no_more(check: Callable[[Any, Any], CheckResult]) -> None:
    result = check(Only(capability_of(check)), JUDGED[check])
    assert result.statuses
    assert set(result.statuses.values()) == {Status.PROVED}


def test_asking_for_more_is_noticed() -> None:
    with pytest.raises(AssertionError, match="pool is not of a LookupSubject"):
        _ = Only(capability_of(check_lookup)).pool


class Failing:
    """The reference, as a subject all of whose methods fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        found = getattr(ReferenceSubject(), name)
        return self._fail if callable(found) else found

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("check", [*JUDGED, check_pool], ids=lambda check: str(check.__name__))
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CannotJudge("it cannot be found"), Status.INCONCLUSIVE),
        (Predates("the target is older"), Status.NOT_APPLICABLE),
    ],
)
def test_what_cannot_be_asked_is_not_judged(check: Any, error: Exception, status: Status) -> None:
    result = check(Failing(error), JUDGED.get(check, PLAIN))
    assert set(result.statuses.values()) == {status}
    assert str(error) in result.detail
    assert not result.evidence

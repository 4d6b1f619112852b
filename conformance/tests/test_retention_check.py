"""The check of retention: nothing on the reference, and each fault found."""

from typing import Any

import pytest

from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS

SLIDING = GroupKind.SLIDING_WINDOW
FAULTS = faults(CASES / "reference.toml", reference_subject.__name__)["retention"]
SIBLINGS = "retention_keeps_siblings"


def test_the_reference_conforms() -> None:
    for configuration in configurations(Profile.QUICK):
        result = check_retention(ReferenceSubject(), configuration)
        assert set(result.statuses.values()) <= {Status.PROVED}, configuration.describe()
        assert bool(result.statuses) == (configuration.group.kind in SPARSE_KINDS)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refuted(name: str) -> None:
    fault = FAULTS[name]
    with edited(fault):
        result = check_retention(ReferenceSubject(), single_group(SLIDING, 2, 2, 3, True, 24))
    refuted = {claim for claim, status in result.statuses.items() if status is Status.REFUTED}
    assert refuted == {*fault["claims"]}
    assert {evidence.signature.code for evidence in result.evidence} == {fault["code"]}


def test_an_interval_off_the_boundaries_is_refused() -> None:
    """A subject that rounds such an interval instead is seen."""

    class Rounding(ReferenceSubject):
        def retained(
            self, configuration: Configuration, num_tokens: int, interval: int
        ) -> list[bool]:
            align = configuration.alignment
            return super().retained(configuration, num_tokens, max(interval, 0) // align * align)

    for configuration in (
        single_group(SLIDING, 2, 2, 3, True, 24),
        single_group(SLIDING, 1, 1, 3, False, 9),
    ):
        result = check_retention(Rounding(), configuration)
        refuted = [claim for claim, status in result.statuses.items() if status is Status.REFUTED]
        assert refuted == [SIBLINGS]
        (evidence,) = result.evidence
        assert evidence.signature.code is Code.INTERVAL_NOT_REFUSED
        assert shrink(Rounding(), evidence).signature == evidence.signature
        assert "it is accepted" in finding(evidence, "").actual


def test_a_finding_shrinks_and_shows_the_promised_hit() -> None:
    subject = ReferenceSubject()
    with edited(FAULTS["keeps nothing"]):
        result = check_retention(subject, single_group(SLIDING, 4, 3, 9, True, 24))
        for evidence in smallest(result.evidence).values():
            small = shrink(subject, evidence)
            assert small.signature == evidence.signature
            # Three segments of two blocks, longer than the lookahead block, and that.
            assert small.configuration.bound(small.configuration.looked_up[0]) <= 7
            shown = finding(small, "")
            assert "retention interval" in shown.given[1]
            assert "hit needs" in shown.strip


def test_a_peek_past_the_cap_is_a_policy() -> None:
    """A subject that may not peek promises resends less, and must keep that instead."""

    class Capped(ReferenceSubject):
        lookahead_horizon = LookaheadHorizon.CAPPED

    configuration = single_group(SLIDING, 2, 2, 3, True, 24)
    assert set(check_retention(Capped(), configuration).statuses.values()) == {Status.PROVED}


def test_blocks_that_are_not_accounted_for_cannot_be_judged() -> None:
    class Subject(ReferenceSubject):
        def retained(self, *_: Any) -> list[bool]:
            return []

    result = check_retention(Subject(), single_group(SLIDING, 2, 2, 3, True, 24))
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert result.detail


def test_a_crash_is_a_finding() -> None:
    class Crashing(ReferenceSubject):
        def retained(self, *_: Any) -> Any:
            raise KeyError("a fault")

    result = check_retention(Crashing(), single_group(SLIDING, 2, 2, 3, True, 24))
    assert {evidence.signature.divergence for evidence in result.evidence} == {Divergence.CRASH}
    for evidence in result.evidence:
        assert "raises KeyError" in finding(shrink(Crashing(), evidence), "").actual

"""The check of admission: the reference passes, and managers that count wrongly do not."""

from collections.abc import Callable, Iterator

import pytest

from hitproof.conformance.checks.admission import ADMISSION, check_admission, takes_part
from hitproof.conformance.findings.evidence import AdmissionEvidence, Evidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.managers import Allocation, Manager, Tables
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

REFERENCE = ReferenceSubject()
WINDOW = single_group(GroupKind.SLIDING_WINDOW, 2, 1, 4, False, 24)
ASKED = [each for each in configurations(Profile.DEFAULT) if takes_part(each)]


class Subject:
    """A subject with managers of its own, and nothing else."""

    def __init__(
        self, manager: Callable[[EngineConfiguration], Manager], fits_whole: bool = True
    ) -> None:
        self.manager = manager
        self.fits_whole = fits_whole


class CountsTables(broken.Wrapped):
    """Takes blocks that are not there: it counts none that a running request takes."""

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        tables = self.inner.allocate_slots(name, allocation)
        if tables is None and allocation.hit is None:
            raise ValueError("Cannot get 1 free blocks from the pool")
        return tables


def wrong() -> Iterator[tuple[Subject, str]]:
    yield Subject(broken.Broken(broken.AdmitsInPart).start), "admission-not-kept"
    yield Subject(broken.Broken(broken.AdmitsInPart).start), "admitted-without-space"
    yield Subject(broken.CountsOneStepForAdmission().start), "admission-not-kept"
    yield Subject(broken.Broken(broken.KeepsOneBlock).start), "allocation-refused"
    yield Subject(broken.Broken(broken.KeepsOneBlock).start, fits_whole=False), "allocation-refused"
    yield Subject(broken.Broken(CountsTables).start), "raises-exception"


def test_the_reference_admits_rightly() -> None:
    kinds = set()
    for configuration in ASKED:
        result = check_admission(REFERENCE, configuration)
        assert (result.statuses, result.evidence) == ({ADMISSION: Status.PROVED}, ())
        assert result.paths > 10
        kinds.add(configuration.group.kind)
    assert kinds == set(GroupKind) - {GroupKind.MAMBA}


@pytest.mark.parametrize(("subject", "code"), list(wrong()))
def test_a_manager_that_counts_wrongly_is_caught(subject: Subject, code: str) -> None:
    result = check_admission(subject, WINDOW)
    assert result.statuses == {ADMISSION: Status.REFUTED}
    shown = {each.signature.code: each for each in result.evidence}
    evidence = shown[next(each for each in shown if each == code)]
    assert isinstance(evidence, AdmissionEvidence)
    assert evidence.entry == "admission"
    assert Evidence.from_json(evidence.as_json()) == evidence
    given = finding(evidence, "f:1").given
    assert given[0] == WINDOW.describe()
    assert "in the pool" in given[1]


def test_a_release_that_cannot_admit_as_a_whole_is_judged_step_by_step() -> None:
    subject = Subject(broken.Broken(broken.AdmitsInPart).start, fits_whole=False)
    result = check_admission(subject, WINDOW)
    assert result.statuses == {ADMISSION: Status.PROVED}
    assert 0 < result.paths < check_admission(REFERENCE, WINDOW).paths

"""The check of fine-grained hits: nothing on the reference, and each fault found."""

import pytest

from hitproof.conformance.checks.fine_hits import check_fine
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceFineLookup, ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import FINE_KINDS

FULL, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.MAMBA
CLAIM = "fine_grained_hit_is_vouched_for"


FAULTS = faults(CASES / "reference.toml", reference_subject.__name__)["fine"]


@pytest.mark.slow
def test_the_reference_conforms() -> None:
    judged = set()
    for configuration in configurations(Profile.QUICK):
        result = check_fine(ReferenceSubject(), configuration)
        assert set(result.statuses.values()) <= {Status.PROVED}, configuration.describe()
        if result.statuses:
            judged.add((configuration.group.kind, configuration.group.eagle))
            assert result.paths == result.states > 1000
    assert judged == {(kind, eagle) for kind in FINE_KINDS for eagle in (False, True)}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("kind", FINE_KINDS)
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refuted(kind: GroupKind, name: str) -> None:
    fault = FAULTS[name]
    with edited(fault):
        result = check_fine(ReferenceSubject(), single_group(kind, 4, 1, None, False, 24))
    assert result.statuses == {CLAIM: Status.REFUTED}
    found = {evidence.signature.divergence for evidence in result.evidence}
    assert found
    assert found <= {*fault["divergences"]}
    assert fault["code"] in {evidence.signature.code for evidence in result.evidence}


def test_a_finding_shrinks_and_shows_hash_blocks() -> None:
    subject = ReferenceSubject()
    with edited(FAULTS["whole blocks only"]):
        result = check_fine(subject, single_group(FULL, 16, 1, None, False, 24))
        (evidence,) = smallest(result.evidence).values()
        small = shrink(subject, evidence)
    assert small.signature == evidence.signature
    assert isinstance(small.configuration, Configuration)
    assert (small.configuration.group.block_size, small.configuration.hash_block_size) == (2, 1)
    shown = finding(small, "")
    assert "may end on any hash block of 1 token; entered hash blocks: 0" in shown.given[1]
    assert "spec hit" in shown.strip


def test_a_lookup_of_other_blocks_cannot_be_judged() -> None:
    class Subject(ReferenceSubject):
        def fine_lookup(self, _: Configuration) -> ReferenceFineLookup:
            return ReferenceFineLookup(single_group(FULL, 4, 1, None, False, 1))

    result = check_fine(Subject(), single_group(MAMBA, 4, 1, None, False, 24))
    assert result.statuses == {CLAIM: Status.INCONCLUSIVE}
    assert result.detail

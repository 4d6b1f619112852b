"""The check of sharing: nothing on the reference, and each way to confuse content found."""

import pytest

from hitproof.conformance.checks.sharing import check_sharing
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.subject.failures import Predates
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

CLAIM = "reused_content_is_determined_by_the_hit"
FAULTS = faults(CASES / "reference.toml", reference_subject.__name__)["sharing"]
PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)


def test_the_reference_conforms() -> None:
    result = check_sharing(ReferenceSubject(), PLAIN)
    assert result.statuses == {CLAIM: Status.PROVED}
    assert result.paths > 1_000


def test_other_configurations_settle_nothing() -> None:
    eagle = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, True, 24)
    assert check_sharing(ReferenceSubject(), eagle).statuses == {}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refuted(name: str) -> None:
    fault, subject = FAULTS[name], ReferenceSubject()
    with edited(fault):
        result = check_sharing(subject, PLAIN)
        evidence = {str(e.signature.defect): e for e in result.evidence}[fault["shows"]]
        assert shrink(subject, evidence).signature == evidence.signature
    assert result.statuses == {CLAIM: Status.REFUTED}
    assert evidence.signature.divergence == fault["divergence"]
    assert Evidence.from_json(evidence.as_json()) == evidence
    given = finding(evidence, "").given
    assert [line.split(":")[0] for line in given[1:]] == ["request A", "request B"]


def test_hashes_that_do_not_look_ahead_are_enough_to_judge() -> None:
    class Older(ReferenceSubject):
        def block_hashes(
            self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
        ) -> list[bytes]:
            if hash_lookahead:
                raise Predates("the target predates hashes that look ahead")
            return super().block_hashes(prompt, hash_block_size, block_size, 0)

    assert check_sharing(Older(), PLAIN).statuses == {CLAIM: Status.PROVED}


def test_prompts_of_one_kind_are_enough_to_judge() -> None:
    class Older(ReferenceSubject):
        asked = 0

        def block_hashes(self, prompt: Prompt, *sizes: int) -> list[bytes]:
            if prompt.is_token_ids:
                Older.asked += 1
                raise Predates("the target predates prompts of token ids and embeddings")
            return super().block_hashes(prompt, *sizes)

    older, newer = (check_sharing(subject, PLAIN) for subject in (Older(), ReferenceSubject()))
    assert older.statuses == newer.statuses == {CLAIM: Status.PROVED}
    assert Older.asked
    assert older.paths < newer.paths


def test_a_subject_without_hashes_is_not_judged() -> None:
    class Without(ReferenceSubject):
        def block_hashes(self, *_: object) -> list[bytes]:
            return []

    result = check_sharing(Without(), PLAIN)
    assert result.statuses == {CLAIM: Status.INCONCLUSIVE}
    assert "have a hash" in result.detail


def test_hashes_that_change_are_not_judged() -> None:
    class Fickle(ReferenceSubject):
        asked = 0

        def block_hashes(self, *_: object) -> list[bytes]:
            self.asked += 1
            return [b"%d" % self.asked] * 3

    result = check_sharing(Fickle(), PLAIN)
    assert result.statuses == {CLAIM: Status.INCONCLUSIVE}
    assert "asked again" in result.detail


def test_a_token_of_a_mixed_prompt_may_as_well_have_been_generated() -> None:
    generated = Prompt((0, 0, 0), embeddings=(1,))
    given = Prompt((0, 0, 0), embeddings=(1, 0, 0), is_token_ids=(False, True, True))
    assert given.as_generated() == generated.as_generated()
    other_place = Prompt((0, 0, 0), embeddings=(0, 1, 0), is_token_ids=(True, False, True))
    assert other_place.as_generated() != given.as_generated()
    assert other_place.as_generated() != Prompt((0, 0, 0), embeddings=(0, 1)).as_generated()

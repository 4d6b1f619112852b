"""The check of sharing: nothing on the reference, and each way to confuse content found."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hitproof.conformance.checks.sharing import check_sharing
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.subject.failures import Predates
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import GroupKind

CLAIM = "reused_content_is_determined_by_the_hit"
PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)

Distort = Callable[[Prompt, int, int], tuple[Prompt, int]]


class Confused(ReferenceSubject):
    """The reference, hashing another prompt, or one with another lookahead."""

    def __init__(self, distort: Distort) -> None:
        super().__init__()
        self._distort = distort

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        hashed, lookahead = self._distort(prompt, block_size, hash_lookahead)
        covered = super().block_hashes(hashed, hash_block_size, block_size, lookahead)
        return covered[: (len(prompt.tokens) - hash_lookahead) // block_size]


def without_salt(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, salt=""), ahead


def without_adapter(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, adapter=("", "")), ahead


def adapter_by_name(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, adapter=(prompt.adapter[0], "")), ahead


def salt_or_adapter(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    """As vLLM up to 0.30: their names are told apart by nothing."""
    both = prompt.salt + prompt.adapter[0]
    return replace(prompt, salt=both, adapter=("", "")), ahead


def without_first_token(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, tokens=(0, *prompt.tokens[1:])), ahead


def without_last_token_of_blocks(prompt: Prompt, size: int, ahead: int) -> tuple[Prompt, int]:
    ends = range(size - 1, len(prompt.tokens), size) if size > 1 else ()
    tokens = tuple(0 if i in ends else token for i, token in enumerate(prompt.tokens))
    return replace(prompt, tokens=tokens), ahead


def without_lookahead(prompt: Prompt, _: int, __: int) -> tuple[Prompt, int]:
    return prompt, 0


def of_the_whole_prompt(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, salt=prompt.salt + repr(prompt.tokens)), ahead


def without_embeddings_before_output(prompt: Prompt, size: int, ahead: int) -> tuple[Prompt, int]:
    """In blocks of three tokens, where at least the last two of them may be generated."""
    lost = size == 3 and prompt.num_generated > 1
    return replace(prompt, embeddings=() if lost else prompt.embeddings), ahead


def without_embeddings_beside_token_ids(
    prompt: Prompt, size: int, ahead: int
) -> tuple[Prompt, int]:
    del size
    return replace(prompt, embeddings=() if any(prompt.is_token_ids) else prompt.embeddings), ahead


def only_the_last_image(prompt: Prompt, size: int, ahead: int) -> tuple[Prompt, int]:
    """As vLLM up to 0.30, in blocks that tokens complete which are generated."""
    lost = prompt.num_generated and (len(prompt.tokens) - prompt.num_generated) % size
    return replace(prompt, images=prompt.images[-1:] if lost else prompt.images), ahead


def generated_apart(prompt: Prompt, _: int, ahead: int) -> tuple[Prompt, int]:
    return replace(prompt, salt=f"generated {prompt.num_generated}"), ahead


FAULTS: dict[str, tuple[Distort, Divergence, str]] = {
    "salts": (without_salt, Divergence.UNSOUND, "hash-collision(inputs=salts)"),
    "adapters": (without_adapter, Divergence.UNSOUND, "hash-collision(inputs=adapters)"),
    "paths": (adapter_by_name, Divergence.UNSOUND, "hash-collision(inputs=adapters)"),
    "names": (salt_or_adapter, Divergence.UNSOUND, "hash-collision(inputs=salts-adapters)"),
    "first token": (without_first_token, Divergence.UNSOUND, "hash-collision(inputs=tokens)"),
    "last tokens": (
        without_last_token_of_blocks,
        Divergence.UNSOUND,
        "hash-collision(inputs=tokens)",
    ),
    "lookahead": (
        without_lookahead,
        Divergence.UNSOUND,
        "hash-collision(hashes=lookahead, inputs=tokens)",
    ),
    "embeddings": (
        without_embeddings_before_output,
        Divergence.UNSOUND,
        "hash-collision(inputs=embeddings)",
    ),
    "embeddings beside token ids": (
        without_embeddings_beside_token_ids,
        Divergence.UNSOUND,
        "hash-collision(inputs=embeddings)",
    ),
    "images": (only_the_last_image, Divergence.UNSOUND, "hash-collision(inputs=images)"),
    "generated": (generated_apart, Divergence.LOST_HIT, "hash-mismatch"),
    "too much": (of_the_whole_prompt, Divergence.LOST_HIT, "hash-mismatch"),
}


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
    distort, divergence, failure = FAULTS[name]
    result = check_sharing(Confused(distort), PLAIN)
    assert result.statuses == {CLAIM: Status.REFUTED}
    found = {str(e.signature.defect): e for e in result.evidence}
    evidence = found[failure]
    assert evidence.signature.divergence == divergence
    assert Evidence.from_json(evidence.as_json()) == evidence
    assert shrink(Confused(distort), evidence).signature == evidence.signature
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

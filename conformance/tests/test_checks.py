"""Every check finds nothing on the reference and something on a reference broken for it."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.admission import ADMISSION
from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence, LookupEvidence, MaskEvidence, smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import (
    Configuration,
    is_possible,
    single_group,
    windows_with_tail,
)
from hitproof.conformance.scope.grid import configurations, grid
from hitproof.conformance.scope.models import MODELS, cut
from hitproof.conformance.scope.profiles import LONGEST_TAIL, Profile
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.tests import (
    test_agreement_check,
    test_fine_check,
    test_junction_check,
    test_pool_check,
    test_sharing_check,
)
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.conformance.tests.subjects_for_tests import (
    BrokenSubject,
    longer_tail,
    no_lookahead,
    shorter_tail,
    wider_segment,
)
from hitproof.conformance.tests.test_common_hit_check import COMMON_BROKEN
from hitproof.conformance.tests.test_connector_check import CONNECTOR_BROKEN
from hitproof.conformance.tests.test_retention_check import FAULTS
from hitproof.conformance.tests.test_tier_check import TIERS_BROKEN
from hitproof.spec.attention import tail_blocks
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.spec.groups import BlockGeometry, GroupKind

SLIDING = GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA


def null_in_table(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del configuration
    tables = [[*table[:-1], pool.null_block] if table else [] for table in answer.tables]
    return LookupAnswer(answer.hit_length, tables)


def short_table(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del pool, configuration
    return LookupAnswer(answer.hit_length, [table[1:] for table in answer.tables])


def half_a_block(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del pool
    return LookupAnswer(answer.hit_length + configuration.group.block_size // 2, answer.tables)


def swapped(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del pool, configuration
    return LookupAnswer(answer.hit_length, [table[::-1] for table in answer.tables])


def raises(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del pool, configuration
    assert answer.hit_length == 0, "made to fail"
    return answer


READS, TAIL = "hit_has_every_block_attention_reads", "eagle_needs_tail_plus_one"
LONGEST = "lookup_returns_longest_valid_hit"
KEEPS, ONLY = "mask_keeps_every_reachable_block", "mask_keeps_only_reachable_blocks"
BROKEN = {
    "no lookahead": (BrokenSubject(no_lookahead), TAIL, Code.REQUIRED_BLOCK_UNCACHED),
    "tail one short": (BrokenSubject(shorter_tail), READS, Code.REQUIRED_BLOCK_UNCACHED),
    "tail one short, EAGLE": (BrokenSubject(shorter_tail), TAIL, Code.REQUIRED_BLOCK_UNCACHED),
    "tail one long": (BrokenSubject(longer_tail), LONGEST, Code.HIT_TOO_SHORT),
    "every other boundary": (BrokenSubject(wider_segment), LONGEST, Code.HIT_TOO_SHORT),
    "null served": (BrokenSubject(answer=null_in_table), READS, Code.TABLE_BLOCK_WRONG),
    "table too short": (BrokenSubject(answer=short_table), READS, Code.TABLE_LENGTH_WRONG),
    "table reversed": (BrokenSubject(answer=swapped), READS, Code.TABLE_BLOCK_WRONG),
    "off the boundary": (BrokenSubject(answer=half_a_block), READS, Code.HIT_OFF_BOUNDARY),
    "raises": (BrokenSubject(answer=raises), LONGEST, Code.RAISES_EXCEPTION),
    "mask without lookahead": (
        BrokenSubject(mask=no_lookahead), KEEPS, Code.LOOKAHEAD_BLOCK_UNREGISTERED
    ),
    "mask tail one short": (BrokenSubject(mask=shorter_tail), KEEPS, Code.TAIL_BLOCK_UNREGISTERED),
    "mask tail one long": (
        BrokenSubject(mask=longer_tail), ONLY, Code.UNREACHABLE_BLOCK_REGISTERED
    ),
    "mask of every block": (
        BrokenSubject(registers=lambda _: True), ONLY, Code.UNREACHABLE_BLOCK_REGISTERED
    ),
    "mask of no block": (
        BrokenSubject(registers=lambda _: False), KEEPS, Code.CHUNK_BLOCK_UNREGISTERED
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_lookup, check_mask])
def test_the_reference_conforms(check: Any) -> None:
    for configuration in configurations(Profile.QUICK):
        if configuration.num_blocks > 40 and check is check_lookup:
            continue  # the real models' long tails take minutes in all; vLLM's lookup merges better
        result = check(ReferenceSubject(), configuration)
        assert set(result.statuses.values()) == {Status.PROVED}, configuration.describe()
        assert result.paths
        assert result.states


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_is_refuted(name: str) -> None:
    subject, claim, code = BROKEN[name]
    refuted: set[str] = set()
    for configuration in grid(Profile.QUICK):
        if configuration.shape.segment > 2:
            continue
        result = CHECKS[claim](subject, configuration)
        refuted |= {c for c, status in result.statuses.items() if status is Status.REFUTED}
        if claim in refuted:
            assert code in {evidence.signature.code for evidence in result.evidence}
            return
    pytest.fail(f"only {refuted} refuted")


@pytest.mark.parametrize("kind", [GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW])
def test_without_a_lookahead_block_only_drafts_are_wrong(kind: GroupKind) -> None:
    """Also at the end of a request, where no lookup can ask about that block."""
    window = 2 if kind is GroupKind.SLIDING_WINDOW else None
    configuration = single_group(kind, 2, 1, window, True, 4)
    result = check_lookup(BrokenSubject(shape=no_lookahead), configuration)
    assert any(
        isinstance(e, LookupEvidence) and e.actual_hit and e.max_length < e.actual_hit + 2
        for e in result.evidence
    )
    assert {evidence.signature.divergence for evidence in result.evidence} == {
        Divergence.WRONG_DRAFTS
    }


def test_every_claim_has_a_fault_that_its_check_refutes() -> None:
    refuted = {claim for _, claim, _ in BROKEN.values()}
    refuted |= {claim for fault in FAULTS.values() for claim in fault["claims"]}
    refuted |= test_pool_check.CLAIMS_OF_POOLS
    refuted |= {test_sharing_check.CLAIM, ADMISSION}
    refuted |= {claim for _, claim, _ in (COMMON_BROKEN | CONNECTOR_BROKEN).values()}
    refuted |= {fault["claim"] for fault in TIERS_BROKEN.values()}
    refuted |= {test_fine_check.CLAIM, test_junction_check.CLAIM}
    refuted |= set(test_agreement_check.REFUTED)
    assert refuted == CLAIMS.keys() == CHECKS.keys()


def smaller_chunk(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, chunk=max(shape.chunk - shape.block_size, shape.block_size))


def larger_chunk(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, chunk=2 * shape.chunk)


def looks_ahead(shape: BlockGeometry) -> BlockGeometry:
    return replace(shape, lookahead=1)


@pytest.mark.parametrize(
    ("kind", "subject", "claims"),
    [
        (CHUNKED, BrokenSubject(shape=smaller_chunk), {"hit_has_every_block_attention_reads"}),
        (CHUNKED, BrokenSubject(shape=larger_chunk), {"lookup_returns_longest_valid_hit"}),
        (CHUNKED, BrokenSubject(mask=smaller_chunk), {"mask_keeps_every_reachable_block"}),
        (CHUNKED, BrokenSubject(registers=lambda _: True), {"mask_keeps_only_reachable_blocks"}),
        (MAMBA, BrokenSubject(shape=looks_ahead), {"lookup_returns_longest_valid_hit"}),
        (MAMBA, BrokenSubject(shape=wider_segment), {"lookup_returns_longest_valid_hit"}),
        (MAMBA, BrokenSubject(mask=wider_segment), {"mask_keeps_every_reachable_block"}),
        (MAMBA, BrokenSubject(registers=lambda _: True), {"mask_keeps_only_reachable_blocks"}),
    ],
)
def test_faults_with_chunks_and_states_are_refuted(
    kind: GroupKind, subject: BrokenSubject, claims: set[str]
) -> None:
    chunk = 8 if kind is CHUNKED else None
    configuration = single_group(kind, 2, 2 - bool(chunk), None, False, 12, 1, chunk)
    refuted = {
        claim
        for check in (check_lookup, check_mask)
        for claim, status in check(subject, configuration).statuses.items()
        if status is Status.REFUTED
    }
    assert claims <= refuted
    for claim in claims:
        evidence = evidence_of(subject, configuration, claim)
        assert Evidence.from_json(evidence.as_json()) == evidence
        small = shrink(subject, evidence)
        assert small.signature == evidence.signature
        assert small.size <= evidence.size
        assert finding(small, "f:1").strip


def test_chunks_of_broken_blocks_are_judged_though_no_engine_has_them() -> None:
    configuration = single_group(CHUNKED, 3, 1, None, False, 8, 1, 8)
    assert not is_possible(configuration)
    for check in (check_lookup, check_mask):
        result = check(ReferenceSubject(), configuration)
        assert set(result.statuses.values()) == {Status.PROVED}


def evidence_of(subject: BrokenSubject, configuration: Configuration, claim: str) -> Evidence:
    found = smallest(CHECKS[claim](subject, configuration).evidence)
    return next(item for signature, item in found.items() if signature.claim == claim)


def test_findings_shrink_to_the_smallest_configuration() -> None:
    claim = "mask_keeps_every_reachable_block"
    subject = BrokenSubject(mask=no_lookahead)
    large = evidence_of(subject, single_group(SLIDING, 16, 4, 33, True, 24, 2), claim)
    small = shrink(subject, large)
    assert small.signature == large.signature
    assert small.configuration == single_group(SLIDING, 1, 2, 2, True, 3)
    assert isinstance(small, MaskEvidence)
    assert sorted(small.registered) == [1]


def test_a_lookup_finding_shrinks_its_cache_state_too() -> None:
    claim = "eagle_needs_tail_plus_one"
    subject = BrokenSubject(shape=no_lookahead)
    large = evidence_of(subject, single_group(SLIDING, 4, 2, 9, True, 12), claim)
    small = shrink(subject, large)
    assert small.signature == large.signature
    assert isinstance(small.configuration, Configuration)
    assert small.configuration.num_blocks <= 2
    assert isinstance(small, LookupEvidence)
    assert isinstance(large, LookupEvidence)
    assert len(small.cached[0]) <= len(large.cached[0])


def test_a_finding_shows_claim_given_spec_actual_and_strip() -> None:
    claim = "mask_keeps_every_reachable_block"
    subject = BrokenSubject(mask=no_lookahead)
    shown = finding(evidence_of(subject, single_group(SLIDING, 1, 2, 2, True, 3), claim), "f:1")
    assert shown.sentence == CLAIMS[claim].sentence
    assert shown.as_json()["class"] == "lost hit"
    assert "lookahead" in shown.spec
    rows = dict(
        zip(
            ("block", "reachable", "registered"),
            (line[12:].split() for line in shown.strip.splitlines()),
            strict=False,
        )
    )
    assert rows == {
        "block": [":", "0", "1", ":", "2"],
        "reachable": [":", ".", "t", ":", "L"],
        "registered": [":", ".", "#", ":", "."],
    }


@pytest.mark.parametrize("name", ["tail one short, EAGLE", "mask of every block"])
def test_evidence_survives_json(name: str) -> None:
    subject, claim, _ = BROKEN[name]
    evidence = evidence_of(subject, single_group(SLIDING, 2, 2, 3, True, 6), claim)
    assert Evidence.from_json(evidence.as_json()) == evidence


def test_a_mask_that_raises_is_a_crash_and_a_short_one_is_inconclusive() -> None:
    class Crashing(ReferenceSubject):
        def registered(self, *_: Any) -> list[bool]:
            raise IndexError("made to fail")

    class Short(ReferenceSubject):
        def registered(self, *_: Any) -> list[bool]:
            return []

    configuration = single_group(SLIDING, 1, 2, 2, True, 3)
    crash = check_mask(Crashing(), configuration)
    assert [item.signature.divergence for item in crash.evidence] == ["crash"]
    result = check_mask(Short(), configuration)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "0 of 3 blocks" in result.detail


def test_windows_with_tail_are_the_extremes() -> None:
    for tail in range(1, 6):
        for block_size in (1, 2, 16):
            low, *_, high = windows_with_tail(tail, block_size) * 2
            assert tail_blocks(low, block_size) == tail_blocks(high, block_size) == tail
            assert tail_blocks(high + 1, block_size) == tail + 1
            assert low == 2 or tail_blocks(low - 1, block_size) == tail - 1


def test_profiles_cover_what_they_say() -> None:
    for profile in Profile:
        covered = configurations(profile)
        assert len(set(covered)) == len(covered)
        assert all(c.num_blocks >= 16 for c in covered)
        assert {c.group.kind for c in covered} == set(GroupKind)
        tails = {
            (c.shape.tail > c.shape.segment) - (c.shape.tail < c.shape.segment) for c in covered
        }
        assert tails == {-1, 0, 1}
        for model in MODELS:
            for use_eagle in (False, True):
                assert set(model.configurations(use_eagle, profile)) <= set(covered)
            laid_out = {replace(c.group, eagle=False) for c in model.configurations(False, profile)}
            shown = {
                cut(replace(group, eagle=False), LONGEST_TAIL[profile]) for group in model.groups
            }
            chunks = {replace(g, eagle=False) for g in model.groups if g.chunk is not None}
            assert laid_out == {group for group in shown if group.chunk is None} | chunks
            assert model.origin
            with_eagle = model.configurations(True, profile)
            local = any(group.kind is CHUNKED for group in model.groups)
            assert any(c.group.eagle for c in with_eagle) is not local
            assert bool(with_eagle) is not local  # vLLM has no EAGLE with chunked local attention

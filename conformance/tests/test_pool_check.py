"""The check of the block pool: nothing on the reference, and each fault found by few steps."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from hitproof.conformance.checks import pool as pool_check
from hitproof.conformance.checks.pool import check_pool, is_judged_once
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence, PoolEvidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.pools import PoolSnapshot
from hitproof.conformance.tests import plain_pool
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.plain_pool import PlainPool, UnpinningPool
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import GroupKind

PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)

IN_USE = "block_in_use_is_never_evicted"
ORDER = "least_recently_used_block_goes_first"
COUNT = "free_count_is_free_queue_length"
NULL = "null_block_is_never_served"
NAMES = "cached_key_names_its_content"


FAULTS = faults(CASES / "pool.toml", plain_pool.__name__)["pool"]
CLAIMS_OF_POOLS = {fault["claim"] for fault in FAULTS.values()}


ALSO_FALSE = {
    Code.BLOCK_IN_USE_QUEUED: COUNT,
    Code.NULL_BLOCK_QUEUED: COUNT,
    Code.NULL_BLOCK_FOUND: NAMES,
    Code.NULL_BLOCK_CACHED: NAMES,
}
"""The claim whose sentence a code makes false beside that which it is booked under."""


class WithPool(ReferenceSubject):
    """The reference with another pool."""

    def __init__(self, pool: Callable[[int], Any]) -> None:
        super().__init__()
        self._pool = pool

    def pool(self, num_blocks: int) -> Any:
        return self._pool(num_blocks)


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four operations in a row show the faults."""
    monkeypatch.setattr(pool_check, "_DEPTH", 4)


@pytest.mark.slow
def test_the_reference_conforms() -> None:
    assert set(check_pool(WithPool(PlainPool), PLAIN).statuses.values()) == {Status.PROVED}
    result = check_pool(ReferenceSubject(), PLAIN)
    assert result.statuses == dict.fromkeys((IN_USE, COUNT, NULL, NAMES, ORDER), Status.PROVED)
    assert result.paths > result.states > 1_000


@pytest.mark.parametrize("profile", Profile)
def test_one_configuration_of_each_profile_is_judged(profile: Profile) -> None:
    assert len([c for c in configurations(profile) if is_judged_once(c)]) == 1


def test_other_configurations_settle_nothing() -> None:
    result = check_pool(ReferenceSubject(), single_group(GroupKind.MAMBA, 4, 1, None, False, 24))
    assert (result.statuses, result.paths) == ({}, 0)


@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refuted(name: str) -> None:
    claim, divergence, code = (FAULTS[name][each] for each in ("claim", "divergence", "code"))
    with edited(FAULTS[name]):
        result = check_pool(WithPool(PlainPool), PLAIN)
    assert result.statuses[claim] is Status.REFUTED
    found = [e.signature for e in result.evidence]
    assert (claim, divergence, code) in [(s.claim, s.divergence, s.code) for s in found]
    # What comes after a divergence is not explored, unless only the order is wrong.
    booked = {signature.claim for signature in found}
    refuted = booked | {ALSO_FALSE[s.code] for s in found if s.code in ALSO_FALSE}
    rest = Status.PROVED if booked == {ORDER} else Status.INCONCLUSIVE
    assert result.statuses == {
        each: Status.REFUTED if each in refuted else rest for each in result.statuses
    }
    assert result.refuting.keys() == refuted
    assert bool(result.detail) is (rest is Status.INCONCLUSIVE)
    for evidence in result.evidence:
        assert CLAIMS[evidence.signature.claim]
        assert evidence.signature.kind == "block_pool"
        assert Evidence.from_json(evidence.as_json()) == evidence


def test_every_claim_of_the_pool_is_refuted_by_some_fault() -> None:
    assert CLAIMS_OF_POOLS == {IN_USE, COUNT, NULL, NAMES, ORDER}


@pytest.mark.usefixtures("shallow")
def test_a_finding_is_the_shortest_sequence_and_shows_the_pool() -> None:
    subject = WithPool(PlainPool)
    with edited(FAULTS["touch leaves blocks in the queue"]):
        found = check_pool(subject, PLAIN).evidence
        (evidence,) = (each for each in found if "queued" in each.signature.code)
        small = shrink(subject, evidence)
    assert small.signature == evidence.signature
    shown = finding(small, "somewhere")
    assert [step.split("(")[0] for step in shown.given[1:]] == [
        "A: get_new_blocks",
        "A: cache_full_blocks",
        "A: free_blocks",
        "A: touch",
    ]
    block, *rows, count = shown.strip.splitlines()
    assert block.split() == ["block", "references", "held", "by", "free", "queue", "keys", "cache"]
    assert len(rows) == 4
    assert count == "count of free blocks: 3"


@pytest.mark.usefixtures("shallow")
def test_a_long_sequence_is_cut_down_to_what_it_takes() -> None:
    with edited(FAULTS["the free count drifts late"]):
        (evidence,) = check_pool(WithPool(PlainPool), PLAIN).evidence
    assert isinstance(evidence, PoolEvidence)
    freed = [step for step in evidence.steps if "free_blocks" in step]
    blocks = [step.split("(")[1].count(",") + 1 for step in freed]
    assert sum(blocks) > 20
    assert sum(blocks[:-1]) <= 20
    assert len(evidence.steps) < 30


@pytest.mark.usefixtures("shallow")
def test_a_pool_that_does_not_do_the_same_twice_is_not_judged() -> None:
    made: list[Any] = []

    class Fickle(PlainPool):
        def snapshot(self) -> PoolSnapshot:
            made.append(self)
            if len(made) % 50 == 0:
                self.free_count += 1
            return super().snapshot()

    result = check_pool(WithPool(Fickle), PLAIN)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "the same" in result.detail


class CannotUnpin(UnpinningPool):
    can_unpin = False


UNPINNED = faults(CASES / "pool.toml", plain_pool.__name__)["unpinned"]


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("name", UNPINNED)
def test_each_fault_of_unpinning_is_refuted(name: str) -> None:
    with edited(UNPINNED[name]):
        found = check_pool(WithPool(UnpinningPool), PLAIN).evidence
    assert UNPINNED[name]["code"] in {str(each.signature.defect) for each in found}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("reports", [True, False])
def test_a_pool_that_unpins_conforms_and_one_that_cannot_is_not_asked(reports: bool) -> None:
    with nullcontext() if reports else edited(UNPINNED["reports nothing"]):
        pool = UnpinningPool if reports else CannotUnpin
        assert not check_pool(WithPool(pool), PLAIN).evidence

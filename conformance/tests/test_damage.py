"""What earlier violations explain, and what they do not."""

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Books, Evidence, Key, Part, Table
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.judge.damage import Damage
from hitproof.conformance.subject.managers import Observation
from hitproof.conformance.tests.editing import cases


def signature(divergence: str = "unsound", code: Code = Code.OTHER_CONTENT_READ) -> Signature:
    return Signature("block_pool", divergence, "mamba", False, Defect(code))


def violation(*evidence: set[Part], divergence: str = "unsound") -> Violation:
    seen_in: Evidence = tuple(map(frozenset, evidence))
    return Violation(signature(divergence), "", "", evidence=seen_in)


FIRST = signature(code=Code.REFERENCE_COUNT_WRONG)


@pytest.mark.parametrize(
    ("evidence", "inherited"),
    [
        ([], False),
        ([{Block(1)}], True),
        ([{Block(2)}], False),
        ([{Block(1)}, {Block(2)}], False),
        ([{Block(1)}, {Block(2), Key("a[0:2]")}], True),
        ([{Table("a", 0, 4)}], True),
        ([{Table("a", 0, 5)}], False),
        ([{Table("a", 0)}], False),
        ([{Table("a", 1)}], True),
        ([{Table("a", 1, 99)}], True),
        ([{Table("b", 0, 1)}], False),
        ([{Books()}], False),
    ],
)
def test_all_evidence_must_be_explained(evidence: list[set[Part]], inherited: bool) -> None:
    damage = Damage()
    damage.add([Block(1), Key("a[0:2]"), Table("a", 0, 4), Table("a", 1)], FIRST)
    assert damage.cause(violation(*evidence)) == (FIRST if inherited else None)


@cases("cause, effect, inherited")
def test_a_finding_explains_nothing_worse(cause: str, effect: str, inherited: bool) -> None:
    damage, first = Damage(), signature(cause, Code.REFERENCE_COUNT_WRONG)
    damage.add([Block(1)], first)
    assert (damage.cause(violation({Block(1)}, divergence=effect)) == first) is inherited


def test_the_most_severe_finding_is_the_cause() -> None:
    damage = Damage()
    damage.add([Block(1)], signature("wrong drafts"))
    damage.add([Block(1)], FIRST)
    damage.add([Block(1)], signature("lost hit"))
    assert damage.cause(violation({Block(1)})) == FIRST


def observation(tables: dict[str, tuple[tuple[int, ...], ...]]) -> Observation:
    return Observation(
        tables=tables,
        ref_counts={},
        cached={(0, "a[0:2]"): (2,)},
        free_queue=(),
        num_free_blocks=0,
        usage=0.0,
        common_prefix=None,
        events=(),
        stats={},
    )


def test_what_nobody_can_read_any_more_is_forgotten() -> None:
    damage = Damage()
    damage.add([Block(1), Block(2), Block(3), Block(4), Books(), Table("a", 0)], FIRST)
    damage.observed(observation({"a": ((1,),)}), [Block(4)])
    left = [n for n in (1, 2, 3, 4) if damage.cause(violation({Block(n)}))]
    assert left == [1, 2, 4]
    assert damage.cause(violation({Books()})) is None
    damage.freed("a")
    assert damage.cause(violation({Table("a", 0)})) is None

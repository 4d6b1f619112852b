"""What a check comes to: the cases it went through, and how each claim ended."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hitproof.conformance.findings.evidence import Evidence, smallest
from hitproof.conformance.findings.footprints import Footprint, Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.claims import Divergence, Status


@dataclass(frozen=True)
class CheckResult:
    """What one check did on one configuration.

    Attributes:
        statuses: for each claim judged, how it ended.
        evidence: the smallest evidence of each signature that was seen.
        paths: runs of the subject that were compared with the spec.
        states: cache states (lookup) or registrations (mask) that they cover.
        detail: why a claim is inconclusive; empty otherwise.
        footprints: how far each signature of the evidence reaches.
        runs: runs on whole cache states, which must answer as was found.
        refuting: for each claim that is refuted, the signatures of what makes its sentence false.
            Where none is booked under the claim itself, they are booked under others.
    """

    statuses: dict[str, Status]
    evidence: tuple[Evidence, ...]
    paths: int
    states: int
    detail: str = ""
    footprints: Mapping[Signature, Footprint] = field(default_factory=dict)
    runs: int = 0
    refuting: Mapping[str, tuple[Signature, ...]] = field(default_factory=dict)


@dataclass
class Case:
    """A part of a check: how many runs and states it covers, and what diverged.

    Attributes:
        paths: runs of the subject.
        states: the states that they cover.
        evidence: one for each diverging case or, where those are counted, some of each signature.
        coarse: whether signatures are not distinguished in all cases.
        counted: how many cases of each code diverge, by what the subject answers.
        contradicts: the claims whose sentences what was seen makes false, with the signatures that
            it is booked under. Those of a signature's own claim need not be here.
        cut: whether what comes after a divergence was left out, so that nothing else is proved.
    """

    paths: int
    states: int
    evidence: Sequence[Evidence]
    coarse: bool = False
    counted: Mapping[tuple[Code, Row], int] | None = None
    runs: int = 0
    contradicts: Mapping[str, Set[Signature]] = field(default_factory=dict)
    cut: bool = False


def finished(claims: tuple[str, ...], cases: Callable[[], Iterator[Case]]) -> CheckResult:
    """Go through the cases; a claim that none of them contradicts is proved, if all could be run.

    A divergence has one signature, which names one claim. The other claims whose sentences it makes
    false are refuted as well.
    """
    done: list[Case] = []
    detail = ""
    try:
        done.extend(cases())
    except Exception as error:
        detail = refusal_of(error)
        if classify(error) is FailureKind.NOT_APPLICABLE and not done:
            return CheckResult(dict.fromkeys(claims, Status.NOT_APPLICABLE), (), 0, 0, detail)
    evidence = smallest(item for case in done for item in case.evidence)
    if any(case.coarse and case.evidence for case in done):
        detail = detail or "too much diverges to distinguish every way to diverge"
    if any(case.cut for case in done):
        detail = detail or "what comes after a divergence is not explored"
    refuting = _refuting(claims, done, evidence)
    unbroken = Status.INCONCLUSIVE if detail or not done else Status.PROVED
    return CheckResult(
        statuses={c: Status.REFUTED if c in refuting else unbroken for c in claims},
        evidence=tuple(evidence.values()),
        paths=sum(case.paths for case in done),
        states=sum(case.states for case in done),
        detail=detail or ("" if done else "the bound allows no case"),
        footprints=_footprints(done, evidence),
        runs=sum(case.runs for case in done),
        refuting=refuting,
    )


def _refuting(
    claims: Sequence[str], done: Sequence[Case], found: Mapping[Signature, Evidence]
) -> dict[str, tuple[Signature, ...]]:
    """The signatures that refute each claim: its own or, without any, others that contradict it."""
    refuting: dict[str, tuple[Signature, ...]] = {}
    for claim in claims:
        own = [signature for signature in found if signature.claim == claim]
        others = {s for case in done for s in case.contradicts.get(claim, ())}
        if cited := own or sorted(others, key=str):
            refuting[claim] = tuple(cited)
    return refuting


def _footprints(
    done: Sequence[Case], found: Mapping[Signature, Evidence]
) -> dict[Signature, Footprint]:
    """How far each signature reaches.

    What is counted is told apart by code only, and where signatures are not told apart in all
    cases they share one footprint.
    """
    if not found:
        return {}
    answers: dict[Signature | Code, Counter[Row]] = {}
    for case in done:
        if case.counted is None:
            for each in case.evidence:
                answers.setdefault(each.signature, Counter())[_answer(each)] += 1
        else:
            for (code, row), states in case.counted.items():
                answers.setdefault(code, Counter())[row] += states
    if any(case.coarse for case in done):
        every = Footprint.of(sum(answers.values(), Counter()))
        return dict.fromkeys(found, every)
    return {
        signature: Footprint.of(
            answers.get(signature, Counter()) + answers.get(signature.code, Counter())
        )
        for signature in found
    }


def _answer(evidence: Evidence) -> Row:
    told = evidence.as_json()
    del told["signature"]
    if evidence.signature.divergence == Divergence.CRASH:
        del told["actual"]  # an exception's text may hold what differs from run to run
    return str(evidence.signature.defect), json.dumps(told, sort_keys=True)

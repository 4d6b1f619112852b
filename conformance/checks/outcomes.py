"""What a check comes to: the cases it went through, and how each claim ended."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hitproof.conformance.findings.evidence import Evidence, smallest
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.claims import Status


@dataclass(frozen=True)
class CheckResult:
    """What one check did on one configuration.

    Attributes:
        statuses: for each claim judged, how it ended.
        evidence: the smallest evidence of each signature that was seen.
        paths: runs of the subject that were compared with the spec.
        states: cache states (lookup) or registrations (mask) that they cover.
        detail: why a claim is inconclusive; empty otherwise.
    """

    statuses: dict[str, Status]
    evidence: tuple[Evidence, ...]
    paths: int
    states: int
    detail: str = ""


@dataclass
class Case:
    """A part of a check: how many runs and states it covers, and what diverged."""

    paths: int
    states: int
    evidence: Sequence[Evidence]
    coarse: bool = False


def finished(claims: tuple[str, ...], cases: Callable[[], Iterator[Case]]) -> CheckResult:
    """Go through the cases; a claim that none of them breaks is proved, if all could be run."""
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
    broken = {signature.claim for signature in evidence}
    unbroken = Status.INCONCLUSIVE if detail or not done else Status.PROVED
    return CheckResult(
        statuses={c: Status.REFUTED if c in broken else unbroken for c in claims},
        evidence=tuple(evidence.values()),
        paths=sum(case.paths for case in done),
        states=sum(case.states for case in done),
        detail=detail or ("" if done else "the bound allows no case"),
    )

"""New findings by their cause: one change, one place in the target, or one fault of BUGS."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.places import Why
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.words import count
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.faults import Fault
from hitproof.vllm_integration.survey.survey import Release, Seen, read, seen_in, span


@dataclass(frozen=True)
class Cause:
    """Findings that have one cause.

    Attributes:
        findings: the worst first; known divergences that have grown come after new ones, since
            the case of such a one may show the known divergence, too.
        known_from: the faults of BUGS that the worst is a case of in other releases, or in this.
    """

    findings: tuple[Finding, ...]
    known_from: tuple[Fault, ...] = ()

    @property
    def worst(self) -> Finding:
        """The example that stands for all."""
        return self.findings[0]

    @property
    def others(self) -> str:
        """How many findings there are beside the worst, by class; empty for none."""
        rest = self.findings[1:]
        listed = classes_in_words(rest)
        return f"{count(rest, 'more finding')} of this cause ({listed})" if rest else ""

    @property
    def numbers(self) -> str:
        """The numbers of the faults; empty if none is known."""
        return ", ".join(f"BUGS {fault.number}" for fault in self.known_from)

    @property
    def fault(self) -> str:
        """The faults in a line; empty if none is known."""
        return named(self.known_from)


def classes_in_words(findings: Sequence[Finding]) -> str:
    """Findings by class, the most severe first."""
    counts = Counter(finding.signature.divergence for finding in findings)
    return ", ".join(
        f"{divergence}: {counts[divergence]}" for divergence in SEVERITY if counts[divergence]
    )


def causes(findings: Sequence[Finding], release: str | None) -> list[Cause]:
    """The findings, those of one cause together, in the order that they come in.

    What one change is responsible for has one cause. Else findings of one code whose answer the
    same function decides have one, exceptions where the same line raises them, and so have
    findings of one fault that BUGS documents in ``release``.
    """
    together: list[tuple[set[Hashable], list[int]]] = []
    for number, finding in enumerate(findings):
        keys, members = set(_keys(finding, release)), [number]
        for group in [each for each in together if not keys.isdisjoint(each[0])]:
            together.remove(group)
            keys |= group[0]
            members += group[1]
        together.append((keys, sorted(members)))
    found = sorted(members for _, members in together)
    return [
        Cause(group, known_from(of(group[0]), release))
        for group in (_worst_first([findings[n] for n in members]) for members in found)
    ]


def _worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.grown is not None))


def known_from(signature: Signature, release: str | None) -> tuple[Fault, ...]:
    """The faults of BUGS that a finding is a case of: in its release, or else in any other."""
    alike = [fault for fault in _documented() if signature in fault.signatures]
    here = [fault for fault in alike if release and fault.explains(signature, release)]
    return tuple(here or alike)


def named(known: Sequence[Fault]) -> str:
    """Faults of BUGS in a line; empty for none."""
    return " or ".join(f"BUGS {fault.number}, {seen(fault)}: {fault.title}" for fault in known)


def seen(fault: Fault) -> str:
    """The releases that a fault was seen in, by the survey."""
    releases, by_number = _survey()
    return f"seen in {span(by_number[fault.number], releases)}"


@cache
def _survey() -> tuple[Sequence[Release], Seen]:
    releases = read()
    return releases, seen_in(releases, _documented())


def _keys(finding: Finding, release: str | None) -> Iterator[Hashable]:
    """What findings of one cause have in common."""
    signature, where = of(finding), finding.location
    if where is not None and where.why in (Why.CHANGED, Why.CALLED, Why.ONLY):
        yield where.path, where.line
        return
    if release:
        yield from (f.number for f in _documented() if f.explains(signature, release))
    if where is None:
        yield signature.defect
    elif signature.code is Code.RAISES_EXCEPTION:
        yield signature.code, where.path, where.line
    else:
        yield signature.code, where.path, where.function


def of(finding: Finding) -> Signature:
    """What a finding is a case of; of a known divergence that has grown, the known one."""
    return finding.signature if finding.grown is None else finding.grown.of


@cache
def _documented() -> tuple[Fault, ...]:
    return faults.load()

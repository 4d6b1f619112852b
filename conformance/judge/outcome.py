"""What a replay found: the lookups, how steps deviated, and the findings with what they lead to."""

from dataclasses import dataclass, field

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence, Violation


@dataclass(frozen=True)
class LookupResult:
    """A lookup and its answer, in tokens.

    Attributes:
        step: the step, an index.
        request: the request.
        due: the hit that the spec requires.
        served: the hit that the manager served.
        divergence: how that is wrong, "" if it is not.
    """

    step: int
    request: str
    due: int
    served: int
    divergence: str = ""


@dataclass
class ReplayOutcome:
    """The outcome of a history.

    Attributes:
        steps: how each step that was played deviated; "" when it was done as asked.
        lookups: every lookup, in order.
        findings: one for each signature, in the order of their first occurrence; those with a
            cause are consequences of earlier ones.
        ended: why the history ended early; "" when it did not.
    """

    steps: list[str] = field(default_factory=list)
    lookups: list[LookupResult] = field(default_factory=list)
    findings: list[Occurrence] = field(default_factory=list)
    ended: str = ""

    @property
    def causes(self) -> list[Occurrence]:
        """The findings that are no consequences of others."""
        return [finding for finding in self.findings if finding.cause is None]

    def add(
        self, violation: Violation, step: int, call: str, cause: Signature | None = None
    ) -> None:
        """Record a violation, which may be a consequence of an earlier finding, its ``cause``.

        Consequences count in the footprint of their cause, so that they hide nothing.
        """
        for known in self.findings:
            if known.signature == cause:
                known.leads_to(violation, step, call)
        for number, known in enumerate(self.findings):
            if known.signature == violation.signature:
                if known.cause is not None and cause is None:  # now a step is wrong by itself
                    self.findings[number] = Occurrence(violation, step, call, known.times + 1)
                elif known.cause is None and cause is not None:
                    known.times += 1
                else:
                    known.again(violation, step, call)
                return
        self.findings.append(Occurrence(violation, step, call, cause=cause))

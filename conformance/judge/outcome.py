"""What a replay found: the lookups, how steps deviated, and the findings with what they lead to."""

from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence, Violation


class Crashed(Exception):
    """The manager raised, in a call for ``request``, "" for none."""

    def __init__(self, error: Exception, request: str) -> None:
        super().__init__(type(error).__name__)
        self.request = request


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


@dataclass(frozen=True)
class Comparison:
    """One thing that a history expects of a request, and what there is.

    Attributes:
        step: the step that expects it, an index.
        request: the request.
        what: the field of `Expect`.
        expected: its value.
        actual: what there is in its place, None for nothing.
    """

    step: int
    request: str
    what: str
    expected: Any
    actual: Any

    @property
    def is_met(self) -> bool:
        """Whether there is what was expected."""
        return bool(self.expected == self.actual)


@dataclass
class ReplayOutcome:
    """The outcome of a history.

    Attributes:
        steps: how each step that was played deviated; "" when it was done as asked.
        lookups: every lookup, in order.
        findings: one for each signature, in the order of their first occurrence; those with a
            cause are consequences of earlier ones.
        ended: why the history ended early; "" when it did not.
        comparisons: what the history itself expects, in order, with what there is.
    """

    steps: list[str] = field(default_factory=list)
    lookups: list[LookupResult] = field(default_factory=list)
    findings: list[Occurrence] = field(default_factory=list)
    ended: str = ""
    comparisons: list[Comparison] = field(default_factory=list)

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

"""Violations: what a judge sees at one call of a subject, and what became of it in a history."""

from dataclasses import dataclass
from typing import Any, Self

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.playing.expectations import Expected


@dataclass(frozen=True)
class Violation:
    """Where a subject violates the spec, at one call.

    Attributes:
        signature: what it is a case of.
        spec: what the spec says.
        actual: what the subject did.
        expected: what the spec demands, where that can be asked of the manager's public methods.
    """

    signature: Signature
    spec: str
    actual: str
    expected: Expected | None = None


@dataclass
class Occurrence:
    """A violation in a history: where it was first, and how often it was.

    Attributes:
        violation: the violation, at the first time.
        step: the step of the first time, an index.
        call: the manager's method, or "step" where a whole step is judged.
        times: how often a violation of the same signature was seen.
    """

    violation: Violation
    step: int
    call: str
    times: int = 1

    @property
    def signature(self) -> Signature:
        """What it is a case of."""
        return self.violation.signature

    def as_json(self) -> dict[str, Any]:
        """The occurrence as JSON, without what is expected; `from_json` reads it."""
        return {
            "signature": self.signature.as_json(),
            "spec": self.violation.spec,
            "actual": self.violation.actual,
            "step": self.step,
            "call": self.call,
            "times": self.times,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `as_json`."""
        signature = Signature.from_json(data["signature"])
        violation = Violation(signature, data["spec"], data["actual"])
        return cls(violation, data["step"], data["call"], data["times"])

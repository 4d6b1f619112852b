"""What lockstep finds: differences, findings, and the outcome of a history."""

from dataclasses import dataclass, field

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation

FIELDS = (
    "tables",
    "ref_counts",
    "cached",
    "free_queue",
    "num_free_blocks",
    "usage",
    "common_prefix",
    "stats",
)
"""What is compared after every call, in this order: causes before consequences."""


@dataclass(frozen=True)
class Difference:
    """Where two managers differ.

    Attributes:
        step: the step, an index; the history up to it is enough to see the difference.
        call: the manager's method.
        field: what differs: the answer, or a field of `Observation`.
        real: its value in the real manager.
        reference: its value in the reference.
    """

    step: int
    call: str
    field: str
    real: str
    reference: str


@dataclass(frozen=True)
class Departure:
    """The real manager violates the spec.

    Attributes:
        violation: how, judged by the spec.
        difference: where the reference differs; None when pool invariants fail in both.
        step: the step, an index.
        resynchronised: whether the lockstep continued after it.
    """

    violation: Violation
    difference: Difference | None
    step: int
    resynchronised: bool

    @property
    def signature(self) -> Signature:
        """What it is a case of."""
        return self.violation.signature


@dataclass
class Outcome:
    """The outcome of one history.

    Attributes:
        steps: steps that were played on both.
        calls: calls that were compared.
        findings: where the real manager violates the spec.
        fault: where the reference violates the spec, if it does.
    """

    steps: int = 0
    calls: int = 0
    findings: list[Departure] = field(default_factory=list)
    fault: Difference | None = None

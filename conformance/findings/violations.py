"""Violations: what a judge sees at one call of a subject, and what became of it in a history."""

from dataclasses import dataclass, field
from typing import Any, Self

from hitproof.conformance.findings.codes import Defect, worst_class
from hitproof.conformance.findings.footprints import Footprint, Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Evidence, Part
from hitproof.conformance.findings.signatures import Signature, in_lines
from hitproof.conformance.picking import picked
from hitproof.conformance.playing.expectations import Expected
from hitproof.spec.claims import Divergence


@dataclass(frozen=True)
class Violation:
    """Where a subject violates the spec, at one call.

    Attributes:
        signature: what it is a case of.
        spec: what the spec says.
        actual: what the subject did.
        expected: what the spec demands, where that can be asked of the manager's public methods.
        evidence: what it is seen in. It is inherited when an earlier violation explains all of
            it; with none, it never is.
        damages: the parts of the state that it leaves wrong.
    """

    signature: Signature
    spec: str
    actual: str
    expected: Expected | None = None
    evidence: Evidence = ()
    damages: tuple[Part, ...] = ()

    @classmethod
    def of(
        cls, kind: str, defect: Defect, spec: str, actual: str, expected: Expected | None = None
    ) -> Self:
        """What is wrong with a whole subject of a kind, such as a scheduler, of any groups."""
        signature = Signature.booked(defect, worst_class(defect.code), kind, False)
        return cls(signature, spec, actual, expected)

    @property
    def answer(self) -> tuple[str, ...]:
        """What the subject did, in words that are the same in every run."""
        # What an exception says differs between runs of one code.
        says = self.signature.divergence == Divergence.CRASH
        if says or self.signature.code is Code.LAYERS_REFUSED:
            return str(self.signature.defect), self.spec
        return str(self.signature.defect), self.spec, self.actual


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


@dataclass
class Occurrence:
    """A violation where it was seen: in a replay, in lockstep, or by the shadow.

    Attributes:
        violation: the violation, at the first time.
        step: the step of the first time, an index; the shadow knows none.
        call: the manager's method, or "step" where a whole step is judged.
        times: how often a violation of the same signature was seen.
        cause: the finding that it is only a consequence of; None where the step itself is wrong.
        rows: what the subject did each time, and what of it is its consequence.
        difference: in lockstep where the reference differs; None when pool invariants fail in both.
        resynchronised: whether the lockstep continued after it.
        given: what the shadow knows of the configuration, one fact a line.
        known: the ledger's reason, as the shadow reports it; "" when the ledger does not have it.
    """

    violation: Violation
    step: int = 0
    call: str = ""
    times: int = 1
    cause: Signature | None = None
    rows: list[Row] = field(default_factory=list, repr=False)
    difference: Difference | None = None
    resynchronised: bool = False
    given: tuple[str, ...] = ()
    known: str = ""

    def __post_init__(self) -> None:
        self.rows.append((self.step, self.call, *self.violation.answer))

    def again(self, violation: Violation, step: int, call: str) -> None:
        """Count another occurrence."""
        self.times += 1
        self.rows.append((step, call, *violation.answer))

    def leads_to(self, violation: Violation, step: int, call: str) -> None:
        """A violation is its consequence."""
        self.rows.append((step, call, "consequence", *violation.answer))

    @property
    def footprint(self) -> Footprint:
        """How far it reaches in the history."""
        return Footprint.of(self.rows)

    @property
    def signature(self) -> Signature:
        """What it is a case of."""
        return self.violation.signature

    def text(self) -> str:
        """The violation as people read it, where no history has it."""
        said, facts = self.violation, (*self.given, self.call)
        return "\n  ".join(in_lines(self.signature, facts, said.spec, said.actual))

    def as_json(self) -> dict[str, Any]:
        """The occurrence as JSON, without what is expected and its rows; `from_json` reads it."""
        said = picked(self.violation, "signature", "spec", "actual")
        said |= picked(self, "step", "call", "times", "cause")
        return said | (picked(self, "given", "known") if self.given else {})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `as_json`."""
        signature = Signature.from_json(data["signature"])
        violation = Violation(signature, data["spec"], data["actual"])
        cause = None if data["cause"] is None else Signature.from_json(data["cause"])
        return cls(violation, data["step"], data["call"], data["times"], cause)

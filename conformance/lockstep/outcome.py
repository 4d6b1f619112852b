"""What lockstep compares, and the outcome of a history."""

from dataclasses import dataclass, field

from hitproof.conformance.findings.violations import Difference, Occurrence

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
    findings: list[Occurrence] = field(default_factory=list)
    fault: Difference | None = None

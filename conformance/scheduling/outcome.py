"""What playing a scheduler history found."""

from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.findings.violations import Occurrence


@dataclass
class Life:
    """What became of one request.

    Attributes:
        hit: how many tokens it found in the cache when it was first admitted; None before that.
        chunks: where each step of it started, and how many tokens it computed, drafts included.
        delivered: the tokens that its user got.
        preemptions: how often it had to start again.
        ended: how it ended: ``finished``, ``aborted``, ``failed`` with a load; "" before that.
    """

    hit: int | None = None
    chunks: list[tuple[int, int]] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    preemptions: int = 0
    ended: str = ""

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return vars(self)


@dataclass
class SchedulerOutcome:
    """The outcome of a scheduler history.

    Attributes:
        lives: what became of each request, by name.
        findings: one for each signature, in the order of their first occurrence; those with a
            cause are consequences of earlier ones.
        plans: what each step computes: of each request where it starts, and how many tokens.
        refused: why the target's start-up refuses the deployment; "" when it does not.
        ended: why the history ended early; "" when it did not.
        unloaded: requests without progress, since they wait for a load that is never made.
    """

    lives: dict[str, Life] = field(default_factory=dict)
    findings: list[Occurrence] = field(default_factory=list)
    plans: list[list[tuple[str, int, int]]] = field(default_factory=list)
    refused: str = ""
    ended: str = ""
    unloaded: frozenset[str] = frozenset()

    @property
    def steps(self) -> int:
        """How many steps were scheduled."""
        return len(self.plans)

    @property
    def causes(self) -> list[Occurrence]:
        """The findings that are no consequences of others."""
        return [finding for finding in self.findings if finding.cause is None]

    def as_json(self) -> dict[str, Any]:
        """As JSON, without the plans."""
        return {
            "lives": {name: life.as_json() for name, life in self.lives.items()},
            "findings": [found.as_json() for found in self.findings],
            "steps": self.steps,
            "refused": self.refused,
            "ended": self.ended,
        }

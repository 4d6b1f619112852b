"""Signatures: the identity of a divergence."""

from dataclasses import asdict, dataclass
from typing import Any

from hitproof.spec.claims import Divergence

SEVERITY = tuple(Divergence)


@dataclass(frozen=True)
class Signature:
    """The structure of a divergence: findings with equal signatures have one cause.

    Attributes:
        claim: the claim that is broken.
        divergence: unsound, crash, lost hit, waste.
        kind: the group's kind, the kinds of several, joined by " + ", or what is judged if that is
            no group.
        eagle: whether the group, or one of several, drops a lookahead block; for what is retained
            of Mamba, whether the full attention beside it does.
        pattern: how it is broken, in words that do not depend on sizes.
    """

    claim: str
    divergence: str
    kind: str
    eagle: bool
    pattern: str

    def as_json(self) -> dict[str, Any]:
        """The signature as JSON."""
        return asdict(self)

    @property
    def headline(self) -> str:
        """What is broken where, in a line."""
        return f"{self.kind.replace('_', ' ')}: {self.pattern}"

    @property
    def severity(self) -> tuple[int, str, str]:
        """Sorts the most severe first."""
        return SEVERITY.index(Divergence(self.divergence)), self.claim, self.pattern

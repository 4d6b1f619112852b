"""What numbers show: the errors of passes, and what they say of findings. Without torch."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from hitproof.conformance.findings.violations import Occurrence
from hitproof.spec.claims import Divergence

EXACT = 1e-9
"""Logits that differ by no more are the same: chunks round differently."""
WRONG = 1e-3
"""Logits that differ by more are wrong."""


class Errors(NamedTuple):
    """The largest difference of a logit, infinite where something was read that is not there."""

    target: float
    drafts: float

    @property
    def largest(self) -> float:
        """The larger of both."""
        return max(self)


class Showing(StrEnum):
    """What numbers show of a finding that says that content is wrong."""

    OUTPUT = "wrong output, shown numerically"
    DRAFTS = "wrong drafts, shown numerically"
    NOT = "not shown numerically in this history"


EQUAL = Errors(0.0, 0.0)


@dataclass(frozen=True)
class WrongPass:
    """A pass whose logits are not those of computing without a cache.

    Attributes:
        step: the step, an index.
        request: the request.
        token: the first token of the pass.
        errors: the largest differences of its logits.
    """

    step: int
    request: str
    token: int
    errors: Errors

    @property
    def in_words(self) -> str:
        """What is wrong where; reading what is not there gives NaN."""
        whose, error = "the target", self.errors.target
        if error <= EXACT:
            whose, error = "the draft head", self.errors.drafts
        off = f"off by {error:.1g}" if math.isfinite(error) else "not a number"
        return (
            f"steps[{self.step}], request {self.request} from token {self.token} on: a logit of "
            f"{whose} is {off}"
        )

    def as_json(self) -> dict[str, Any]:
        """The pass as JSON; null stands for a logit that is no number."""
        found = {name: _finite(error) for name, error in self.errors._asdict().items()}
        return {"step": self.step, "request": self.request, "token": self.token, **found}


@dataclass
class NumericOutcome:
    """What computing a history gave.

    Attributes:
        passes: how many passes were compared.
        wrong: those that are not as without a cache.
        largest: the largest differences of the others.
    """

    passes: int = 0
    wrong: list[WrongPass] = field(default_factory=list)
    largest: Errors = EQUAL

    def add(self, step: int, request: str, token: int, errors: Errors) -> None:
        """A pass was compared."""
        self.passes += 1
        if errors.largest > EXACT:
            self.wrong.append(WrongPass(step, request, token, errors))
        else:
            self.largest = Errors(*map(max, self.largest, errors))

    def of(self, finding: Occurrence) -> tuple[Showing, WrongPass | None] | None:
        """What is shown of a finding, and by which pass at or after its first time.

        None where it does not say that content is wrong.
        """
        divergence = finding.signature.divergence
        if divergence not in (Divergence.UNSOUND, Divergence.WRONG_DRAFTS):
            return None
        later = [each for each in self.wrong if each.step >= finding.step]
        for each in later if divergence == Divergence.UNSOUND else ():
            if each.errors.target > WRONG:
                return Showing.OUTPUT, each
        for each in later:
            if each.errors.drafts > WRONG:
                return Showing.DRAFTS, each
        return Showing.NOT, None

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON; `from_json` reads it."""
        return {
            "passes": self.passes,
            "wrong": [each.as_json() for each in self.wrong],
            "largest": self.largest._asdict(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `as_json`."""
        wrong = [
            WrongPass(
                each["step"],
                each["request"],
                each["token"],
                Errors(_number(each["target"]), _number(each["drafts"])),
            )
            for each in data["wrong"]
        ]
        return cls(data["passes"], wrong, Errors(**data["largest"]))


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _number(error: float | None) -> float:
    return math.inf if error is None else error

"""What goes with a finding so that others can see it for themselves."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class CaseOutcome(StrEnum):
    """How a finding's test ended on the target."""

    NOT_RUN = "not run"
    FAILS = "fails as it should"
    PASSES = "passes, though it should fail"
    BREAKS = "breaks before it can tell"


@dataclass(frozen=True)
class Demonstration:
    """A finding on a whole manager or scheduler, as a history and as a test.

    Attributes:
        name: what the test is called, after ``test_``.
        reproduced: whether a whole manager shows it, asked by its public methods only; None where
            that could not be found out.
        detail: why it does not, or could not be found out.
        vector: the history that shows it, as JSON (`conformance.histories.json_format`, or
            `conformance.histories.workload_json` for a scheduler's).
        pytest: a test that fails where the finding is, as the text of a module.
        error: the name of the exception that the test fails with.
        outcome: how the test ended, if it was run.
        said: what it ended with.
    """

    name: str = ""
    reproduced: bool | None = None
    detail: str = ""
    vector: dict[str, Any] | None = None
    pytest: str = ""
    error: str = ""
    outcome: CaseOutcome = CaseOutcome.NOT_RUN
    said: str = ""

    @property
    def whole(self) -> str:
        """What shows it: a whole manager or scheduler."""
        return str((self.vector or {}).get("kind", "manager"))

    def as_json(self) -> dict[str, Any]:
        """As `hitproof check --format json` prints it."""
        return asdict(self)

"""Where a finding is in the subject's source: the line that decides, and what was run before it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter


class Why(StrEnum):
    """What makes a line the one to look at."""

    RAISES = "raises here"
    CHANGED = "changed here"
    CALLED = "changed, and called by the function that is judged"
    ONLY = "the only change"
    BRANCH = "the last branch before the answer"
    FUNCTION = "the function that is judged"


@dataclass(frozen=True)
class Location:
    """A line of the subject's source.

    Attributes:
        path: the file, relative to the subject's root unless it lies elsewhere.
        line: the line, from 1.
        function: the function that it is in, as Python qualifies it; empty if it is in none.
        why: what makes it the one to look at.
    """

    path: str
    line: int
    function: str
    why: Why

    def __str__(self) -> str:
        inside = f" in {self.function}" if self.function else ""
        return f"{self.path}:{self.line}{inside}, {self.why}"

    def as_json(self) -> dict[str, Any]:
        """The location as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Passed:
    """What of the subject's source the smallest case of a finding runs.

    Attributes:
        location: the line that decides; None where nothing of the source was run.
        lines: file and line of all that was run, what decides on the answer last.
        decisive: how many of them, at the end, the judged function ran, or what it called.
    """

    location: Location | None = None
    lines: tuple[tuple[str, int], ...] = ()
    decisive: int = 0

    def as_json(self) -> dict[str, Any]:
        """As the worker answers it; `from_json` reads it."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Passed":
        """Inverse of `as_json`."""
        return TypeAdapter(Passed).validate_python(data)


NOT_RUN = Passed()
"""Nothing of the source is known to be run."""

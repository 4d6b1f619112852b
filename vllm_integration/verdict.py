"""The verdict of a command."""

from enum import IntEnum


class Verdict(IntEnum):
    """The verdict; its value is the exit code."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    INCONCLUSIVE = 3
    INTERNAL = 4

    @property
    def label(self) -> str:
        """The verdict as one lower-case word."""
        return self.name.lower()

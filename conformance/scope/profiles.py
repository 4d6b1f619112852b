"""How much the gate covers."""

from enum import StrEnum


class Profile(StrEnum):
    """How much the gate covers."""

    QUICK = "quick"
    DEFAULT = "default"
    THOROUGH = "thorough"


LONGEST_TAIL = {Profile.QUICK: 8, Profile.DEFAULT: 64, Profile.THOROUGH: 64}
"""Longer windows of real models are cut to this many blocks where a single group is looked up."""

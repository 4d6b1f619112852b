"""Policies: what releases may differ in, as named parameters of the spec with their values.

Only ``policies.toml`` lists release ranges of policies. `hitproof policies` prints it, and a test
compares it with how real releases behave.
"""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS


class EagleGroups(StrEnum):
    """Which groups match and drop a lookahead block when EAGLE or MTP is on."""

    ALL = "all"
    """Every group but Mamba, wherever the draft layers are."""
    FLAGGED = "flagged"
    """Those that hold draft layers, or all when none is flagged (`share_eagle`)."""


class SparseRetention(StrEnum):
    """Which kinds a retention interval thins out; the others stay dense."""

    NONE = "none"
    """There is no retention interval."""
    WINDOWS = "windows"
    """Sliding windows."""
    WINDOWS_AND_STATES = "windows and states"
    """Sliding windows and Mamba (`spec.retention.SPARSE_KINDS`)."""


def thins_out(policy: SparseRetention, kind: GroupKind) -> bool:
    """Whether a retention interval thins out groups of the kind; the others stay dense."""
    match policy:
        case SparseRetention.NONE:
            return False
        case SparseRetention.WINDOWS:
            return kind is GroupKind.SLIDING_WINDOW
        case _:
            return kind in SPARSE_KINDS


class Junctions(StrEnum):
    """Whether a prefix seen to be shared is kept under sparse retention."""

    DROPPED = "dropped"
    """Only boundaries of prompts and of the interval are kept."""
    KEPT = "kept"
    """The shared-prefix boundary is kept (`spec.retention.junction_boundary`)."""


class DefaultRetention(StrEnum):
    """What is retained when the user sets nothing."""

    DENSE = "dense"
    """Every reachable block."""
    LATEST = "latest"
    """The latest replayable boundary only (interval 0)."""


@dataclass(frozen=True)
class Era:
    """A range of releases and their value of a policy.

    Attributes:
        value: the value.
        releases: a version specifier (PEP 440).
    """

    value: StrEnum
    releases: str


@dataclass(frozen=True)
class Policy:
    """One policy that releases differ in.

    Attributes:
        name: a stable name.
        sentence: what it decides.
        symbols: the vLLM symbols that implement it.
        eras: the values, oldest releases first. The ranges do not overlap, and code newer than
            every release has the last value.
        best: the value with which no hit is lost that another value allows; None where the values
            promise different things.
    """

    name: str
    sentence: str
    symbols: tuple[str, ...]
    eras: tuple[Era, ...]
    best: StrEnum | None = None


_VALUES: dict[str, type[StrEnum]] = {
    "lookahead_horizon": LookaheadHorizon,
    "eagle_groups": EagleGroups,
    "hit_granularity": HitGranularity,
    "fine_tail": FineTail,
    "sparse_retention": SparseRetention,
    "junctions": Junctions,
    "default_retention": DefaultRetention,
}
_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

POLICIES: dict[str, Policy] = {
    name: Policy(
        name,
        _ROWS[name]["sentence"],
        tuple(_ROWS[name]["symbols"]),
        tuple(Era(values(era["value"]), era["releases"]) for era in _ROWS[name]["eras"]),
        values(_ROWS[name]["best"]) if "best" in _ROWS[name] else None,
    )
    for name, values in _VALUES.items()
}
"""Every policy, by name."""

"""Policies: what releases may differ in, as named parameters of the spec with their values.

This is the only place that lists release ranges of policies. `hitproof policies` prints it, and a
test compares it with how real releases behave.
"""

from dataclasses import dataclass
from enum import StrEnum

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


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            name="lookahead_horizon",
            sentence="How far past the hit a lookup with several groups may peek for the "
            "lookahead block.",
            symbols=("HybridKVCacheCoordinator.find_longest_cache_hit",),
            eras=(
                Era(LookaheadHorizon.CANDIDATE, "<0.20"),
                Era(LookaheadHorizon.CAPPED, ">=0.20,<0.32"),
                Era(LookaheadHorizon.HASHED, ">=0.32"),
            ),
            best=LookaheadHorizon.HASHED,
        ),
        Policy(
            name="eagle_groups",
            sentence="Which groups match and drop a lookahead block.",
            symbols=("KVCacheGroupSpec.is_eagle_group", "KVCacheCoordinator.eagle_group_ids"),
            eras=(Era(EagleGroups.ALL, "<0.20"), Era(EagleGroups.FLAGGED, ">=0.20")),
            best=EagleGroups.FLAGGED,
        ),
        Policy(
            name="hit_granularity",
            sentence="Where hits may end.",
            symbols=("partial_hash_hits_enabled", "HybridKVCacheCoordinator"),
            eras=(Era(HitGranularity.ALIGNED, "<0.26"), Era(HitGranularity.FINE, ">=0.26")),
            best=HitGranularity.FINE,
        ),
        Policy(
            name="fine_tail",
            sentence="For whose hit the end of a prompt is kept when it lies inside a block.",
            symbols=(
                "FullAttentionManager._cache_partial_tail_block",
                "MambaManager._cache_partial_tail_block",
            ),
            eras=(
                Era(FineTail.NONE, "<0.26"),
                Era(FineTail.EXTENSION, ">=0.26,<0.32"),
                Era(FineTail.RESEND, ">=0.32"),
            ),
        ),
        Policy(
            name="sparse_retention",
            sentence="Which kinds of groups a retention interval thins out.",
            symbols=(
                "SlidingWindowManager.reachable_block_mask",
                "MambaManager.reachable_block_mask",
            ),
            eras=(
                Era(SparseRetention.NONE, "<0.23"),
                Era(SparseRetention.WINDOWS, ">=0.23,<0.24"),
                Era(SparseRetention.WINDOWS_AND_STATES, ">=0.24"),
            ),
        ),
        Policy(
            name="junctions",
            sentence="Whether a prefix seen to be shared is kept under sparse retention.",
            symbols=("Request.shared_prefix_boundary", "KVCacheManager.get_computed_blocks"),
            eras=(Era(Junctions.DROPPED, "<0.26"), Era(Junctions.KEPT, ">=0.26")),
            best=Junctions.KEPT,
        ),
        Policy(
            name="default_retention",
            sentence="What is retained when the user sets nothing.",
            symbols=(
                "CacheConfig.prefix_cache_retention_interval",
                "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
            ),
            eras=(Era(DefaultRetention.DENSE, "<0.29"), Era(DefaultRetention.LATEST, ">=0.29")),
            best=DefaultRetention.DENSE,
        ),
    )
}
"""Every policy, by name."""

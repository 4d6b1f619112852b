"""What differs between releases of vLLM, as named policies.

Most of these differences are neither right nor wrong. A policy that violates the spec says so; it
exists so that a manager can be compared with a release that has it. The default never violates it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS


class FreeOrder(StrEnum):
    """Where freed blocks join the free queue, whose front is reused first.

    Blocks come tail first. *Scratch* is a block without a hash, which no lookup can find.
    """

    APPENDED = "appended"
    """All blocks at the end; up to 0.22."""
    WINDOW_SCRATCH_FIRST = "window scratch first"
    """Scratch in front when it leaves an attention window or belongs to a sliding-window group;
    all other blocks at the end; 0.23 (vLLM PR #43447)."""
    SCRATCH_FIRST = "scratch first"
    """Scratch in front, always; 0.24 and later."""


class ReplayPolicy(StrEnum):
    """Which boundaries sparse retention keeps for replays of a prompt."""

    LAST_TOKEN_RECOMPUTED = "last token recomputed"
    """The last boundary before the prompt's last token; 0.23 to 0.29. It ignores extensions of
    the prompt and the lookahead block of a resend: promised hits are lost."""
    ALIGNMENT_DROPPED = "alignment dropped"
    """With EAGLE, the boundaries of a resend and of an extension, each one alignment earlier, as
    if the lookahead block were that long; without it, as before. Promised hits are lost. From
    0.30 on."""
    PROMISED = "promised"
    """The boundaries that `spec.retention` promises to resends and extensions."""


@dataclass(frozen=True)
class Policies:
    """The policies of one release; the default is what the spec asks for, newest first.

    Attributes:
        horizon: how far past the cap a lookup may peek for the lookahead block.
        free_order: where freed blocks join the free queue.
        thinned_kinds: the kinds whose unreachable blocks the producer leaves out under dense
            retention. vLLM thins out sliding windows alone, from 0.22 on.
        waits_for_boundaries: whether blocks after the last boundary are registered only once theirs
            is computed; from 0.22 on.
        sparse_kinds: the kinds that a retention interval thins out: sliding windows in 0.23,
            Mamba too from 0.24 on.
        replays: which boundaries sparse retention keeps for replays of a prompt.
        keeps_states_of_drafts: whether a Mamba group keeps the states that it needs when all
            drafts of the last step are rejected, and nothing else waits for the results of steps in
            flight; up to 0.25. Later the scheduler says how many tokens are in flight.
        junctions: whether sparse retention keeps the shared-prefix boundary; 0.26 and later.
        registers_before_freeing: whether blocks that accepted drafts filled, whose hash is known
            only one token later, are registered before the next step frees them. vLLM frees them
            first; its hashes look ahead from 0.33 on.
        leaves_states_behind: whether states that steps in flight had to keep are held until the
            request ends, where null blocks follow them; up to 0.29.
        admits_too_much: whether a request that is to fit as a whole may run out of blocks; in all
            releases. They count one state of a Mamba group, where a step also holds the state that
            it starts from, and take the blocks of a hit from the most that a window holds.
    """

    horizon: LookaheadHorizon = LookaheadHorizon.HASHED
    free_order: FreeOrder = FreeOrder.SCRATCH_FIRST
    thinned_kinds: frozenset[GroupKind] = frozenset(GroupKind)
    waits_for_boundaries: bool = True
    sparse_kinds: frozenset[GroupKind] = frozenset(SPARSE_KINDS)
    replays: ReplayPolicy = ReplayPolicy.PROMISED
    keeps_states_of_drafts: bool = False
    junctions: bool = True
    registers_before_freeing: bool = True
    leaves_states_behind: bool = False
    admits_too_much: bool = False


SPEC = Policies()
"""What the spec asks for: the reference's own behaviour."""

_WINDOWS = frozenset({GroupKind.SLIDING_WINDOW})

VLLM_0_23 = Policies(
    horizon=LookaheadHorizon.CAPPED,
    free_order=FreeOrder.WINDOW_SCRATCH_FIRST,
    thinned_kinds=_WINDOWS,
    sparse_kinds=_WINDOWS,
    replays=ReplayPolicy.LAST_TOKEN_RECOMPUTED,
    keeps_states_of_drafts=True,
    junctions=False,
    leaves_states_behind=True,
    admits_too_much=True,
)
"""vLLM 0.23."""

VLLM_0_22 = replace(VLLM_0_23, free_order=FreeOrder.APPENDED, sparse_kinds=frozenset())
"""vLLM 0.22."""

VLLM_0_20 = replace(VLLM_0_22, thinned_kinds=frozenset(), waits_for_boundaries=False)
"""vLLM 0.20 and 0.21."""

VLLM_0_24 = replace(
    VLLM_0_23, free_order=FreeOrder.SCRATCH_FIRST, sparse_kinds=frozenset(SPARSE_KINDS)
)
"""vLLM 0.24 and 0.25."""

VLLM_0_26 = replace(VLLM_0_24, keeps_states_of_drafts=False, junctions=True)
"""vLLM 0.26 to 0.29."""

VLLM_0_30 = replace(VLLM_0_26, replays=ReplayPolicy.ALIGNMENT_DROPPED, leaves_states_behind=False)
"""vLLM 0.30 and 0.31."""

VLLM_0_32 = replace(VLLM_0_30, horizon=LookaheadHorizon.HASHED)
"""vLLM 0.32."""

VLLM_0_33 = replace(VLLM_0_32, registers_before_freeing=False)
"""vLLM 0.33 and later."""

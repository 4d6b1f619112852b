"""Mamba states that a step exports from inside its chunk, if the backend supports it.

A chunk that reaches the end of a prompt then need not end at the position of the state to keep.
The scheduler, the manager and the backend decide by the same rule which chunk exports a state, as
of which token, and into which block of the table. vLLM: ``is_mamba_prefill_checkpoint_valid``,
``compute_mamba_prefill_checkpoints``.
"""

from typing import NamedTuple

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, tail_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import ceil_div


class Checkpoint(NamedTuple):
    """A state that a chunk exports.

    Attributes:
        tokens: the number of tokens that the state is as of.
        block: its position in the block table.
    """

    tokens: int
    block: int


def exports_states(engine: EngineConfiguration, group: Group) -> str | None:
    """Where steps export states of the group from; None where they export none."""
    exports = group.kind is GroupKind.MAMBA and engine.mamba_checkpoint_alignment
    return "inside-chunks" if exports else None


def exported(
    engine: EngineConfiguration,
    policy: LookaheadHorizon,
    start: int,
    end: int,
    of: int | None = None,
) -> Checkpoint | None:
    """The state that the chunk from ``start`` to ``end`` exports, or None.

    It is the one from which a resend of ``of`` tokens, ``end`` by default, resumes.
    """
    align, size = engine.mamba_checkpoint_alignment, engine.mamba_block_size
    if align is None or size is None:
        return None
    unit = engine.hash_block_size
    tokens = tail_boundary(
        FineTail.RESEND,
        policy,
        end if of is None else of,
        unit if engine.use_eagle_block_drop else 0,
        unit,
        engine.num_hash_lookahead_tokens,
    )
    block = ceil_div(end, size) - 2
    valid = (
        start % unit == 0
        and block > (start - 1) // size
        and start + unit <= tokens < end
        and (tokens - start) % align == 0
    )
    return Checkpoint(tokens, block) if valid else None

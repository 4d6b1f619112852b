"""Which blocks the producer should register: those that some aligned hit can reach."""

from spec.groups import BlockGeometry
from spec.hits import in_required_run
from spec.terms import INTEGERS, Arithmetic, Formula, Term


def next_boundary(group: BlockGeometry, block: Term, arithmetic: Arithmetic = INTEGERS) -> Term:
    """The first boundary, in blocks, whose required run ends after ``block``.

    Runs end at P + e, 2P + e, ... for segment P and lookahead e, so it is the boundary that
    follows the greatest multiple of P at or below ``block - e``. Boundary 0 is no hit.
    """
    passed = arithmetic.multiple_at_most(block - group.lookahead, group.segment)
    return arithmetic.maximum(passed + group.segment, group.segment)


def in_mask(group: BlockGeometry, block: Term, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether the producer registers ``block`` under dense retention.

    A block is *reachable* when it is in the required run of some boundary P, 2P, ... Later
    boundaries never start their runs earlier, so the first one whose run ends after the block
    decides. For chunked local attention with chunks of whole blocks this leaves out the last
    block of each chunk: the next boundary starts a new chunk, which does not read it.
    vLLM: ``reachable_block_mask`` (``_cache_block_mask`` in 0.22) as ``cache_blocks`` uses it.
    """
    return in_required_run(group, block, next_boundary(group, block, arithmetic), arithmetic)

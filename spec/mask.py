"""Which blocks the producer should register: those that some aligned hit can reach."""

from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import in_required_run
from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


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


def in_stored_mask(
    group: BlockGeometry, block: Term, end: Term, arithmetic: Arithmetic = INTEGERS
) -> Formula:
    """Whether a KV connector stores ``block`` of a request that it has ``end`` blocks of.

    Besides the boundaries a hit in its store may end where the stored request does, on whatever
    block that is; a group that drops a block finds none to drop there. vLLM:
    ``reachable_block_mask`` with a ``final_segment_end_block``.
    """
    resumed = (group.lookahead < 1) & in_required_run(group, block, end, arithmetic)
    return in_mask(group, block, arithmetic) | resumed


def is_due(
    group: BlockGeometry, block: Term, num_final: Term, arithmetic: Arithmetic = INTEGERS
) -> Formula:
    """Whether ``block`` has to be registered when ``num_final`` blocks are final.

    Once the whole required run of a boundary is there, its hit can be served. What a draft model
    still computes anew is not final. vLLM: ``get_num_cacheable_tokens``.
    """
    run_end = next_boundary(group, block, arithmetic) + group.lookahead
    return (run_end <= num_final) & in_mask(group, block, arithmetic)

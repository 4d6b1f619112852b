"""Which blocks the producer must register: those that an aligned hit can need."""

from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import in_required_run
from hitproof.spec.terms import Blocks, Formula, max


def next_boundary(group: BlockGeometry, block: Blocks) -> Blocks:
    """The first boundary, in blocks, whose required run ends after ``block``.

    Runs end at P + e, 2P + e, ... for segment P and lookahead e, so it is the boundary that
    follows the greatest multiple of P at or below ``block - e``. Boundary 0 means no hit.
    """
    passed = (block - group.lookahead) // group.segment * group.segment
    return max(passed + group.segment, group.segment)


def in_mask(group: BlockGeometry, block: Blocks) -> Formula:
    """Whether the producer registers ``block`` under dense retention.

    A block is *reachable* when it is in the required run of some boundary P, 2P, ... Runs of
    later boundaries never start earlier, so the first boundary whose run ends after the block
    decides. With chunked local attention and chunks of whole blocks, the last block of each
    chunk is not reachable: the next boundary starts a new chunk, which does not read it.
    """
    return in_required_run(group, block, next_boundary(group, block))


def in_stored_mask(group: BlockGeometry, block: Blocks, end: Blocks) -> Formula:
    """Whether a KV connector stores ``block`` of a request whose stored part is ``end`` blocks.

    A hit in its store may end at a boundary, or where the stored request ends, on a boundary or
    not. A group that drops a block finds none to drop there.
    """
    resumed = in_required_run(group, block, end) & (group.lookahead < 1)
    return in_mask(group, block) | resumed


def is_due(group: BlockGeometry, block: Blocks, num_final: Blocks) -> Formula:
    """Whether ``block`` has to be registered when ``num_final`` blocks are final.

    Once the whole required run of a boundary is final, its hit can be served. Blocks that a draft
    model will still overwrite are not final.
    """
    run_end = next_boundary(group, block) + group.lookahead
    return (run_end <= num_final) & in_mask(group, block)

"""What can be wrong with a block of the pool: the claim it breaks, and what it means for users."""

from collections.abc import Iterator
from dataclasses import dataclass

from hitproof.spec import pool as clauses
from hitproof.spec.claims import Divergence
from hitproof.spec.pool import BlockState

IN_USE = "block_in_use_is_never_evicted"
COUNT = "free_count_is_free_queue_length"
NULL = "null_block_is_never_served"
NAMES = "cached_key_names_its_content"


@dataclass(frozen=True)
class Complaint:
    """What is wrong after an operation.

    Attributes:
        claim: the claim that is broken.
        divergence: what it means.
        pattern: how it is broken, in words that name no block.
        spec: what should be.
        actual: what is.
    """

    claim: str
    divergence: Divergence
    pattern: str
    spec: str
    actual: str


def wrong_with(state: BlockState) -> Iterator[tuple[str, Divergence, str, str]]:
    """Claim, class and pattern of what should hold of a block and does not, and what should."""
    if not clauses.is_kept_apart(state):
        where = "in the free queue" if state.queued else "cached"
        spec = "the null block is neither in the free queue nor cached"
        yield NULL, Divergence.UNSOUND, f"the null block is {where}", spec
    if state.null:
        return
    if not clauses.counts_holders(state):
        low = state.ref_count < state.holders
        wrong = Divergence.UNSOUND if low else Divergence.WASTE
        what = f"the reference count is too {'low' if low else 'high'}"
        yield IN_USE, wrong, what, f"{state.holders} block tables hold the block"
    if not clauses.is_queued_when_unused(state):
        if state.queued > 1:
            spec = "a block is in the free queue once at most"
            yield COUNT, Divergence.UNSOUND, "a block is in the free queue twice", spec
        elif state.queued:
            spec = "a block in use is not in the free queue"
            yield IN_USE, Divergence.UNSOUND, "a block in use is in the free queue", spec
        else:
            spec = "an unused block is in the free queue"
            yield COUNT, Divergence.WASTE, "an unused block is not in the free queue", spec
    if not clauses.is_named_for_its_content(state):
        if state.stale:
            spec = "a key describes what the block holds"
            what = "a key names a block that holds other content"
        else:
            spec = "the cache names a block by the keys that it carries"
            what = "the cache and a block disagree on its keys"
        yield NAMES, Divergence.UNSOUND, what, spec

"""What can be wrong with a block of the pool: the claim it breaks, and what it means for users."""

from collections.abc import Iterable, Iterator, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.spec import pool as clauses
from hitproof.spec.claims import Divergence
from hitproof.spec.pool import BlockState

IN_USE = "block_in_use_is_never_evicted"
COUNT = "free_count_is_free_queue_length"
NULL = "null_block_is_never_served"
NAMES = "cached_key_names_its_content"
ORDER = "least_recently_used_block_goes_first"


ALSO: Mapping[Code, str] = {
    Code.BLOCK_IN_USE_QUEUED: COUNT,
    Code.NULL_BLOCK_QUEUED: COUNT,
    Code.NULL_BLOCK_CACHED: NAMES,
    Code.NULL_BLOCK_FOUND: NAMES,
}
"""What contradicts the sentence of a second claim, too, wherever it is seen.

The free queue holds no block in use and not the null block, and no key describes the null block.
"""


def contradicts(found: Iterable[Violation]) -> dict[str, set[Signature]]:
    """The claims that violations contradict without being booked under them."""
    second: dict[str, set[Signature]] = {}
    for each in found:
        if claim := ALSO.get(each.signature.code):
            second.setdefault(claim, set()).add(each.signature)
    return second


def violation(
    claim: str, divergence: Divergence, defect: Defect, spec: str, actual: str
) -> Violation:
    """What is wrong with the pool after an operation."""
    return Violation(Signature(claim, divergence, "block_pool", False, defect), spec, actual)


def wrong_with(state: BlockState) -> Iterator[tuple[str, Divergence, Code, str]]:
    """Claim, class and code of what should hold of a block and does not, and what should."""
    if not clauses.is_kept_apart(state):
        code = Code.NULL_BLOCK_QUEUED if state.queued else Code.NULL_BLOCK_CACHED
        spec = "the null block is neither in the free queue nor cached"
        yield NULL, Divergence.UNSOUND, code, spec
    if state.null:
        return
    if not clauses.counts_holders(state):
        low = state.ref_count < state.holders
        wrong = Divergence.UNSOUND if low else Divergence.WASTE
        code = Code.REFERENCE_COUNT_TOO_LOW if low else Code.REFERENCE_COUNT_TOO_HIGH
        yield IN_USE, wrong, code, f"{state.holders} block tables hold the block"
    if not clauses.is_queued_when_unused(state):
        if state.queued > 1:
            spec = "a block is in the free queue once at most"
            yield COUNT, Divergence.UNSOUND, Code.BLOCK_QUEUED_TWICE, spec
        elif state.queued:
            spec = "a block in use is not in the free queue"
            yield IN_USE, Divergence.UNSOUND, Code.BLOCK_IN_USE_QUEUED, spec
        else:
            spec = "an unused block is in the free queue"
            yield COUNT, Divergence.WASTE, Code.UNUSED_BLOCK_NOT_QUEUED, spec
    if not clauses.is_named_for_its_content(state):
        if state.stale:
            spec = "a key describes what the block holds"
            code = Code.KEY_NAMES_OTHER_CONTENT
        else:
            spec = "the cache names a block by the keys that it carries"
            code = Code.KEYS_DISAGREE
        yield NAMES, Divergence.UNSOUND, code, spec

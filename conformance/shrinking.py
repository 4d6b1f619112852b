"""The smallest configuration that still shows a divergence."""

from collections.abc import Iterator

from conformance.checks import CHECKS
from conformance.configurations import Configuration, is_possible, single_group
from conformance.findings import Evidence
from conformance.subjects import Subject


def shrink(subject: Subject, evidence: Evidence, budget: int = 2_000) -> Evidence:
    """The smallest evidence with the same signature: fewest blocks, then smallest sizes.

    Every smaller configuration is checked, in order of size, for the first that diverges in the
    same way; after ``budget`` configurations the evidence is returned as it is. So are steps,
    which are as few as it takes and do not depend on the configuration.
    """
    if evidence.steps:
        return evidence
    check = CHECKS[evidence.signature.claim]
    for tried, configuration in enumerate(_smaller(evidence.configuration)):
        if tried == budget:
            break
        for found in check(subject, configuration).evidence:
            if found.signature == evidence.signature:
                return found
    return evidence


def _smaller(large: Configuration) -> Iterator[Configuration]:
    """Every configuration of the same kind that is smaller, smallest first."""
    group, size = large.group, large.group.block_size
    block_sizes = sorted({*range(1, min(size, 4) + 1), size})
    for num_blocks in range(1, large.num_blocks + 1):
        candidates = {
            single_group(
                group.kind,
                block_size,
                segment,
                window,
                group.eagle,
                num_blocks,
                chunk=None if chunks is None else chunks * block_size,
            )
            for block_size in block_sizes
            for segment in range(1, min(num_blocks, large.shape.segment) + 1)
            for window in (
                [None]
                if group.window is None
                else range(2, min(group.window, (num_blocks + 1) * block_size + 1) + 1)
            )
            for chunks in (
                [None]
                if group.chunk is None
                else range(1, min(group.chunk // block_size, num_blocks + 1) + 1)
            )
        }
        yield from sorted(
            candidate for candidate in candidates if candidate < large and is_possible(candidate)
        )

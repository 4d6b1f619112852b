"""The smallest configuration that still shows a divergence."""

import math
from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.evidence import AgreementEvidence, Evidence, StepsEvidence
from hitproof.conformance.scope import layouts
from hitproof.conformance.scope.configurations import (
    Configuration,
    is_possible,
    single_group,
    windows_with_tail,
)
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.subjects import Subject
from hitproof.spec.attention import tail_blocks
from hitproof.spec.groups import Group


def shrink(subject: Subject, evidence: Evidence, budget: int = 2_000) -> Evidence:
    """The smallest evidence with the same signature: fewest blocks, then smallest sizes.

    Of one group every smaller configuration is checked, in order of size, for the first that
    diverges in the same way; a layout of several is made smaller step by step, until no step
    is left that still shows it. After ``budget`` checks the smallest evidence so far is returned.
    Steps are as few as it takes and do not depend on the configuration: they stay as they are, and
    so do histories, whose layouts are small. What the plainest variant shows is shown in it.
    """
    if isinstance(evidence, StepsEvidence):
        return evidence
    judged = evidence.configuration
    if judged.variant:
        found = _shown(subject, evidence, replace(judged, variant=0))
        if found is not None:
            return shrink(subject, found, budget)
    if isinstance(evidence, AgreementEvidence):
        return evidence
    smaller = (
        _shrunk_layouts(evidence.configuration)
        if isinstance(evidence.configuration, Layout)
        else _smaller(evidence.configuration)
    )
    for judged in smaller:
        if budget == 0:
            break
        budget -= 1
        judged = replace(judged, variant=evidence.configuration.variant)
        found = _shown(subject, evidence, judged)
        if found is not None:
            return shrink(subject, found, budget) if isinstance(judged, Layout) else found
    return evidence


def _shown(subject: Subject, evidence: Evidence, judged: Configuration | Layout) -> Evidence | None:
    """Evidence of the same signature on another configuration."""
    for found in CHECKS[evidence.signature.claim](subject, judged).evidence:
        if found.signature == evidence.signature:
            return found
    return None


def _shrunk_layouts(large: Layout) -> Iterator[Layout]:
    """Every layout that is one step smaller, the largest steps first."""
    groups = large.groups
    candidates = [
        *_scaled_down(large),
        *(replace(large, groups=groups[:n] + groups[n + 1 :]) for n in range(len(groups))),
        *(replace(large, num_tokens=n) for n in range(1, large.num_tokens)),
        *(
            replace(large, groups=(*groups[:n], smaller, *groups[n + 1 :]))
            for n, group in enumerate(groups)
            for smaller in _smaller_groups(group)
        ),
    ]
    for candidate in candidates:
        # One group alone has a coordinator of its own.
        if len(candidate.groups) > 1 and layouts.is_possible(candidate):
            yield replace(candidate, hash_block_size=layouts.hash_unit(candidate.groups), model="")


def _scaled_down(large: Layout) -> Iterator[Layout]:
    """The layout with every size divided by a common divisor of the block sizes, runs as long."""
    common = math.gcd(*(group.block_size for group in large.groups))
    for divisor in range(common, 1, -1):
        if common % divisor == 0:
            groups = tuple(_scaled(group, divisor) for group in large.groups)
            yield replace(large, groups=groups, num_tokens=max(large.num_tokens // divisor, 1))


def _scaled(group: Group, divisor: int) -> Group:
    size = group.block_size // divisor
    tail = None if group.window is None else tail_blocks(group.window, group.block_size)
    return replace(
        group,
        block_size=size,
        window=None if tail is None else windows_with_tail(tail, size)[0] if tail else 1,
        chunk=None if group.chunk is None else group.chunk // divisor,
    )


def _smaller_groups(group: Group) -> Iterator[Group]:
    for size in range(1, min(group.block_size, 5)):
        yield replace(group, block_size=size)
    if group.window is not None:
        for window in range(2, min(group.window, 9)):
            yield replace(group, window=window)
    if group.chunk is not None:
        for blocks in range(1, min(group.chunk // group.block_size, 5)):
            yield replace(group, chunk=blocks * group.block_size)


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

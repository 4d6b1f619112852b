"""Hits: which blocks a hit requires, when it is valid, and which one lookup must return."""

from collections.abc import Callable
from functools import partial

from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry, whole_blocks
from hitproof.spec.terms import (
    Blocks,
    Formula,
    Items,
    Term,
    Tokens,
    by_cases,
    choose,
    for_all,
    for_each,
    greatest,
    is_multiple,
    max,
    span,
)

Cached = Callable[[int, Blocks], Formula]
"""``cached(g, i)``: whether block i of group g (an index into the groups) is cached. It must answer
for any block from 0 on, also beyond the lookahead horizon."""


@by_cases("kind", GroupKind)
def run_start(group: BlockGeometry, boundary: Blocks) -> Blocks:
    """First block of the required run at ``boundary``, in blocks; below 0 means from block 0.

    For chunked local attention it is the block that holds the first token of the boundary's
    chunk. Where a chunk starts at the boundary it is the boundary: nothing before it is read.
    """
    match group.kind:
        case GroupKind.FULL_ATTENTION:
            return 0
        case GroupKind.MAMBA:
            return boundary - 1
        case GroupKind.CHUNKED_LOCAL:
            length = boundary * group.block_size
            first_token = length // group.chunk * group.chunk
            return first_token // group.block_size
        case _:
            return boundary - group.tail


def run_end(group: BlockGeometry, boundary: Blocks) -> Blocks:
    """One past the last block of the required run at ``boundary``, in blocks."""
    return boundary + group.lookahead


def in_required_run(group: BlockGeometry, block: Blocks, boundary: Blocks) -> Formula:
    """Whether ``block`` must be cached for a hit that ends at ``boundary`` (both in blocks).

    Full attention reads every block before the boundary, a sliding window its tail, chunked
    local attention those of the chunk that the boundary lies in, Mamba the one state block that
    ends there. EAGLE/MTP adds the lookahead block: the key and value that a draft layer keeps
    for the last token before the boundary depend on the token after it, which only the hash of
    the next block covers. With several MTP modules it can be several blocks
    (`spec.attention.lookahead_blocks`). Boundary 0 means no hit: callers ask about boundaries from
    1 on.
    """
    start = run_start(group, boundary)
    return (0 <= block) & (start <= block) & (block < run_end(group, boundary))


def required_run(group: BlockGeometry, boundary: Blocks) -> range:
    """The blocks for which `in_required_run` holds."""
    return span(max(run_start(group, boundary), 0), run_end(group, boundary))


def has_required_run(
    group: BlockGeometry, boundary: Blocks, cached: Callable[[Blocks], Formula]
) -> Formula:
    """Whether every block of the required run at ``boundary`` (in blocks) is cached."""
    run = required_run(group, boundary)
    return for_all(run.start, run.stop, cached)


def within_reach(
    group: BlockGeometry, boundary: Blocks, cap_blocks: Blocks, horizon_blocks: Blocks
) -> Formula:
    """Whether lookup may serve ``boundary`` at all, whatever is cached (all in blocks).

    The hit must end within the cap, since the last token of a request is always recomputed. Its
    lookahead block must end within the lookahead horizon, which is a policy.
    """
    return (boundary <= cap_blocks) & (run_end(group, boundary) <= horizon_blocks)


def valid_boundary(
    group: BlockGeometry,
    boundary: Blocks,
    cap_blocks: Blocks,
    horizon_blocks: Blocks,
    cached: Callable[[Blocks], Formula],
) -> Formula:
    """Whether one group can serve a hit that ends at ``boundary`` >= 1 (all in blocks)."""
    reach = within_reach(group, boundary, cap_blocks, horizon_blocks)
    return reach & has_required_run(group, boundary, cached)


def valid_hit(
    groups: Items[Group],
    alignment_tokens: Tokens,
    length: Tokens,
    cap: Tokens,
    horizon: Tokens,
    cached: Cached,
    valid: Callable[..., Formula] = valid_boundary,
) -> bool:
    """Whether a hit of ``length`` tokens is valid: every group has its required run.

    ``groups`` are as `share_eagle` gives them and ``alignment_tokens`` is their `alignment`,
    or a multiple of it; ``cap`` and ``horizon`` (the lookahead horizon) are in tokens. No hit,
    ``length`` 0, is always valid. Groups that opt out of prefix caching require nothing;
    ``valid`` decides for each of the others.
    """

    def serves(index: Term, group: Group) -> Formula:
        return choose(
            group.prefix_cacheable,
            lambda: valid(
                geometry(group, alignment_tokens),
                whole_blocks(length, group.block_size),
                whole_blocks(cap, group.block_size),
                whole_blocks(horizon, group.block_size),
                partial(cached, index),
            ),
            lambda: True,
        )

    aligned = (0 <= length) & is_multiple(length, alignment_tokens)
    holds: bool = (length == 0) | (aligned & for_each(groups, serves))
    return holds


def longest_valid_hit(
    groups: Items[Group],
    alignment_tokens: Tokens,
    cap: Tokens,
    horizon: Tokens,
    cached: Cached,
    valid: Callable[..., Formula] = valid_boundary,
) -> int:
    """The longest valid hit in tokens: what lookup must return. Arguments as in `valid_hit`."""
    return greatest(
        alignment_tokens,
        cap,
        lambda length: valid_hit(groups, alignment_tokens, length, cap, horizon, cached, valid),
    )

"""Tiers: what a second store of blocks behind a KV connector stores, serves and loads.

A tier, such as host memory, files or the Mooncake store, holds copies of blocks under the keys of
the prefix cache. It is a producer and a consumer like the block pool: blocks are *stored* as they
are filled, step by step; a *lookup* finds the longest hit on what is stored and what is local, that
is in the prefix cache; what such a hit reads and is not local is *loaded*.

Each block is offered to the tier once, by the step that fills it, so a reachable block that this
step leaves out is never stored. A lookup need not ask for all that may be stored: the blocks that
must be stored at its length (`spec.mask.is_due`) decide. vLLM: ``MooncakeStoreCoordinator``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hitproof.spec.groups import BlockGeometry, Group
from hitproof.spec.hits import Cached, in_required_run, longest_valid_hit
from hitproof.spec.mask import in_mask
from hitproof.spec.terms import Blocks, Formula, Items, Term, Tokens, not_


def is_stored(
    group: BlockGeometry,
    block: Blocks,
    start: Blocks,
    end: Blocks,
    promised: Callable[[BlockGeometry, Blocks], Formula] = in_mask,
) -> Formula:
    """Whether a tier stores ``block`` in the step that fills blocks ``start`` up to ``end``.

    It stores the blocks that its policy promises: under dense retention each reachable one.
    """
    return (start <= block) & (block < end) & promised(group, block)


def is_available(stored: Cached, local: Cached, group: Term, block: Blocks) -> Formula:
    """Whether a hit may rest on a block of a group: it is stored, or local."""
    return stored(group, block) | local(group, block)


def longest_tier_hit(
    groups: Items[Group],
    alignment_tokens: Tokens,
    cap: Tokens,
    horizon: Tokens,
    stored: Cached,
    local: Cached,
) -> int:
    """The longest hit of the tier in tokens: each group's required run is stored or local.

    The lookahead blocks are part of the run, so they are dropped once, and only where they were
    found. Arguments as in `spec.hits.valid_hit`.
    """
    available = partial(is_available, stored, local)
    return longest_valid_hit(groups, alignment_tokens, cap, horizon, available)


def is_loaded(
    group: BlockGeometry, block: Blocks, boundary: Blocks, local: Callable[[Blocks], Formula]
) -> Formula:
    """Whether the load of a hit that ends at ``boundary`` >= 1 has ``block`` (all in blocks).

    It has what the request then reads, and is not local. Lookahead blocks were matched and dropped,
    and are not loaded.
    """
    resumed = replace(group, lookahead=0)
    return in_required_run(resumed, block, boundary) & not_(local(block))

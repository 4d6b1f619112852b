"""Local prefixes: what a lookup reports to a KV connector that loads Mamba states.

In disaggregated serving a request's prompt is computed elsewhere. The *local prefix* is what the
local prefix cache holds of it. A connector loads the keys and values of the tokens after the local
prefix, and the Mamba state as of the last token that it loads. It needs no state at the end of the
local prefix, so the local prefix may be longer than the hit that all groups share. If nothing is
loaded in the end, the request resumes at the end of the local prefix and needs the state there, so
a prefix without that state is *flagged*. vLLM:
``KVCacheManager.get_computed_blocks_for_connector``, whose flag is ``hit_diverged``, and
``supports_divergent_local_hybrid_hits`` of connectors.
"""

from collections.abc import Callable, Sequence

from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import Cached, longest_valid_hit, valid_boundary, within_reach
from hitproof.spec.terms import Blocks, Formula, executable


@executable
def is_fully_loaded(kind: GroupKind) -> bool:
    """Whether a connector loads everything that groups of the kind read, wherever it starts."""
    return kind is GroupKind.MAMBA


@executable
def may_diverge(groups: Sequence[Group]) -> bool:
    """Whether a local prefix may be longer than the hit that all groups share.

    It may in models that combine Mamba with full attention. In all others the local prefix is the
    hit itself and is never flagged. vLLM: ``HybridKVCacheCoordinator.full_attention_group_id``.
    """
    kinds = {group.kind for group in groups if group.prefix_cacheable}
    return {GroupKind.FULL_ATTENTION, GroupKind.MAMBA} <= kinds


def valid_local_boundary(
    group: BlockGeometry,
    boundary: Blocks,
    cap_blocks: Blocks,
    horizon_blocks: Blocks,
    cached: Callable[[Blocks], Formula],
) -> Formula:
    """Whether a local prefix may end at ``boundary`` >= 1, for one group (all in blocks).

    Like `spec.hits.valid_boundary`, except that a group that is fully loaded needs nothing cached.
    What a window or a chunk reads before the boundary is not loaded: loading starts there.
    """
    if is_fully_loaded(group.kind):
        return within_reach(group, boundary, cap_blocks, horizon_blocks)
    return valid_boundary(group, boundary, cap_blocks, horizon_blocks, cached)


@executable
def longest_local_prefix(
    groups: Sequence[Group], alignment_tokens: int, cap: int, horizon: int, cached: Cached
) -> int:
    """The longest local prefix in tokens. Arguments as in `spec.hits.valid_hit`."""
    if not may_diverge(groups):
        return longest_valid_hit(groups, alignment_tokens, cap, horizon, cached)
    return longest_valid_hit(
        groups, alignment_tokens, cap, horizon, cached, valid=valid_local_boundary
    )

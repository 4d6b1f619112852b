"""Local prefixes: what a lookup tells a KV connector that loads Mamba states.

In disaggregated serving a request's prompt is computed elsewhere, and a connector loads the keys
and values of the tokens after the *local prefix*, those that the prefix cache has, and the Mamba
state as of the last token that it loads. It needs no state of the local prefix, so a local prefix
may be longer than the hit that all groups share. Where nothing is loaded after all, the request
resumes at the end of the local prefix, and the state is needed there: a prefix that lacks one is
*flagged*. vLLM: ``KVCacheManager.get_computed_blocks_for_connector``, whose flag is
``hit_diverged``, and ``supports_divergent_local_hybrid_hits`` of connectors.
"""

from collections.abc import Callable, Sequence

from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import Cached, longest_valid_hit, valid_boundary, within_reach
from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


def is_loaded_anew(kind: GroupKind) -> bool:
    """Whether a connector loads all that a group of the kind reads, wherever its load starts."""
    return kind is GroupKind.MAMBA


def may_diverge(groups: Sequence[Group]) -> bool:
    """Whether a local prefix may be longer than the hit that all groups share.

    It may where Mamba stands beside full attention. Elsewhere the local prefix is the hit itself,
    and never flagged. vLLM: ``HybridKVCacheCoordinator.full_attention_group_id``.
    """
    kinds = {group.kind for group in groups if group.prefix_cacheable}
    return {GroupKind.FULL_ATTENTION, GroupKind.MAMBA} <= kinds


def valid_local_boundary(
    group: BlockGeometry,
    boundary: Term,
    cap_blocks: Term,
    horizon_blocks: Term,
    cached: Callable[[Term], Formula],
    arithmetic: Arithmetic = INTEGERS,
) -> Formula:
    """Whether a local prefix may end at ``boundary`` >= 1, for one group (all in blocks).

    As `spec.hits.valid_boundary`, but nothing need be cached of what is loaded anew. What a window
    or a chunk reads before the boundary is not: the load starts at the boundary.
    """
    if is_loaded_anew(group.kind):
        return within_reach(group, boundary, cap_blocks, horizon_blocks)
    return valid_boundary(group, boundary, cap_blocks, horizon_blocks, cached, arithmetic)


def longest_local_prefix(
    groups: Sequence[Group], alignment_tokens: int, cap: int, horizon: int, cached: Cached
) -> int:
    """The longest local prefix in tokens. Arguments as in `spec.hits.valid_hit`."""
    if not may_diverge(groups):
        return longest_valid_hit(groups, alignment_tokens, cap, horizon, cached)
    return longest_valid_hit(
        groups, alignment_tokens, cap, horizon, cached, valid=valid_local_boundary
    )

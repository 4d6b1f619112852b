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

from collections.abc import Callable

from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import Cached, valid_boundary, valid_hit, within_reach
from hitproof.spec.terms import Blocks, Formula, Items, Tokens, choose, for_some, greatest


def is_fully_loaded(kind: GroupKind) -> Formula:
    """Whether a connector loads everything that groups of the kind read, wherever it starts."""
    return kind == GroupKind.MAMBA


def may_diverge(groups: Items[Group]) -> Formula:
    """Whether a local prefix may be longer than the hit that all groups share.

    It may in models that combine Mamba with full attention. In all others the local prefix is the
    hit itself and is never flagged. vLLM: ``HybridKVCacheCoordinator.full_attention_group_id``.
    """

    def has(kind: GroupKind) -> Formula:
        return for_some(groups, lambda _, group: group.prefix_cacheable & (group.kind == kind))

    return has(GroupKind.FULL_ATTENTION) & has(GroupKind.MAMBA)


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
    return choose(
        is_fully_loaded(group.kind),
        lambda: within_reach(group, boundary, cap_blocks, horizon_blocks),
        lambda: valid_boundary(group, boundary, cap_blocks, horizon_blocks, cached),
    )


def valid_local_prefix(
    groups: Items[Group],
    alignment_tokens: Tokens,
    length: Tokens,
    cap: Tokens,
    horizon: Tokens,
    cached: Cached,
) -> bool:
    """Whether a local prefix of ``length`` tokens is valid. Arguments as in `spec.hits.valid_hit`.

    Where it may not diverge it is a hit.
    """
    diverges = may_diverge(groups)

    def valid(
        group: BlockGeometry,
        boundary: Blocks,
        cap_blocks: Blocks,
        horizon_blocks: Blocks,
        held: Callable[[Blocks], Formula],
    ) -> Formula:
        return choose(
            diverges,
            lambda: valid_local_boundary(group, boundary, cap_blocks, horizon_blocks, held),
            lambda: valid_boundary(group, boundary, cap_blocks, horizon_blocks, held),
        )

    return valid_hit(groups, alignment_tokens, length, cap, horizon, cached, valid)


def longest_local_prefix(
    groups: Items[Group], alignment_tokens: Tokens, cap: Tokens, horizon: Tokens, cached: Cached
) -> int:
    """The longest local prefix in tokens. Arguments as in `spec.hits.valid_hit`."""
    return greatest(
        alignment_tokens,
        cap,
        lambda length: valid_local_prefix(groups, alignment_tokens, length, cap, horizon, cached),
    )

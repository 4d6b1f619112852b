"""Sequential lookup: groups are looked up one after the other, each within the last candidate.

Up to vLLM 0.19 a group's lookup saw the candidate that the groups before it had left, and no token
past it (`horizons.LookaheadHorizon.CANDIDATE`): there was no margin for the lookahead block. So
what is valid for a group depends on the candidate, and "the longest hit that is valid for all
groups" is not defined. With full attention and one other set of equal groups, a single pass is
enough: it leaves a valid hit, which is never longer than with a fixed horizon and often shorter,
since each lookup in a group that looks ahead costs one alignment. With more sets, the lookups have
to be repeated. Every repetition costs another alignment, until the hit is 0 (vLLM issue #32802):
that is a fault, not a policy. In these layouts the spec requires the longest hit that is valid with
a fixed horizon.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import Cached, longest_valid_hit, valid_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.terms import Blocks, Formula, executable


def valid_without_margin(
    group: BlockGeometry, boundary: Blocks, candidate: Blocks, cached: Callable[[Blocks], Formula]
) -> Formula:
    """Whether a group may serve ``boundary`` for a ``candidate`` (both in blocks).

    The candidate is both its cap and its horizon. vLLM up to 0.19: ``max_length`` of
    ``find_longest_cache_hit`` as ``HybridKVCacheCoordinator`` calls it.
    """
    return valid_boundary(group, boundary, candidate, candidate, cached)


@executable
def lookup_order(groups: Sequence[Group]) -> tuple[int, ...]:
    """The indices of the groups in the order in which they are looked up: full attention first.

    vLLM: ``HybridKVCacheCoordinator.verify_and_split_kv_cache_groups``. Groups that opt out of
    prefix caching are not looked up, and equal groups are looked up together.
    """
    return tuple(
        index
        for index, group in sorted(
            enumerate(groups), key=lambda item: item[1].kind is not GroupKind.FULL_ATTENTION
        )
        if group.prefix_cacheable
    )


@executable
def one_pass_suffices(groups: Sequence[Group]) -> bool:
    """Whether one lookup in each set of equal groups leaves a hit that is valid for all groups.

    It does with full attention and one other set: full attention, which comes first, can serve
    every shorter hit as well. vLLM: ``is_simple_hybrid`` of ``HybridKVCacheCoordinator``.
    """
    kinds = [group.kind for group in dict.fromkeys(groups) if group.prefix_cacheable]
    return len(kinds) == 2 and kinds.count(GroupKind.FULL_ATTENTION) == 1


@executable
def longest_joint_hit(
    groups: Sequence[Group],
    alignment_tokens: int,
    num_tokens: int,
    policy: LookaheadHorizon,
    cached: Cached,
) -> int:
    """The hit, in tokens, that a request of ``num_tokens`` tokens gets under a release's policy.

    Arguments as in `spec.hits.valid_hit`. With a fixed horizon it is the longest valid hit.
    Without a margin it is what one pass over the groups in `lookup_order` leaves, provided that
    `one_pass_suffices`; in other layouts, too, it is the longest valid hit.
    """
    cap = num_tokens - 1
    if policy is not LookaheadHorizon.CANDIDATE or not one_pass_suffices(groups):
        return longest_valid_hit(groups, alignment_tokens, cap, horizon(policy, num_tokens), cached)
    candidate = cap
    for current in dict.fromkeys(groups[index] for index in lookup_order(groups)):
        asked = [replace(group, prefix_cacheable=group == current) for group in groups]
        peek = horizon(policy, num_tokens, candidate)
        candidate = longest_valid_hit(asked, alignment_tokens, candidate, peek, cached)
    return candidate

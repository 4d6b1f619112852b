"""Joint hits without a margin: each group drops its lookahead block within the candidate.

Up to vLLM 0.19 a group's lookup saw the candidate that the groups before it had left, and no token
past it (`horizons.LookaheadHorizon.CANDIDATE`). So what is valid for a group depends on the
candidate, and there is no set of hits that are valid for all groups whose longest could be asked
for. With full attention and one other set of groups, one turn each is enough: what is left is a
valid hit, never longer than with a horizon that stays, and often shorter, since every turn of a
group that looks ahead costs one alignment. With more sets, turns have to be repeated. A second turn
costs another alignment, so that nothing but 0 is left in the end (vLLM issue #32802): no policy but
a fault. There the longest hit that is valid with a horizon that stays is due.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.hits import Cached, longest_valid_hit, valid_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


def valid_without_margin(
    group: BlockGeometry,
    boundary: Term,
    candidate: Term,
    cached: Callable[[Term], Formula],
    arithmetic: Arithmetic = INTEGERS,
) -> Formula:
    """Whether a group may serve ``boundary`` when it is given ``candidate`` (both in blocks).

    The candidate is its cap and its horizon. vLLM up to 0.19: ``max_length`` of
    ``find_longest_cache_hit`` as ``HybridKVCacheCoordinator`` calls it.
    """
    return valid_boundary(group, boundary, candidate, candidate, cached, arithmetic)


def lookup_order(groups: Sequence[Group]) -> tuple[int, ...]:
    """The indices of the groups in the order of their turns: full attention first.

    vLLM: ``HybridKVCacheCoordinator.verify_and_split_kv_cache_groups``. Groups that opt out of
    prefix caching have no turn, and groups that are equal have theirs together.
    """
    return tuple(
        index
        for index, group in sorted(
            enumerate(groups), key=lambda item: item[1].kind is not GroupKind.FULL_ATTENTION
        )
        if group.prefix_cacheable
    )


def one_pass_suffices(groups: Sequence[Group]) -> bool:
    """Whether one turn of each group leaves a hit that is valid for all of them.

    It does with full attention and at most one other set of equal groups: full attention, which
    is first, can serve every shorter hit as well. vLLM: ``is_simple_hybrid`` of
    ``HybridKVCacheCoordinator``.
    """
    turns = [group.kind for group in dict.fromkeys(groups) if group.prefix_cacheable]
    return len(turns) == 2 and turns.count(GroupKind.FULL_ATTENTION) == 1


def longest_joint_hit(
    groups: Sequence[Group],
    alignment_tokens: int,
    num_tokens: int,
    policy: LookaheadHorizon,
    cached: Cached,
) -> int:
    """The hit, in tokens, that a request of ``num_tokens`` gets under the policy of a release.

    Arguments as in `spec.hits.valid_hit`. With a horizon that stays it is the longest valid hit.
    Without a margin it is what is left when full attention and the one other set of equal groups
    have had one turn each, in `lookup_order`; see `one_pass_suffices` for other layouts.
    """
    cap = num_tokens - 1
    if policy is not LookaheadHorizon.CANDIDATE or not one_pass_suffices(groups):
        return longest_valid_hit(groups, alignment_tokens, cap, horizon(policy, num_tokens), cached)
    candidate = cap
    for turn in dict.fromkeys(groups[index] for index in lookup_order(groups)):
        asked = [replace(group, prefix_cacheable=group == turn) for group in groups]
        peek = horizon(policy, num_tokens, candidate)
        candidate = longest_valid_hit(asked, alignment_tokens, candidate, peek, cached)
    return candidate

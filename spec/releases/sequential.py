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

from collections.abc import Callable
from dataclasses import replace

from hitproof.spec.groups import BlockGeometry, Group, GroupKind, is_looked_up_with
from hitproof.spec.hits import Cached, longest_valid_hit, valid_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.terms import (
    Blocks,
    Formula,
    Items,
    Term,
    Tokens,
    changed,
    choose,
    for_each,
    for_some,
    implies,
    not_,
)


def valid_without_margin(
    group: BlockGeometry, boundary: Blocks, candidate: Blocks, cached: Callable[[Blocks], Formula]
) -> Formula:
    """Whether a group may serve ``boundary`` for a ``candidate`` (both in blocks).

    The candidate is both its cap and its horizon. vLLM up to 0.19: ``max_length`` of
    ``find_longest_cache_hit`` as ``HybridKVCacheCoordinator`` calls it.
    """
    return valid_boundary(group, boundary, candidate, candidate, cached)


def one_pass_suffices(groups: Items[Group]) -> bool:
    """Whether one lookup in each set of equal groups leaves a hit that is valid for all groups.

    It does with full attention and one other set: full attention, which comes first, can serve
    every shorter hit as well. Groups that opt out of prefix caching are not looked up. vLLM:
    ``is_simple_hybrid`` of ``HybridKVCacheCoordinator``.
    """

    def is_full(_: Term, group: Group) -> Formula:
        return group.prefix_cacheable & _is_full(group)

    def is_other(_: Term, group: Group) -> Formula:
        return group.prefix_cacheable & not_(_is_full(group))

    def is_like_all(_: Term, group: Group) -> Formula:
        def is_like(_: Term, other: Group) -> Formula:
            both = group.prefix_cacheable & other.prefix_cacheable
            same = is_looked_up_with(group, other) & (group.eagle == other.eagle)
            return implies(both & (_is_full(group) == _is_full(other)), same)

        return for_each(groups, is_like)

    two = for_some(groups, is_full) & for_some(groups, is_other)
    holds: bool = two & for_each(groups, is_like_all)
    return holds


def longest_joint_hit(
    groups: Items[Group],
    alignment_tokens: Tokens,
    num_tokens: Tokens,
    policy: LookaheadHorizon,
    cached: Cached,
    valid: Callable[..., Formula] = valid_boundary,
) -> int:
    """The hit, in tokens, that a request of ``num_tokens`` tokens gets under a release's policy.

    Arguments as in `spec.hits.valid_hit`. With a fixed horizon it is the longest valid hit.
    Without a margin it is what a lookup in full attention and then one in the other groups leave,
    provided that `one_pass_suffices`; in other layouts, too, it is the longest valid hit.
    """
    cap = num_tokens - 1

    def in_turn(is_asked: Callable[[Group], Formula], candidate: Tokens) -> Tokens:
        asked = changed(
            groups,
            lambda group: replace(group, prefix_cacheable=group.prefix_cacheable & is_asked(group)),
        )
        peek = horizon(policy, num_tokens, candidate)
        return longest_valid_hit(asked, alignment_tokens, candidate, peek, cached, valid)

    def at_once() -> Tokens:
        peek = horizon(policy, num_tokens)
        return longest_valid_hit(groups, alignment_tokens, cap, peek, cached, valid)

    hit: int = choose(
        one_pass_suffices(groups) if policy is LookaheadHorizon.CANDIDATE else False,
        lambda: in_turn(lambda group: not_(_is_full(group)), in_turn(_is_full, cap)),
        at_once,
    )
    return hit


def _is_full(group: Group) -> Formula:
    return group.kind == GroupKind.FULL_ATTENTION

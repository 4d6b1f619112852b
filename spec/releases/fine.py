"""Fine-grained hits: hits that end on a hash unit, inside the blocks of some groups.

A policy of newer releases (`HitGranularity.FINE`). Mamba blocks are large, since each holds one
state, and aligned hits cut every shared prefix down to a multiple of them. A state can be kept as
of any token, though, and the blocks of full attention are append-only. So a cached block may also
be registered under the hash of a prefix that ends inside it, and hits end on multiples of the
*hash unit*, the tokens that one hash covers (vLLM's ``hash_block_size``).

Nothing else changes: at that granularity every clause on hits holds for groups as if their blocks
were hash units (`at_hash_units`), where "unit i is cached" means `is_held`. A group drops one hash
unit for EAGLE, not one block. An *entry* is a registration of a block under such a prefix. Entries
are numbered like hash units: entry i stands for the prefix that ends with unit i.

The producer registers each block that it fills at its end, as with aligned hits, and the last block
of its prompt at the prompt's end (`tail_boundary`), from which later requests resume.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial

from hitproof.spec.groups import Group, GroupKind, alignment
from hitproof.spec.hits import Cached, longest_valid_hit, valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import replay_boundary, resend_cap
from hitproof.spec.terms import (
    Formula,
    Items,
    Term,
    Tokens,
    changed,
    choose,
    for_all,
    for_each,
    for_some,
    min,
    not_,
    span,
)

FINE_KINDS = (GroupKind.FULL_ATTENTION, GroupKind.MAMBA)
"""The kinds whose blocks can be registered under a prefix that ends inside them. vLLM:
``supports_fine_grained_hash_lookup``."""


class HitGranularity(StrEnum):
    """Where hits may end: a policy of the release."""

    ALIGNED = "aligned"
    """On block edges of every group."""
    FINE = "fine"
    """On hash units, where the groups allow it (`is_fine_grained`); else aligned."""


class FineTail(StrEnum):
    """For whose hit the end of a prompt is kept when it lies inside a block: a policy.

    A Mamba group keeps one state there. The two differ where the prompt ends on a hash unit: a
    resend recomputes its last token, an extension need not.
    """

    NONE = "none"
    """For none: hits are aligned."""
    EXTENSION = "extension"
    """For that of an extension of the prompt."""
    RESEND = "resend"
    """For that of a resend of the prompt, from which an extension can continue as well."""


def is_fine_grained(groups: Items[Group], hash_block_size: Tokens) -> bool:
    """Whether hits may end inside blocks.

    They may when some Mamba block is larger than a hash unit and every other group is of
    `FINE_KINDS` or has blocks of one hash unit. Groups that opt out of prefix caching do not
    matter. vLLM: ``partial_hash_hits_enabled``, for Mamba groups in align mode.
    """

    def is_large_state(_: Term, group: Group) -> Formula:
        is_state = group.prefix_cacheable & (group.kind == GroupKind.MAMBA)
        return is_state & (hash_block_size < group.block_size)

    def fits(_: Term, group: Group) -> Formula:
        fine: Formula = False
        for kind in FINE_KINDS:
            fine = fine | (group.kind == kind)
        return not_(group.prefix_cacheable) | fine | (group.block_size == hash_block_size)

    holds: bool = for_some(groups, is_large_state) & for_each(groups, fits)
    return holds


def hit_alignment(groups: Items[Group], hash_block_size: Tokens, policy: HitGranularity) -> int:
    """The number of tokens that hits are multiples of. vLLM: ``_cache_hit_alignment_tokens``.

    Blocks of groups that take part are some hash units each.
    """
    if policy is not HitGranularity.FINE:
        return alignment(groups)
    ends: int = choose(
        is_fine_grained(groups, hash_block_size),
        lambda: hash_block_size,
        lambda: alignment(groups),
    )
    return ends


def at_hash_units(group: Group, hash_block_size: Tokens) -> Group:
    """The group as fine-grained lookup treats it: its blocks are hash units."""
    return replace(group, block_size=hash_block_size)


def block_of(unit: Term, units: Term) -> Term:
    """The block that holds hash unit ``unit``, where a block is ``units`` of them."""
    return unit // units


def witness_unit(kind: GroupKind, block: Term, units: Term) -> Term:
    """The hash unit of a block that must be held when the whole block is required.

    For Mamba it is the last: the state is the one as of the block's end. For full attention it is
    the first: any entry at or after it implies all that comes before in the block.
    """
    first = block * units
    return first + units - 1 if kind is GroupKind.MAMBA else first


def witness_end(kind: GroupKind, unit: Term, units: Term) -> Term:
    """One past the last entry that shows that a group's content for hash unit ``unit`` is cached.

    For full attention each entry of the same block at or after the unit shows it, since the block
    holds all keys and values up to there. For Mamba, only the entry at the unit itself: the state
    as of its last token. A kind that is not in `FINE_KINDS` has blocks of one hash unit.
    """
    return choose(
        kind == GroupKind.FULL_ATTENTION,
        lambda: (block_of(unit, units) + 1) * units,
        lambda: unit + 1,
    )


def witness_entries(group: Group, hash_block_size: Tokens, unit: Term, horizon: Tokens) -> range:
    """The entries any one of which shows that the group's content for hash unit ``unit`` is cached.

    The entry must lie within the ``horizon`` (tokens), as far as the lookup may peek.
    """
    end = witness_end(group.kind, unit, group.block_size // hash_block_size)
    return span(unit, min(end, horizon // hash_block_size))


def is_held(
    kind: GroupKind,
    unit: Term,
    units: Term,
    horizon_units: Term,
    entries: Callable[[Term], Formula],
) -> Formula:
    """Whether a group's content for hash unit ``unit`` is cached.

    It is when an entry from the unit to `witness_end` is, within the horizon (in hash units). A
    block of the group is ``units`` hash units.
    """
    end = min(witness_end(kind, unit, units), horizon_units)
    absent = for_all(unit, end, lambda entry: not_(entries(entry)))
    return not_(absent)


def peek(group: Group, cap: Tokens, horizon: Tokens) -> Tokens:
    """How far, in tokens, the entries that a lookup may ask a group for reach.

    A lookup peeks past the ``cap`` for the lookahead block only.
    """
    return choose(group.eagle, lambda: horizon, lambda: cap)


def holds_unit(
    groups: Items[Group],
    hash_block_size: Tokens,
    cap: Tokens,
    horizon: Tokens,
    entries: Cached,
    index: Term,
    unit: Term,
) -> Formula:
    """Whether the content of group ``index`` for hash unit ``unit`` is cached, see `is_held`."""
    group = groups[index]
    units, reach = group.block_size // hash_block_size, peek(group, cap, horizon) // hash_block_size
    return is_held(group.kind, unit, units, reach, partial(entries, index))


def valid_fine_hit(
    groups: Items[Group],
    hash_block_size: Tokens,
    length: Tokens,
    cap: Tokens,
    horizon: Tokens,
    entries: Cached,
    holds: Callable[..., Formula] = holds_unit,
) -> bool:
    """Whether a fine-grained hit of ``length`` tokens is valid; see `longest_fine_hit`."""
    in_units = changed(groups, lambda group: at_hash_units(group, hash_block_size))
    held = partial(holds, groups, hash_block_size, cap, horizon, entries)
    return valid_hit(in_units, hash_block_size, length, cap, horizon, held)


def longest_fine_hit(
    groups: Items[Group],
    hash_block_size: Tokens,
    cap: Tokens,
    horizon: Tokens,
    entries: Cached,
    holds: Callable[..., Formula] = holds_unit,
) -> int:
    """The longest valid fine-grained hit in tokens: what lookup must return if `is_fine_grained`.

    ``entries(g, i)``: whether group g has a block registered under the prefix that ends with hash
    unit i; ``holds`` decides by them what is cached. Other arguments as in
    `spec.hits.longest_valid_hit`.
    """
    in_units = changed(groups, lambda group: at_hash_units(group, hash_block_size))
    held = partial(holds, groups, hash_block_size, cap, horizon, entries)
    return longest_valid_hit(in_units, hash_block_size, cap, horizon, held)


def tail_boundary(
    tail: FineTail,
    policy: LookaheadHorizon,
    prompt: Tokens,
    lookahead_tokens: Tokens,
    hash_block_size: Tokens,
    hash_lookahead_tokens: Tokens = 0,
) -> Tokens:
    """The hit, in tokens, that the end of a prompt of ``prompt`` tokens is kept for.

    It is the longest hit of an extension or of a resend when everything that the producer computed
    of its prompt is cached (`spec.retention.replay_boundary`), and every group keeps its required
    run there. ``lookahead_tokens`` is one hash unit where a group drops it for EAGLE, else 0;
    hashes cover ``hash_lookahead_tokens`` tokens past their block.
    vLLM: ``_cache_partial_tail_block`` of the managers, and the chunks of
    ``Scheduler._mamba_block_aligned_split``, which end there so that there is a state to keep.
    """
    cap, limit = prompt, prompt
    if tail is FineTail.RESEND:
        cap = resend_cap(prompt, hash_lookahead_tokens)
        limit = horizon(policy, prompt)
    return replay_boundary(cap, limit, lookahead_tokens, hash_block_size)

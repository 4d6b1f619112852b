"""Fine-grained hits: hits that end on a hash block, inside the blocks of some groups.

A policy of newer releases (`HitGranularity.FINE`). Mamba blocks are large, since each holds one
state, and with aligned hits every shared prefix is cut down to a multiple of them. A state can
be kept as of any token, though, and the blocks of full attention only ever grow. So a cached
block may be entered under the hash of a prefix that ends inside it, and hits end on multiples of
the *hash unit*, the tokens that one hash covers (vLLM's ``hash_block_size``).

Nothing else changes: at that granularity every clause on hits holds for groups as if their
blocks were hash units (`at_hash_units`), where "unit i is cached" means `is_held`. A group
drops one hash unit for EAGLE, not one block. Entries are numbered like hash units: entry i
stands for the prefix that ends with unit i.

The producer enters the blocks that it fills at their ends, as with aligned hits, and the end of its
prompt (`tail_boundary`), where later requests leave it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial

from hitproof.spec.groups import ConfigurationError, Group, GroupKind, alignment
from hitproof.spec.hits import Cached, longest_valid_hit, valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import replay_boundary
from hitproof.spec.terms import INTEGERS, Arithmetic, Term

FINE_KINDS = (GroupKind.FULL_ATTENTION, GroupKind.MAMBA)
"""The kinds whose blocks can be entered at a prefix that ends inside them. vLLM:
``supports_fine_grained_hash_lookup``."""


class HitGranularity(StrEnum):
    """Where hits may end: a policy of the release."""

    ALIGNED = "aligned"
    """On block edges of every group."""
    FINE = "fine"
    """On hash blocks, where the groups allow it (`is_fine_grained`); else aligned."""


class FineTail(StrEnum):
    """Whose hit the end of a prompt is kept for, where it lies inside a block: a policy.

    A Mamba group keeps one state there. The two differ where the prompt ends on a hash block: a
    resend computes its last token again, an extension need not.
    """

    NONE = "none"
    """Nobody's: hits are aligned."""
    EXTENSION = "extension"
    """That of an extension of the prompt."""
    RESEND = "resend"
    """That of a resend of the prompt, from which an extension can go on, too."""


def is_fine_grained(groups: Sequence[Group], hash_block_size: int) -> bool:
    """Whether hits may end inside blocks: some Mamba block is larger than a hash unit, and every
    other group can be entered inside its blocks or has blocks of one hash unit.

    Groups that opt out of prefix caching do not matter. vLLM: ``partial_hash_hits_enabled``,
    for Mamba groups in align mode.
    """
    taking_part = [group for group in groups if group.prefix_cacheable]
    return any(
        group.kind is GroupKind.MAMBA and group.block_size > hash_block_size
        for group in taking_part
    ) and all(
        group.kind in FINE_KINDS or group.block_size == hash_block_size for group in taking_part
    )


def hit_alignment(groups: Sequence[Group], hash_block_size: int, policy: HitGranularity) -> int:
    """The tokens that hits are multiples of. vLLM: ``_cache_hit_alignment_tokens``.

    Raises `ConfigurationError` when a block is no whole number of hash units.
    """
    for group in groups:
        if group.prefix_cacheable and group.block_size % hash_block_size:
            raise ConfigurationError(
                f"a block size ({group.block_size} tokens) must be a multiple of the hash block "
                f"size ({hash_block_size} tokens)"
            )
    fine = policy is HitGranularity.FINE and is_fine_grained(groups, hash_block_size)
    return hash_block_size if fine else alignment(groups)


def at_hash_units(group: Group, hash_block_size: int) -> Group:
    """The group as fine-grained hits see it: its blocks are hash units."""
    return replace(group, block_size=hash_block_size)


def block_of(unit: Term, units: Term, arithmetic: Arithmetic = INTEGERS) -> Term:
    """The block that holds hash unit ``unit``, where a block is ``units`` of them."""
    return arithmetic.floor_div(unit, units)


def proving_unit(
    kind: GroupKind, block: Term, units: Term, arithmetic: Arithmetic = INTEGERS
) -> Term:
    """The hash unit of a block that is asked for when the whole block is required.

    A state is the one as of the block's last unit; full attention, which holds what comes before
    an entry, is entered at or after the first.
    """
    first = arithmetic.times(block, units)
    return first + units - 1 if kind is GroupKind.MAMBA else first


def witness_entries(group: Group, hash_block_size: int, unit: int, horizon: int) -> range:
    """The entries each of which vouches for what the group keeps of hash unit ``unit``.

    Of full attention, those of the same block at or after the unit, since the block holds all keys
    and values up to there. Of Mamba, only the entry at the unit itself: the state as of its last
    token. The entry must lie within the ``horizon`` (tokens), as far as the lookup may peek. A kind
    that is not in `FINE_KINDS` has blocks of one hash unit.
    """
    units = group.block_size // hash_block_size
    last = unit
    if group.kind is GroupKind.FULL_ATTENTION:
        last = (block_of(unit, units) + 1) * units - 1
    return range(unit, min(last + 1, horizon // hash_block_size))


def is_held(
    group: Group, hash_block_size: int, unit: int, horizon: int, entries: Callable[[int], bool]
) -> bool:
    """Whether the cache vouches for what the group keeps of hash unit ``unit``.

    One of its `witness_entries` must be there.
    """
    return any(map(entries, witness_entries(group, hash_block_size, unit, horizon)))


def peek(group: Group, cap: int, horizon: int) -> int:
    """How far the entries that a lookup may ask a group for reach, in tokens.

    Past the ``cap`` it is only for the lookahead block that a lookup peeks.
    """
    return horizon if group.eagle else cap


def valid_fine_hit(
    groups: Sequence[Group],
    hash_block_size: int,
    length: int,
    cap: int,
    horizon: int,
    entries: Cached,
) -> bool:
    """Whether a fine-grained hit of ``length`` tokens is valid; see `longest_fine_hit`."""
    in_units = [at_hash_units(group, hash_block_size) for group in groups]
    held = partial(_is_held, groups, hash_block_size, cap, horizon, entries)
    return valid_hit(in_units, hash_block_size, length, cap, horizon, held)


def longest_fine_hit(
    groups: Sequence[Group], hash_block_size: int, cap: int, horizon: int, entries: Cached
) -> int:
    """The longest valid fine-grained hit in tokens: what lookup must return.

    ``entries(g, i)``: whether group g has a block entered under the prefix that ends with hash
    unit i. The rest as in `spec.hits.longest_valid_hit`. Raises `ConfigurationError` unless
    `is_fine_grained`.
    """
    if not is_fine_grained(groups, hash_block_size):
        raise ConfigurationError(
            "hits end on hash blocks only where some Mamba block is larger and every other group "
            "can be entered inside its blocks; ask for aligned hits"
        )
    in_units = [at_hash_units(group, hash_block_size) for group in groups]
    held = partial(_is_held, groups, hash_block_size, cap, horizon, entries)
    return longest_valid_hit(in_units, hash_block_size, cap, horizon, held)


def _is_held(
    groups: Sequence[Group],
    hash_block_size: int,
    cap: int,
    horizon: int,
    entries: Cached,
    index: int,
    unit: int,
) -> bool:
    group = groups[index]
    found = partial(entries, index)
    return is_held(group, hash_block_size, unit, peek(group, cap, horizon), found)


def tail_boundary(
    tail: FineTail,
    policy: LookaheadHorizon,
    prompt: int,
    lookahead_tokens: Term,
    hash_block_size: Term,
    arithmetic: Arithmetic = INTEGERS,
) -> Term:
    """The hit, in tokens, that the end of a prompt of ``prompt`` tokens is kept for.

    It is the longest hit of an extension or of a resend when all that the producer computed of its
    prompt is there (`spec.retention.replay_boundary`), and every group keeps its required run
    there. ``lookahead_tokens`` is one hash unit where a group drops it for EAGLE, else 0. vLLM:
    ``_cache_partial_tail_block`` of the managers, and the chunks of
    ``Scheduler._mamba_block_aligned_split``, which end there so that there is a state to keep.
    """
    cap, limit = prompt, prompt
    if tail is FineTail.RESEND:
        cap, limit = prompt - 1, horizon(policy, prompt)
    return replay_boundary(cap, limit, lookahead_tokens, hash_block_size, arithmetic)

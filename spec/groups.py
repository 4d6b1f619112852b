"""KV cache groups, the alignment that they share, and which of them drop a block for EAGLE."""

from dataclasses import dataclass, replace
from enum import StrEnum

from hitproof.spec.attention import lookahead_blocks, tail_blocks
from hitproof.spec.terms import (
    Blocks,
    Formula,
    Items,
    Symbol,
    Tokens,
    changed,
    choose,
    for_each,
    for_some,
    is_common_multiple,
    is_multiple,
    lcm,
    not_,
)


class ConfigurationError(ValueError):
    """A configuration that no engine can have; the message names the remedy."""


class GroupKind(StrEnum):
    """How the layers of a group attend."""

    FULL_ATTENTION = "full_attention"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED_LOCAL = "chunked_local"
    MAMBA = "mamba"
    """In align mode: each block keeps the state as of its last token."""


@dataclass(frozen=True, order=True)
class Group:
    """One KV cache group.

    Attributes:
        kind: how its layers attend.
        block_size: b, tokens in a block.
        window: w, tokens that a sliding-window layer sees, itself included; None for other
            kinds.
        eagle: whether an EAGLE or MTP draft layer lives in the group.
        chunk: C, tokens in a chunk of local attention; None for other kinds.
        prefix_cacheable: False when the group opts out of prefix caching, so that hits require
            nothing of it (a ring buffer, for example).
        prefill_lookahead: m, tokens past its own that an entry of the draft layers depends on, the
            same in every group of an engine: more than 1 with several MTP modules.
    """

    kind: GroupKind
    block_size: int
    window: int | None = None
    eagle: bool = False
    chunk: int | None = None
    prefix_cacheable: bool = True
    prefill_lookahead: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.block_size, Symbol):
            return  # any sizes: what is impossible is said where they are
        if self.block_size < 1:
            raise ConfigurationError(
                f"a block must hold at least one token; block size {self.block_size} is invalid"
            )
        if self.prefill_lookahead < 1:
            raise ConfigurationError(
                "draft layers depend on at least one token past their own, not "
                f"{self.prefill_lookahead}; leave prefill_lookahead out"
            )
        self._check("window", self.window, GroupKind.SLIDING_WINDOW)
        self._check("chunk", self.chunk, GroupKind.CHUNKED_LOCAL)

    def _check(self, what: str, tokens: int | None, kind: GroupKind) -> None:
        if self.kind is kind:
            if tokens is None or tokens < 1:
                raise ConfigurationError(
                    f"a {kind.replace('_', '-')} group needs a {what} of at least one token, "
                    f"not {tokens}"
                )
        elif tokens is not None:
            raise ConfigurationError(f"a {self.kind} group takes no {what}, not {tokens}")


@dataclass(frozen=True)
class BlockGeometry:
    """A group measured in blocks instead of tokens: all that clauses on blocks depend on.

    Each field is a term, so that a theorem can leave it symbolic.

    Attributes:
        kind: how the group's layers attend.
        segment: P, blocks from one boundary to the next (alignment / block size), >= 1.
        tail: t, blocks before a boundary that a sliding window reaches into, >= 0. Ignored for
            other kinds.
        lookahead: blocks past the boundary that EAGLE/MTP must match and drop, else 0; 1 unless
            several MTP modules look further ahead than a block.
        block_size: b, tokens in a block. Used for chunked local attention only, whose chunks
            need not start on a block edge.
        chunk: C, tokens in a chunk. Used for chunked local attention only.
    """

    kind: GroupKind
    segment: Blocks
    tail: Blocks
    lookahead: Blocks
    block_size: Tokens = 1
    chunk: Tokens = 1


def is_common_edge(groups: Items[Group], tokens: Tokens) -> Formula:
    """Whether ``tokens`` is a number of whole blocks in every group that uses prefix caching."""
    return is_common_multiple(groups, _takes_part, _block_size, tokens)


def alignment(groups: Items[Group]) -> int:
    """The alignment A in tokens: the least common multiple of the block sizes.

    A hit must end on a block edge in every group that takes part in prefix caching. Raises
    `ConfigurationError` when none does.
    """
    if for_each(groups, lambda _, group: not_(group.prefix_cacheable)) is True:
        raise ConfigurationError("hits need at least one group that takes part in prefix caching")
    return lcm(groups, _takes_part, _block_size)


def _takes_part(group: Group) -> Formula:
    return group.prefix_cacheable


def _block_size(group: Group) -> Tokens:
    return group.block_size


def drops_block(use_eagle: Formula, flagged_alike: Formula, none_flagged: Formula) -> Formula:
    """Whether a group must match and drop a lookahead block.

    ``flagged_alike`` is whether the group, or one that is looked up together with it, is flagged;
    ``none_flagged`` is whether no group is flagged at all.
    """
    return use_eagle & (flagged_alike | none_flagged)


def is_looked_up_with(group: Group, other: Group) -> Formula:
    """Whether two groups are looked up together: they differ in the flag at most."""
    same_run = (group.kind == other.kind) & (group.block_size == other.block_size)
    same_range = (group.window == other.window) & (group.chunk == other.chunk)
    return (
        same_run
        & same_range
        & (group.prefix_cacheable == other.prefix_cacheable)
        & (group.prefill_lookahead == other.prefill_lookahead)
    )


def share_eagle(groups: Items[Group], use_eagle: Formula) -> tuple[Group, ...]:
    """The groups as lookup treats them: ``eagle`` says which must match and drop a block.

    With EAGLE on and no group flagged, all of them must, since it is not known where the draft
    layers are. Groups that differ only in the flag are looked up together, so one flag applies to
    all of them. With EAGLE off no group drops a block.
    """
    none_flagged = for_each(groups, lambda _, group: not_(group.eagle))

    def flagged_alike(group: Group) -> Formula:
        return for_some(groups, lambda _, other: other.eagle & is_looked_up_with(group, other))

    return changed(
        groups,
        lambda group: replace(
            group, eagle=drops_block(use_eagle, flagged_alike(group), none_flagged)
        ),
    )


def whole_blocks(tokens: Tokens, block_size: Tokens) -> Blocks:
    """How many blocks ``tokens`` fill; a partly filled last block does not count."""
    return tokens // block_size


def geometry(group: Group, alignment_tokens: Tokens) -> BlockGeometry:
    """The group in blocks, for hits that end on multiples of ``alignment_tokens``.

    A Mamba group never looks ahead, EAGLE or not: draft models have no Mamba layers, and a state
    cannot be rewound by dropping a block.

    Raises `ConfigurationError` when the alignment is not a multiple of the block size.
    """
    if ((1 <= alignment_tokens) & is_multiple(alignment_tokens, group.block_size)) is False:
        raise ConfigurationError(
            f"the alignment ({alignment_tokens} tokens) must be a positive multiple of the "
            f"group's block size ({group.block_size} tokens)"
        )
    return BlockGeometry(
        kind=group.kind,
        segment=whole_blocks(alignment_tokens, group.block_size),
        tail=0 if group.window is None else tail_blocks(group.window, group.block_size),
        lookahead=choose(
            group.eagle & (group.kind != GroupKind.MAMBA),
            lambda: lookahead_blocks(group.prefill_lookahead, group.block_size),
            lambda: 0,
        ),
        block_size=group.block_size,
        chunk=1 if group.chunk is None else group.chunk,
    )

"""The configurations that the gate checks, one group at a time.

Every configuration is one that a vLLM engine can have (`is_possible`). Which ones are checked:
`conformance.scope.grid`, `conformance.scope.models`.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hitproof.conformance.picking import picked
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.releases.fine import at_hash_units
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import replay_boundary

SMALL = 5
"""Requests of up to this many blocks are looked up at every length, and also without merging."""


@dataclass(frozen=True)
class LookedUp:
    """Groups of equal kind, block size, window and chunk, which are looked up together.

    Attributes:
        group_ids: their indices in the layout. vLLM: ``SpecGroup.group_ids``.
        group: one of them, with EAGLE as `share_eagle` decides it.
        shape: the group in blocks.
    """

    group_ids: tuple[int, ...]
    group: Group
    shape: BlockGeometry


@dataclass(frozen=True, order=True)
class Configuration:
    """One group as its lookup and its producer see it. Smaller cases sort first.

    Attributes:
        members: groups of equal kind, block size, window and chunk that are looked up together.
        num_blocks: the bound: blocks of this group in the longest request considered.
        alignment: A in tokens.
        group: kind, block size, window or chunk, and EAGLE as `share_eagle` decides it.
        hash_block_size: tokens that one block hash covers.
        model: the real model whose layout this is, or "" in the grid.
        ranks: decode and prefill context parallel ranks. Where they share the tokens of a block,
            the block size is that of all of them together.
        variant: a number that chooses among what the target can have for the group, its pool and
            its requests where the answer must not depend on it; 0 is the plainest.
    """

    members: int
    num_blocks: int
    alignment: int
    group: Group
    hash_block_size: int = field(compare=False)
    model: str = field(default="", compare=False)
    ranks: tuple[int, int] = (1, 1)
    variant: int = field(default=0, compare=False)

    @cached_property
    def shape(self) -> BlockGeometry:
        """The group in blocks."""
        return geometry(self.group, self.alignment)

    @property
    def looked_up(self) -> tuple[LookedUp, ...]:
        """The only set of groups that is looked up."""
        return (LookedUp(tuple(range(self.members)), self.group, self.shape),)

    def reach(self, max_length: int, policy: LookaheadHorizon) -> tuple[int, int]:
        """Cap and lookahead horizon, in tokens, of a lookup of at most ``max_length`` tokens.

        A group's own lookup peeks no further than what it may serve, whatever the policy.
        """
        del policy
        limit = min(max_length, self.num_blocks * self.group.block_size)
        return limit, limit

    @property
    def max_lengths(self) -> list[int]:
        """How many tokens the lookups may serve: every small length, then the bound.

        Below the bound, lengths that start the scan at each distance from a boundary, or, where a
        segment is long, next to one. One length ends inside a block.
        """
        size, bound, segment = self.group.block_size, self.num_blocks, self.shape.segment
        distances = range(segment) if segment <= SMALL else (0, 1, segment - 1)
        last_boundary = bound // segment * segment
        near = {last_boundary - distance for distance in distances} | {bound}
        small = range(min(bound, SMALL) + 1)
        blocks = {*small, *(b for b in near if b > 0)}
        return sorted({b * size for b in blocks} | {b * size + size - 1 for b in small})

    @property
    def bound_in_words(self) -> str:
        """The bound, as shown in obligations."""
        return f"{self.num_blocks} blocks"

    def bound(self, looked_up: LookedUp) -> int:
        """The bound in blocks."""
        del looked_up
        return self.num_blocks

    @property
    def shared(self) -> tuple[Group, ...]:
        """The groups, one per block table."""
        return (self.group,) * self.members

    @property
    def kinds(self) -> str:
        """The kind of the group."""
        return self.group.kind

    @property
    def drops_block(self) -> bool:
        """Whether lookup matches and drops a lookahead block; Mamba never does."""
        return bool(self.shape.lookahead)

    @cached_property
    def layout(self) -> tuple[Group, ...]:
        """The groups of a model that contains this group: full attention first, then the members.

        The block size of full attention is the alignment. In a model with Mamba the draft layers
        are in the full-attention group.
        """
        drafts = self.group.eagle and self.group.kind is GroupKind.MAMBA
        full = Group(GroupKind.FULL_ATTENTION, self.alignment, eagle=drafts)
        member = replace(self.group, eagle=self.group.eagle and not drafts)
        return full, *(member for _ in range(self.members))

    @property
    def in_hash_units(self) -> "Configuration":
        """The group as fine-grained lookup treats it: its blocks are hash units."""
        unit, tokens = self.hash_block_size, self.num_blocks * self.group.block_size
        group = at_hash_units(self.group, unit)
        return replace(self, group=group, alignment=unit, num_blocks=tokens // unit)

    @cached_property
    def lookahead_tokens(self) -> int:
        """The longest lookahead block of the layout's groups; 0 without EAGLE."""
        shapes = [(geometry(group, self.alignment), group.block_size) for group in self.layout]
        return max(int(shape.lookahead) * size for shape, size in shapes)

    def replays(self, num_tokens: int, policy: LookaheadHorizon) -> tuple[int, int]:
        """The boundaries, in blocks, that a resend and an extension of a prompt hit at most."""
        size, lookahead = self.group.block_size, self.lookahead_tokens
        peek = horizon(policy, num_tokens)
        resend = replay_boundary(num_tokens - 1, peek, lookahead, self.alignment)
        extension = replay_boundary(num_tokens, num_tokens, lookahead, self.alignment)
        return resend // size, extension // size

    def describe(self) -> str:
        """The configuration in words, as shown in findings and obligations."""
        window = "" if self.group.window is None else f" window {self.group.window},"
        chunk = "" if self.group.chunk is None else f" chunk {self.group.chunk},"
        shared = "" if self.members == 1 else f" {self.members} groups share the lookup,"
        return (
            f"{self.model + ': ' if self.model else ''}{self.group.kind.replace('_', ' ')}, "
            f"block size {self.group.block_size},{window}{chunk}{shared} "
            f"alignment {self.alignment}, EAGLE {'on' if self.group.eagle else 'off'}"
            + ("" if self.ranks == (1, 1) else f", on {self.ranks[0]} x {self.ranks[1]} ranks")
        )

    def as_json(self) -> dict[str, Any]:
        """The configuration as JSON; `from_json` reads it."""
        return {
            **picked(self.group, "kind", "block_size", "window", "chunk", "eagle"),
            **picked(self, "alignment", "hash_block_size", "members", "num_blocks", "model"),
            "ranks": list(self.ranks),
            **({"variant": self.variant} if self.variant else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Configuration":
        """Inverse of `as_json`; raises KeyError, ValueError or TypeError on anything else."""
        group = Group(
            kind=GroupKind(data["kind"]),
            block_size=data["block_size"],
            window=data.get("window"),
            eagle=data["eagle"],
            chunk=data.get("chunk"),
        )
        decode, prefill = data.get("ranks", (1, 1))
        same = ("members", "num_blocks", "alignment", "hash_block_size", "model")
        return Configuration(
            group=group,
            ranks=(decode, prefill),
            variant=data.get("variant", 0),
            **{name: data[name] for name in same},
        )


def single_group(
    kind: GroupKind,
    block_size: int,
    segment: int,
    window: int | None,
    eagle: bool,
    num_blocks: int,
    members: int = 1,
    chunk: int | None = None,
) -> Configuration:
    """A configuration whose alignment is ``segment`` blocks."""
    return Configuration(
        members=members,
        num_blocks=num_blocks,
        alignment=segment * block_size,
        group=Group(kind, block_size, window, eagle, chunk),
        hash_block_size=block_size,
    )


def is_possible(configuration: Configuration) -> bool:
    """Whether a vLLM engine can have it, where the spec allows more than vLLM does.

    Chunked local attention excludes EAGLE and needs one block size for all groups (asserted
    by ``ChunkedLocalAttentionManager.find_longest_cache_hit``), and its chunks are whole blocks
    (asserted by ``make_local_attention_virtual_batches``; its lookup alone would serve a hit
    whose chunk is not cached when a chunk starts inside a block).
    """
    return has_possible_chunks(configuration.group, configuration.alignment)


def has_possible_chunks(group: Group, alignment_tokens: int) -> bool:
    """Whether a vLLM engine can have such a group, whose hits end on that alignment."""
    if group.chunk is None:
        return True
    one_size = alignment_tokens == group.block_size
    return one_size and not group.eagle and group.chunk % group.block_size == 0


def windows_with_tail(tail: int, block_size: int) -> tuple[int, ...]:
    """The smallest and the largest window, in tokens, whose tail is ``tail`` >= 1 blocks."""
    return tuple(sorted({(tail - 1) * block_size + 2, tail * block_size + 1}))

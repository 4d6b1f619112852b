"""The configurations that the gate checks, one group at a time.

Together with the layouts they cover every possible pair of properties
(`conformance.scope.coverage`).
Coverage of the grid: the cross product of the kinds, of P (blocks from one boundary to the
next), of tails shorter than, equal to and longer than P, of the smallest and the largest
window that gives that tail, of EAGLE on and off; two block sizes, and one or two groups that
share the lookup, alternate over it; the windows of segments of two blocks have hash blocks of
half a block. Full attention is also checked on context parallel ranks. Windows start at two tokens:
a layer that sees one token reads nothing from the cache. Chunks of local attention are of one
block, shorter and longer than the request. The group layouts of real models are added to the grid.
Every configuration is one that a vLLM engine can have (`is_possible`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from hitproof.spec.attention import tail_blocks
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, alignment, geometry, share_eagle
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
    """

    members: int
    num_blocks: int
    alignment: int
    group: Group
    hash_block_size: int = field(compare=False)
    model: str = field(default="", compare=False)
    ranks: tuple[int, int] = (1, 1)

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
            "kind": str(self.group.kind),
            "block_size": self.group.block_size,
            "window": self.group.window,
            "chunk": self.group.chunk,
            "eagle": self.group.eagle,
            "alignment": self.alignment,
            "hash_block_size": self.hash_block_size,
            "members": self.members,
            "num_blocks": self.num_blocks,
            "model": self.model,
            "ranks": list(self.ranks),
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
        return Configuration(
            members=data["members"],
            num_blocks=data["num_blocks"],
            alignment=data["alignment"],
            group=group,
            hash_block_size=data["hash_block_size"],
            model=data["model"],
            ranks=(decode, prefill),
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


class Profile(StrEnum):
    """How much the gate covers."""

    QUICK = "quick"
    DEFAULT = "default"
    THOROUGH = "thorough"


@dataclass(frozen=True)
class _Grid:
    block_sizes: tuple[int, ...]
    segments: tuple[int, ...]
    tails: tuple[int, ...]
    chunks: tuple[int, ...]
    num_blocks: int


_GRIDS = {
    Profile.QUICK: _Grid((4,), (1, 2, 3), (1, 2, 4), (1, 5, 30), 24),
    Profile.DEFAULT: _Grid((2, 16), (1, 2, 3, 4), (1, 2, 3, 4, 6, 9), (1, 2, 3, 5, 8, 30), 24),
    Profile.THOROUGH: _Grid(
        (1, 2, 5, 16),
        (1, 2, 3, 4, 5, 6, 8),
        (1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 31),
        (1, 2, 3, 4, 5, 7, 8, 12, 16, 30),
        48,
    ),
}


def grid(profile: Profile) -> Iterator[Configuration]:
    """The grid of one-group configurations, smallest parameters first."""
    sizes = _GRIDS[profile]
    for block_size in sizes.block_sizes:
        for number, blocks in enumerate(sizes.chunks):
            yield single_group(
                GroupKind.CHUNKED_LOCAL,
                block_size,
                1,
                None,
                False,
                sizes.num_blocks,
                1 + number % 2,
                blocks * block_size,
            )
        for segment in sizes.segments:
            for eagle in (False, True):
                yield single_group(
                    GroupKind.FULL_ATTENTION, block_size, segment, None, eagle, sizes.num_blocks
                )
                yield single_group(
                    GroupKind.MAMBA, block_size, segment, None, eagle, sizes.num_blocks, 1 + eagle
                )
                for tail in sizes.tails:
                    for members, window in enumerate(windows_with_tail(tail, block_size), 1):
                        configuration = single_group(
                            GroupKind.SLIDING_WINDOW,
                            block_size,
                            segment,
                            window,
                            eagle,
                            sizes.num_blocks,
                            members,
                        )
                        halved = segment == 2 and block_size % 2 == 0
                        unit = block_size // 2 if halved else block_size
                        yield replace(configuration, hash_block_size=unit)
    yield single_group(GroupKind.SLIDING_WINDOW, 1, 2, 3, True, sizes.num_blocks)
    yield single_group(GroupKind.CHUNKED_LOCAL, 1, 1, None, False, sizes.num_blocks, chunk=1)
    yield single_group(GroupKind.SLIDING_WINDOW, 16, 1, 17, False, sizes.num_blocks)
    for segment, eagle, ranks in (
        (1, False, (2, 1)),
        (2, True, (3, 1)),
        (1, True, (1, 2)),
        (2, False, (2, 3)),
    ):
        whole = single_group(GroupKind.FULL_ATTENTION, 12, segment, None, eagle, sizes.num_blocks)
        yield replace(whole, ranks=ranks)


LONGEST_TAIL = {Profile.QUICK: 8, Profile.DEFAULT: 64, Profile.THOROUGH: 64}
"""Longer windows of real models are cut to this many blocks where a single group is looked up."""


def cut(group: Group, blocks: int) -> Group:
    """The group with its window cut by whole blocks, so that its tail has at most ``blocks``.

    A chunk of more than ``blocks`` blocks is cut to ``blocks`` blocks.
    """
    if group.chunk is not None:
        return replace(group, chunk=min(group.chunk, blocks * group.block_size))
    if group.window is None:
        return group
    surplus = max(tail_blocks(group.window, group.block_size) - blocks, 0)
    return replace(group, window=group.window - surplus * group.block_size)


@dataclass(frozen=True)
class Model:
    """The group layout of a real model, as vLLM 0.33.0's own planner lays it out.

    Attributes:
        name: the model.
        groups: its KV cache groups, EAGLE-flagged where a draft layer joins them.
        hash_block_size: tokens that one block hash covers.
        origin: where the layout comes from.
    """

    name: str
    groups: tuple[Group, ...]
    hash_block_size: int
    origin: str

    def configurations(
        self, use_eagle: bool, profile: Profile = Profile.DEFAULT
    ) -> tuple[Configuration, ...]:
        """Each distinct group of the model, with EAGLE on or off, as the lookup shares it.

        None when vLLM does not support that.
        """
        groups = share_eagle(self.groups, use_eagle)
        align = alignment(groups)
        shorter = tuple(
            group if group.window is None else cut(group, LONGEST_TAIL[profile]) for group in groups
        )
        name = self.name + (" with shorter windows" if shorter != groups else "")
        groups = shorter
        found = []
        for group in dict.fromkeys(groups):
            shape = geometry(group, align)
            whole_run = max(shape.tail, shape.segment) + shape.segment + shape.lookahead
            # Past the first chunk, so that a lookup skips one.
            chunk_and_more = 0 if group.chunk is None else group.chunk // group.block_size + 8
            found.append(
                Configuration(
                    members=groups.count(group),
                    num_blocks=max(24, whole_run, chunk_and_more),
                    alignment=align,
                    group=group,
                    hash_block_size=self.hash_block_size,
                    model=f"{name}{' + EAGLE' if use_eagle else ''}",
                )
            )
        return tuple(found) if all(map(is_possible, found)) else ()


def _full(block_size: int, eagle: bool = False) -> Group:
    return Group(GroupKind.FULL_ATTENTION, block_size, None, eagle)


def _sliding(block_size: int, window: int, eagle: bool = False) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, block_size, window, eagle)


_PLANNER = "the layers of its published configuration, grouped by vLLM 0.33.0's own planner"

MODELS = (
    Model(
        "Llama-3-like",
        (_full(16),),
        16,
        "Meta-Llama-3-8B: 32 layers of full attention, which are one group; "
        "vLLM's default block size",
    ),
    Model(
        "Mistral-7B-v0.1-like",
        (_sliding(16, 4096),),
        16,
        "Mistral-7B-v0.1: 32 layers that all see a window of 4096 tokens (sliding_window of its "
        "configuration), which are one group; vLLM's default block size",
    ),
    Model("Gemma-3-like", (_full(16), *(_sliding(16, 1024),) * 6), 16, _PLANNER),
    Model(
        "Gemma-4-like",
        (_full(32), *(_sliding(16, 1024),) * 5),
        16,
        f"{_PLANNER}; the block sizes differ because the two kinds have pages of different sizes",
    ),
    Model(
        "gpt-oss-like",
        (_full(16, eagle=True), _sliding(16, 128)),
        16,
        f"{_PLANNER}; an EAGLE3 draft layer joins the full group",
    ),
    Model(
        "DeepSeek-V4-like",
        (
            _full(256),
            _sliding(64, 128, eagle=True),
            _sliding(64, 128),
            _sliding(4, 8),
            _sliding(8, 128),
        ),
        4,
        f"{_PLANNER}; latent attention counts as full, compressor states as windows, and the MTP "
        "layer sits in one of the groups of 64",
    ),
    Model(
        "Llama-4-Scout-like",
        (_full(16), *(Group(GroupKind.CHUNKED_LOCAL, 16, chunk=8192),) * 3),
        16,
        _PLANNER,
    ),
    Model(
        "Qwen3-Next-like",
        (_full(544, eagle=True), *(Group(GroupKind.MAMBA, 544),) * 3),
        544,
        f"{_PLANNER}; the MTP layer joins the full group",
    ),
)
"""Real models; EAGLE/MTP flags as their draft layers join the groups."""


def configurations(profile: Profile) -> tuple[Configuration, ...]:
    """Every configuration of a profile: the grid, then the real models with and without EAGLE."""
    models = (
        configuration
        for model in MODELS
        for use_eagle in (False, True)
        for configuration in model.configurations(use_eagle, profile)
    )
    return tuple(dict.fromkeys((*grid(profile), *models)))

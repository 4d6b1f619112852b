"""Tiers of a subject: a second store of blocks behind a KV connector."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import HorizonSubject, Lookup


class TierMasks(Protocol):
    """What a tier does with the blocks of a request, made ready for one layout.

    All lengths are multiples of the alignment, in tokens. A result has, for each group of the
    layout, whether the block is marked, one entry a block; what is left out is not. It is None for
    a group whose blocks the tier takes over in another way, and for one that opts out.
    """

    def stored(self, start: int, end: int) -> Sequence[Sequence[bool] | None]:
        """What is stored of a step that fills the tokens from ``start`` to ``end``: its blocks."""

    def asked_for(self, length: int) -> Sequence[Sequence[bool] | None]:
        """What a lookup asks for, for a request of ``length`` tokens."""

    def loaded(self, hit: int) -> Sequence[Sequence[bool] | None]:
        """What is loaded of a ``hit``, where nothing is local."""


@dataclass(frozen=True)
class Load:
    """What was loaded for a request that is admitted.

    Attributes:
        local: how many of its tokens the prefix cache has.
        hit: how many tokens are not computed, with those; the last one always is.
        blocks: for each group of the layout, the request's blocks that now have their content from
            the tier, in the group's own blocks.
    """

    local: int
    hit: int
    blocks: Sequence[Set[int]]


class TierPlays(Protocol):
    """Requests with the same tokens that a scheduler with a tier serves one after another.

    All begin with tokens of the longest one, and have one of their own after it; with several MTP
    modules, which compute the end of a prompt in one step, as many as there are modules.
    """

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        """Which chunks of each group are stored of a request when it has ended.

        Its steps end after ``ends`` tokens, and with its prompt. The tier is empty before, and
        so is the prefix cache. None stands for a group that opts out.
        """

    def loaded(self, local: int, length: int) -> Load | None:
        """What is loaded for a request of ``length`` tokens and those of its own.

        The longest one was stored, block by block. The prefix cache has what a request of
        ``local`` tokens leaves there. None where nothing is loaded.
        """


class TierSubject(HorizonSubject, Protocol):
    """Has a tier. Raises `Predates` where the release has none, or lacks what is asked for."""

    def tier_lookup(self, layout: Layout, local: int = 0) -> Lookup:
        """The lookup over what is stored, past a local hit of ``local`` tokens.

        Its pool is what the tier stores, which is in chunks where the layout says so. What its
        answers have for tables is not judged.
        """

    def tier_masks(self, layout: Layout) -> TierMasks:
        """What is stored, asked for and loaded under dense retention."""

    def tier_plays(self, layout: Layout, num_tokens: int) -> TierPlays:
        """Requests of at most ``num_tokens`` tokens, where the layout has chunks."""

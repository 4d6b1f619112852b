"""Tiers of a subject: a second store of blocks behind a KV connector."""

from collections.abc import Sequence
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


class TierSubject(HorizonSubject, Protocol):
    """Has a tier. Raises `Predates` where the release has none, or lacks what is asked for."""

    def tier_lookup(self, layout: Layout) -> Lookup:
        """The lookup over what is stored; no block is local.

        Its pool is what the tier stores. What its answers have for tables is not judged.
        """

    def tier_masks(self, layout: Layout) -> TierMasks:
        """What is stored, asked for and loaded under dense retention."""

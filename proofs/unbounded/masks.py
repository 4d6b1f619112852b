"""What holds of every mask, dense or sparse, whatever part of a request it is about."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

from hitproof.proofs.unbounded.loops import Shapes
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Listing, is_truth
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.mask import in_mask
from hitproof.spec.retention import in_retained_mask
from hitproof.spec.terms import Blocks, Formula, Term, Tokens


class Retention(StrEnum):
    """Which hits are promised: any, the latest of one request, or also one in each interval."""

    DENSE = "dense"
    LATEST = "latest"
    INTERVAL = "interval"


def is_due(
    shape: BlockGeometry, block: Blocks, retention: Retention, boundary: Blocks, interval: Blocks
) -> Formula:
    """Whether a block is kept; for sparse retention by the boundary that is promised."""
    if retention is Retention.DENSE:
        return in_mask(shape, block)
    between = interval if retention is Retention.INTERVAL else None
    return in_retained_mask(shape, block, (boundary,), between)


class AnyMask:
    """The mask of any blocks of a request, for a group of any sizes.

    With ``whole`` they end on a boundary; without ``late`` they start at the first block.

    Attributes:
        here: the arithmetic.
        promised: tokens of the request whose last boundary is promised, under sparse retention.
        interval: the retention interval in tokens; None for dense retention.
        shape: the group in blocks.
        boundary: the boundary that is promised, under sparse retention.
        siblings: the same with the boundaries that are promised to anybody.
        block: any block that the mask is about.
        due: whether that block is to be kept.
        sizes: the unknowns, by name.
    """

    def __init__(
        self,
        here: Arithmetic,
        kind: GroupKind,
        eagle: bool,
        retention: Retention,
        *,
        whole: bool = False,
        late: bool = True,
    ) -> None:
        self.here = here
        window = kind is GroupKind.SLIDING_WINDOW
        chunked = kind is GroupKind.CHUNKED_LOCAL
        self.block_size: Term = here.atom("block_size", 1)
        self.segment: Term = 1 if chunked else here.atom("segment", 1)
        self.alignment: Term = self.segment * self.block_size
        self.window: Any = here.atom("window", 1) if window else None
        self.chunk: Any = here.atom("chunk_blocks", 1) * self.block_size if chunked else None
        self.start: Term = here.atom("start", 0) if late else 0
        to_boundary = here.atom("boundaries", 0) * self.segment - self.start if whole else None
        self.length: Term = here.atom("length", 0) if to_boundary is None else to_boundary
        of_symbols: Any = (kind, self.block_size, self.window, eagle, self.chunk)
        self.shape = geometry(Group(*of_symbols), self.alignment)
        self.block: Term = self.start + here.position
        self.promised: Tokens = here.atom("promised", 0)
        self.boundary: Term = self.promised // self.alignment * self.segment
        apart = here.atom("segments_apart", 1) * self.segment
        of_retention = {
            Retention.DENSE: None,
            Retention.LATEST: 0,
            Retention.INTERVAL: apart * self.block_size,
        }
        self.interval: Any = of_retention[retention]
        sparse = retention is Retention.INTERVAL
        self.siblings = replace(self.shape, segment=apart) if sparse else self.shape
        self.due: Formula = is_due(self.shape, self.block, retention, self.boundary, apart)
        latest = is_due(self.shape, self.block, Retention.LATEST, self.boundary, apart)
        self._facts = self.due, latest, in_mask(self.siblings, self.block)
        named = {
            "block_size": self.block_size,
            "alignment": self.alignment,
            "window": self.window,
            "chunk": self.chunk,
            "start": self.start,
            "length": self.length,
            "promised": None if retention is Retention.DENSE else self.promised,
            "interval": self.interval,
        }
        self.sizes = {name: size for name, size in named.items() if size is not None}

    @property
    def end(self) -> Term:
        """Where the blocks end."""
        return self.start + self.length

    @property
    def premises(self) -> tuple[Formula, ...]:
        """The position is one of the mask."""
        return 0 <= self.here.position, self.here.position < self.length

    @property
    def shapes(self) -> Shapes:
        """What invariants of a mask speak of."""
        facts = {getattr(each, "key", each): each for each in (self.due, *self._facts)}
        return Shapes(numbers=(self.end,), facts=tuple(facts.values()), origin=self.start)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """It has exactly the blocks that some boundary needs; None has all."""
        if result is None:
            kept: Any = True
        elif isinstance(result, Listing):
            yield "the mask is as long as asked for", lambda: result.size() == self.length
            kept = result.cell if result.items is None else None
        if not is_truth(kept):
            raise Unsupported(f"a mask that is {result!r:.60}")
        here = self.here
        yield "every reachable block is kept", lambda: here.implies(self.due, kept)
        yield "only reachable blocks are kept", lambda: here.implies(kept, self.due)

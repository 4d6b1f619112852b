"""What holds of every lookup of one group, whatever it is called with and whatever is cached."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hitproof.proofs.unbounded.loops import Shapes
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic, One
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Contract,
    Items,
    Key,
    Listing,
    Unknown,
    is_number,
)
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.hits import in_required_run, valid_hit
from hitproof.spec.terms import Formula, Term

_CACHED = "cached"


@dataclass
class AnyLookup:
    """A lookup of any sizes and of any cache, with one group.

    The unknowns: tokens in a block, blocks in a segment, the window or the blocks in a chunk, and
    the most tokens that it may serve. All lookups in which something is cached for a request of
    that many tokens are meant.

    Attributes:
        here: the arithmetic.
        kind: how the group's layers attend.
        eagle: whether a block is dropped.
    """

    here: Arithmetic
    kind: GroupKind
    eagle: bool
    sizes: dict[str, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        here, kind = self.here, self.kind
        chunked, window = kind is GroupKind.CHUNKED_LOCAL, kind is GroupKind.SLIDING_WINDOW
        self.block_size: Term = here.atom("block_size", 1)
        self.segment: Term = 1 if chunked else here.atom("segment", 1)
        self.max_length: Term = here.atom("max_length", 0)
        self.window: Any = here.atom("window", 1) if window else None
        self.chunk: Any = here.atom("chunk_blocks", 1) * self.block_size if chunked else None
        self.alignment: Term = self.segment * self.block_size
        self.num_hashes: Term = here.atom("num_hashes", 0)
        named = {
            "block_size": self.block_size,
            "alignment": self.alignment,
            "max_length": self.max_length,
            "window": self.window,
            "chunk": self.chunk,
        }
        self.sizes = {name: size for name, size in named.items() if size is not None}
        of_symbols: Any = (kind, self.block_size, self.window, self.eagle, self.chunk)
        self.group = Group(*of_symbols)
        self.shape: BlockGeometry = geometry(self.group, self.alignment)
        # Any other hit, which must not be valid if it is longer than the one that is returned.
        self.other: Term = here.atom("other_segments", 1) * self.segment
        self._is_cached = self._cached(0, here.position)
        self.other_is_valid = self._valid(self.other * self.block_size)

    def _cached(self, group: Term, block: Term) -> Formula:
        del group
        return self.here.holds_at(_CACHED, block)

    def _valid(self, length: Term) -> Formula:
        return valid_hit(
            One(self.here, self.group),  # type: ignore[arg-type]
            self.alignment,
            length,
            self.max_length,
            self.max_length,
            self._cached,
        )

    @property
    def premises(self) -> tuple[Formula, ...]:
        """There is a hash of each block that the lookup may serve."""
        return (self.max_length // self.block_size <= self.num_hashes,)

    @property
    def hashes(self) -> Items:
        """The hashes of the request, one for each block."""
        return Items(self.num_hashes, Key, list)

    def get_cached_block(self) -> Contract:
        """The block pool's lookup of one block: one block for each group id, or None."""

        def get(machine: Machine, block_hash: Any, kv_cache_group_ids: Any) -> Listing | None:
            ids = kv_cache_group_ids
            if not isinstance(block_hash, Key) or not isinstance(ids, Listing) or ids.items != [0]:
                raise Unsupported("a question to the block pool that is not about a block")
            if not machine.decide(self._cached(0, block_hash.place)):
                return None
            return machine.new_list([Block(block_hash.place)])

        return Contract(get)

    @property
    def shapes(self) -> Shapes:
        """What invariants of a lookup speak of."""
        shape = self.shape
        end = self.other + shape.lookahead
        return Shapes(
            numbers=(shape.tail + shape.lookahead, self.max_length // self.block_size),
            facts=(self._is_cached,),
            suppositions=((self.other_is_valid, end),),
            steps=((shape.lookahead, self.segment),),
        )

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """The hit is valid, none is longer, and its table has the blocks that attention reads."""
        match result:
            case ((Listing() as table,), length) if is_number(length):
                pass
            case (Listing() as table,):
                length = table.size() * self.block_size
            case _:
                raise Unsupported(f"a lookup that returns {result!r:.60}")
        yield "the hit is valid", lambda: self._valid(self._unnumbered(length))
        yield (
            "no longer hit is valid",
            lambda: self.here.implies(self.other_is_valid, self.other * self.block_size <= length),
        )
        yield (
            "the block table has the length of the hit",
            lambda: table.size() * self.block_size == length,
        )
        yield "the block table has the blocks of the hit", lambda: self._has_blocks(table, length)

    def _unnumbered(self, length: Term) -> Term:
        """The length, so that it is no known number of blocks: what holds of each is one symbol."""
        size = self.block_size
        return self.here.named(length // size) * size + length % size

    def _has_blocks(self, table: Listing, length: Term) -> Formula:
        at = self.here.position
        boundary = length // self.block_size
        required = in_required_run(self.shape, at, boundary)

        def is_right(item: Any) -> Formula:
            if isinstance(item, Unknown):
                return False
            if not isinstance(item, Block):
                raise Unsupported(f"{item!r:.60} in a block table")
            is_null = item.place == NULL.place
            return (item.place == at) | (is_null & self.here.not_(required))

        if table.items is None:
            inside = (0 <= at) & (at < table.length)
            return self.here.implies(inside, is_right(table.cell))
        holds: Formula = True
        for place, item in enumerate(table.items):
            holds = holds & self.here.implies(at == place, is_right(item))
        return holds

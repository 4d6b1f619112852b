"""What holds of every lookup of one group, whatever it is called with and whatever is cached."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hitproof.proofs.unbounded.loops import Shapes
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic, Few
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Contract,
    Items,
    Key,
    Listing,
    Unknown,
    is_number,
    is_same,
)
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.hits import in_required_run, valid_boundary, valid_hit
from hitproof.spec.terms import Formula, Term

CACHED = "cached"


@dataclass(frozen=True)
class GroupHit:
    """What the lookup of one group returns: it is proved of managers, and coordinators rest on it.

    Attributes:
        here: the arithmetic.
        group: the group; with ``eagle``, a block is dropped.
        alignment: where hits may end, in tokens.
        other: any other hit, in tokens, that must not be valid if it is longer.
        number: the group's place among others.
        spared: whether that hit is outside of known divergences.
        needed: how many blocks past a hit have to be cached for it to be served, where that is
            known to be other than what the spec says.
    """

    here: Arithmetic
    group: Group
    alignment: Term
    other: Term
    number: int = 0
    spared: Formula = True
    needed: Callable[[BlockGeometry, Term], Term] | None = None

    def lookahead(self, boundary: Term) -> Term:
        """How many blocks past a hit have to be cached for it to be served."""
        return self.needed(self.shape, boundary) if self.needed else self.shape.lookahead

    @property
    def shape(self) -> BlockGeometry:
        """The group in blocks."""
        return geometry(self.group, self.alignment)

    def cached(self, block: Term) -> Formula:
        """Whether a block of the group is cached."""
        return self.here.holds_at(f"{CACHED}{self.number or ''}", block)

    def valid(self, length: Term, cap: Term, horizon: Term) -> Formula:
        """Whether a hit of ``length`` tokens is valid, for the group alone."""
        return valid_hit(
            Few(self.here, self.group),  # type: ignore[arg-type]
            self.alignment,
            length,
            cap,
            horizon,
            lambda _, block: self.cached(block),
            self._serves,
        )

    def _serves(self, shape: BlockGeometry, boundary: Term, *reach_and_cached: Any) -> Formula:
        shape = replace(shape, lookahead=self.lookahead(boundary))
        return valid_boundary(shape, boundary, *reach_and_cached)

    def conclusions(self, table: Listing, length: Term, most: Term) -> Iterator[Conclusion]:
        """What holds of a lookup of at most ``most`` tokens.

        The hit is valid, none is longer, and its table has the blocks that attention reads.
        """
        other = self.valid(self.other, most, most) & self.spared
        size = self.group.block_size
        # A length that is no known number of blocks: what holds of each is one symbol.
        unnumbered = self.here.named(length // size) * size + length % size
        yield "the hit is valid", lambda: self.valid(unnumbered, most, most)
        yield "no longer hit is valid", lambda: self.here.implies(other, self.other <= length)
        if self.needed:
            needed = self.lookahead(self.other // size)
            yield "what is served is valid", lambda: needed >= self.shape.lookahead
        yield from self.tables(table, length)

    def tables(self, table: Listing, length: Term) -> Iterator[Conclusion]:
        """The table has the blocks of the hit."""
        size = self.group.block_size
        yield "the block table has the length of the hit", lambda: table.size() * size == length
        yield "the block table has the blocks of the hit", lambda: self.has_blocks(table, length)

    def has_blocks(self, table: Listing, length: Term) -> Formula:
        """Whether the table has the block at the position, or null where none is read."""
        at = self.here.position
        required = in_required_run(self.shape, at, length // self.group.block_size)

        def is_right(item: Any) -> Formula:
            if isinstance(item, Unknown):
                return False
            if not isinstance(item, Block):
                raise Unsupported(f"{item!r:.60} in a block table")
            is_null = item.place == NULL.place
            in_place = (item.place == at) if item.group == self.number else False
            return in_place | (is_null & self.here.not_(required))

        if table.items is None:
            inside = (0 <= at) & (at < table.length)
            return self.here.implies(inside, is_right(table.cell))
        holds: Formula = True
        for place, item in enumerate(table.items):
            holds = holds & self.here.implies(at == place, is_right(item))
        return holds


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
        needed: see `GroupHit`.
    """

    here: Arithmetic
    kind: GroupKind
    eagle: bool
    needed: Callable[[BlockGeometry, Term], Term] | None = None
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
        self.hash_block_size: Term = here.atom("hash_block_size", 1)
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
        # Any other hit, which must not be valid if it is longer than the one that is returned.
        self.other: Term = here.atom("other_segments", 1) * self.segment
        other = self.other * self.block_size
        self.hit = GroupHit(here, self.group, self.alignment, other, needed=self.needed)
        self._is_cached = self.hit.cached(here.position)
        self._other_is_valid = self.hit.valid(self.hit.other, self.max_length, self.max_length)

    @property
    def shape(self) -> BlockGeometry:
        """The group in blocks."""
        return self.hit.shape

    @property
    def premises(self) -> tuple[Formula, ...]:
        """There is a hash of each block that the lookup may serve."""
        return (self.max_length // self.block_size <= self.num_hashes,)

    @cached_property
    def hashes(self) -> Items:
        """The hashes of the request, one for each block."""
        return Items(self.num_hashes, Key, list)

    @cached_property
    def finer_hashes(self) -> Items:
        """The same, one for each ``hash_block_size`` tokens; they are not asked for."""

        def at(_place: Term) -> Any:
            raise Unsupported("a hash of a part of a block")

        return Items(self.here.atom("num_finer_hashes", 0), at, list)

    def resolve(self) -> Contract:
        """The hashes of a group's blocks, as is proved of `AnyHashes`."""

        def find(
            _machine: Machine,
            block_hashes: Any,
            hash_block_size: Any,
            block_size: Any,
            alignment_tokens: Any = None,
            **_granularity: Any,
        ) -> Items:
            sizes = (hash_block_size, self.hash_block_size), (block_size, self.block_size)
            aligned = alignment_tokens is None or is_same(alignment_tokens, self.alignment)
            if block_hashes is self.finer_hashes and aligned and all(is_same(*s) for s in sizes):
                return self.hashes
            raise Unsupported("hashes of other blocks")

        return Contract(find)

    def get_cached_block(self) -> Contract:
        """The block pool's lookup of one block: one block for each group id, or None."""

        def get(machine: Machine, block_hash: Any, kv_cache_group_ids: Any) -> Listing | None:
            ids = kv_cache_group_ids
            if not isinstance(block_hash, Key) or not isinstance(ids, Listing) or ids.items != [0]:
                raise Unsupported("a question to the block pool that is not about a block")
            if not machine.decide(self.hit.cached(block_hash.place)):
                return None
            return machine.new_list([Block(block_hash.place)])

        return Contract(get)

    @property
    def shapes(self) -> Shapes:
        """What invariants of a lookup speak of."""
        shape = self.shape
        ends = [self.other + self.hit.lookahead(self.other)]
        if self.needed:  # more than one block before the end of what is asked for
            ends.append(self.other)
        return Shapes(
            numbers=(shape.tail + shape.lookahead, self.max_length // self.block_size),
            facts=(self._is_cached,),
            suppositions=tuple((self._other_is_valid, each) for each in ends),
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
        yield from self.hit.conclusions(table, length, self.max_length)


class AnyHashes:
    """The hashes of any request, and those of the blocks of a group of any size."""

    def __init__(self, here: Arithmetic) -> None:
        self.here = here
        self.hash_block_size: Term = here.atom("hash_block_size", 1)
        self._times: Term = here.atom("times", 1)
        self.block_size: Term = self._times * self.hash_block_size
        self.alignment: Term = here.atom("segment", 1) * self.block_size
        self.num_hashes: Term = here.atom("num_hashes", 0)
        self.hashes = Items(self.num_hashes, Key, list)
        self.place: Term = here.atom("place", 0)
        self.premises: tuple[Formula, ...] = (self.place < self.num_hashes // self._times,)
        self.sizes = {
            "hash_block_size": self.hash_block_size,
            "times": self._times,
            "num_hashes": self.num_hashes,
            "place": self.place,
        }

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """There is one of each whole block: that of the block's last tokens."""
        match result:
            case (length, Key(place)) if is_number(length):
                pass
            case _:
                raise Unsupported(f"hashes that are {result!r:.60}")
        yield (
            "there is a hash of each whole block",
            lambda: length == self.num_hashes // self._times,
        )
        last = (self.place + 1) * self._times - 1
        yield "the hash of a block is that of its last tokens", lambda: place == last

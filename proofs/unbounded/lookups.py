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
from hitproof.spec.terms import Formula, Term, is_multiple

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
        size = table.size()
        yield "the block table has the length of the hit", lambda: self.is_long(size, length)
        yield "the block table has the blocks of the hit", lambda: self.has_blocks(table, length)

    def blocks(self, length: Term) -> Term:
        """How many blocks a hit has."""
        return length // self.group.block_size

    def is_long(self, size: Term, length: Term) -> Formula:
        """Whether a hit has exactly this number of blocks."""
        same: Formula = size * self.group.block_size == length
        return same

    def is_long_enough(self, size: Term, length: Term) -> Formula:
        """Whether a hit has at most this number of blocks."""
        enough: Formula = size * self.group.block_size >= length
        return enough

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


@dataclass(frozen=True)
class InsideHit(GroupHit):
    """The same of hits that may end inside blocks, for a group whose blocks are hash units.

    What is cached are the hash units that are held (`spec.releases.fine`). The place of a block is
    that of the entry which it was found by.

    Attributes:
        units: hash units in a real block.
    """

    units: Term = 1

    @property
    def _size(self) -> Term:
        return self.units * self.group.block_size

    def blocks(self, length: Term) -> Term:
        """How many real blocks a hit has, the last of them perhaps in part."""
        return self.here.ceil_div(length, self._size)

    def is_long(self, size: Term, length: Term) -> Formula:
        """Whether a hit has exactly this number of real blocks."""
        same: Formula = size == self.blocks(length)
        return same

    def is_long_enough(self, size: Term, length: Term) -> Formula:
        """Whether a hit has at most this number of real blocks."""
        enough: Formula = size >= self.blocks(length)
        return enough

    def has_blocks(self, table: Listing, length: Term) -> Formula:
        """Whether the table has, at the position, the block of an entry that backs the hit."""
        states = self.group.kind is GroupKind.MAMBA
        hit = length // self.group.block_size
        return _are_entered(self.here, table, hit, self.units, states, self.number)


def _are_entered(
    here: Arithmetic, table: Listing, hit: Term, units: Term, states: bool, number: int = 0
) -> Formula:
    """Whether a table has, at the position, the block of an entry that backs a hit.

    That is, for a hit of that many hash units, the entry at the end of the block, and in the last
    block one at or past the end of the hit; of states, only the one at the end of the hit.
    """

    def is_right(item: Any, place: Term) -> Formula:
        if not isinstance(item, Block):
            return False
        end = (place + 1) * units - 1
        own = item.group == number
        if states:
            is_last = hit <= end + 1
            is_state = (item.place == hit - 1) if own else False
            return (is_last & is_state) | (here.not_(is_last) & (item.place == NULL.place))
        whole, backs = item.place == end, (hit - 1 <= item.place) & (item.place <= end)
        return (whole | backs) if own else False

    if table.items is None:
        at = here.position
        return here.implies((0 <= at) & (at < table.length), is_right(table.cell, at))
    holds: Formula = True
    for place, item in enumerate(table.items):
        holds = holds & is_right(item, place)
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
        """The values that invariants of a lookup may use."""
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


class AnyInsideLookup:
    """A lookup of hits that may end inside blocks, of any sizes and any entries, with one group.

    The unknowns: tokens in a hash unit, hash units in a block, and the most tokens that may be
    served. What is served is told by its *last entry*, which is the one that ends with the last
    hash unit that is required. That a hit is valid if each block that ends before that has an
    entry at its end, and there is this one, is `entry_holds_its_unit` of `proofs.fine`. What any
    other valid hit needs is `held_unit_has_an_entry`: the same of all blocks before the one that
    holds its last required unit, and in that block some entry at or past the unit, for Mamba the
    one at it. That is said of an unknown hit, which must not be longer.

    Attributes:
        here: the arithmetic.
        kind: full attention or Mamba.
        eagle: whether a hash unit is dropped.
    """

    def __init__(self, here: Arithmetic, kind: GroupKind, eagle: bool) -> None:
        self.here, self._states = here, kind is GroupKind.MAMBA
        self.unit: Term = here.atom("hash_block_size", 1)
        self.units: Term = here.atom("units", 2)
        self.block_size: Term = self.units * self.unit
        self.max_length: Term = here.atom("max_length", 0)
        self.most: Term = self.max_length // self.unit
        num_hashes = here.atom("num_hashes", 0)
        self.hashes = Items(num_hashes, Key, list)
        self.ahead: Term = 1 if eagle and not self._states else 0
        self.is_other = here.flag("another hit is valid")
        self.entry: Term = here.atom("entry", 0)
        self.before: Term = 0 if self._states else here.atom("before", 0)
        self.required: Term = self.entry
        if not self._states:
            self.required = self.before * self.units + here.atom("within", 0)
        self.premises: tuple[Formula, ...] = (self.most <= num_hashes, *self._needs())
        self.sizes = {
            "block_size": self.block_size,
            "hash_block_size": self.unit,
            "max_length": self.max_length,
        }

    def _needs(self) -> Iterator[Formula]:
        """What the other hit needs, beside entries: where its last one is."""
        end = (self.before + 1) * self.units
        if not self._states:
            yield self.here.atom("within", 0) < self.units
            yield (self.required <= self.entry) & (self.entry < end)
        yield self.here.implies(self.is_other, (self.entry < self.most) & self._entered(self.entry))
        yield self.here.implies(self.is_other, self.required + 1 <= self.most)

    def _entered(self, entry: Term) -> Formula:
        return self.here.holds_at(CACHED, entry)

    def _end(self, block: Term) -> Term:
        """The last hash unit of a block."""
        return (block + 1) * self.units - 1

    def of_blocks(self) -> Contract:
        """The hashes of whole blocks, as is proved of `AnyHashes`."""

        def made(_machine: Machine, hashes: Any, unit: Any, size: Any) -> Items:
            if (
                hashes is self.hashes
                and is_same(unit, self.unit)
                and is_same(size, self.block_size)
            ):
                at = lambda block: Key(self._end(block))  # noqa: E731
                return Items(self.hashes.length // self.units, at, list)
            raise Unsupported("hashes of other blocks")

        return Contract(made)

    def get_cached_block(self) -> Contract:
        """The block pool's lookup of one entry."""

        def get(machine: Machine, block_hash: Any, kv_cache_group_ids: Any) -> Listing | None:
            ids = kv_cache_group_ids
            if not isinstance(block_hash, Key) or not isinstance(ids, Listing) or ids.items != [0]:
                raise Unsupported("a question to the block pool that is not about a block")
            here, entry = self.here, block_hash.place
            entered = self._entered(entry)
            is_last = entry == self.entry
            machine.path.suppose(here.implies(self.is_other & is_last, entered))
            if not self._states and is_same((entry + 1) // self.units * self.units, entry + 1):
                before = (entry + 1) // self.units <= self.before
                machine.path.suppose(here.implies(self.is_other & before, entered))
            if not machine.decide(entered):
                return None
            return machine.new_list([Block(entry)])

        return Contract(get)

    @property
    def shapes(self) -> Shapes:
        """The values that invariants of a lookup may use."""
        at = self._end(self.here.position)
        return Shapes(
            numbers=(self.most,),
            facts=() if self._states else (self._entered(at),),
            block=None if self._states else at,
            suppositions=((self.is_other, self.entry), (self.is_other, self.before)),
        )

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """The hit is valid, none is longer, and its table has blocks that hold what is read."""
        match result:
            case ((Listing() as table,), length) if is_number(length):
                pass
            case _:
                raise Unsupported(f"a lookup that returns {result!r:.60}")
        here, at = self.here, self.here.position
        hit = length // self.unit
        some, end = hit >= 1, hit + self.ahead
        other = self.required + 1 - self.ahead
        yield "the hit ends on a hash unit", lambda: hit * self.unit == length
        yield "the hit is not longer than it may be", lambda: here.implies(some, end <= self.most)
        last = some
        if not self._states:  # which has an entry of each block that ends no later
            last = some & here.not_(is_multiple(end, self.units))
            inside = (0 <= at) & (self._end(at) < end)
            yield (
                "there is an entry of each block before the end of what is required",
                lambda: here.implies(some & inside, self._entered(self._end(at))),
            )
        yield (
            "there is an entry at the end of what is required",
            lambda: here.implies(last, self._entered(end - 1)),
        )
        yield "no longer hit is valid", lambda: here.implies(self.is_other, other <= hit)
        size = table.size()
        yield (
            "the block table ends with the hit",
            lambda: (hit <= size * self.units) & (size * self.units < hit + self.units),
        )
        yield (
            "the block table has the blocks of the hit",
            lambda: _are_entered(here, table, hit, self.units, self._states),
        )


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

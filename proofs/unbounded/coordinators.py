"""What holds of every lookup over groups of any sizes, provided that the groups' own are right.

The groups' lookups are not executed: each returns anything that `lookups.GroupHit` says of it,
which is what is proved of every kind.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hitproof.proofs.unbounded.knowledge import Knowledge
from hitproof.proofs.unbounded.lookups import CACHED, GroupHit, InsideHit
from hitproof.proofs.unbounded.loops import Family, Place, Shapes, Values
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic, Number, terms_of
from hitproof.proofs.unbounded.values import (
    Block,
    Contract,
    Items,
    Key,
    Listing,
    Unknown,
    is_number,
    is_same,
    is_truth,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import has_required_run, in_required_run, within_reach
from hitproof.spec.releases.fine import FINE_KINDS
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.terms import Formula, Term

Spared = Callable[[GroupHit], Formula]
"""Whether the other hit of a group is outside of known divergences."""


@dataclass(frozen=True)
class Asked:
    """A call of a group's lookup, as far as it is not the same in every call.

    Attributes:
        most: how many tokens it may serve.
        drops: whether it drops a block for EAGLE.
        alignment: where hits may end.
        gives_length: whether it returns the length beside the tables.
    """

    most: Term
    drops: bool
    alignment: Term
    gives_length: bool


class AnyCoordinator:
    """A lookup over groups of these kinds, of any sizes, for any request and any cache.

    A length that is a whole number of alignments is a product of an unknown with the alignment,
    and of each group one with its own block size; that these are equal is known of each unknown.

    With ``inside`` hits may end inside blocks: on hash units, as if blocks were these. The blocks
    of the groups ``of_hashes``, which are all but the first, have one hash each.

    Attributes:
        here: the arithmetic.
        groups: what each group's lookup returns, in the order of the engine.
        alignment: where common hits may end, in tokens.
        hash_block_size: tokens that a hash covers.
        cap: the most tokens that a hit may have.
        hashes: the request's hashes.
        sizes: the unknowns, by name.
        premises: what is taken for granted.
    """

    def __init__(
        self,
        here: Arithmetic,
        kinds: Sequence[tuple[GroupKind, bool]],
        policy: LookaheadHorizon,
        spared: Spared,
        inside: bool = False,
        of_hashes: frozenset[int] = frozenset(),
    ) -> None:
        self.here, self._spared = here, spared
        self._inside, self._of_hashes = inside, of_hashes
        self._told: set[str] = set()
        alone = len(kinds) == 1
        # Where a block of the first group need not be one, it is a product: one unknown less.
        whole = alone or inside or kinds[0][0] is GroupKind.CHUNKED_LOCAL
        self._aligned: list[Number] = []
        self.alignment: Term = (
            here.atom("hash_block_size" if inside else "alignment", 1)
            if whole
            else (1 if of_hashes else here.atom("segments_0", 1)) * here.atom("block_size_0", 1)
        )
        self.hash_block_size: Term = (
            self.alignment if alone or inside else here.atom("hash_block_size", 1)
        )
        self.cap: Term = here.atom("cap", 0)
        num_hashes, num_tokens = here.atom("num_hashes", 0), self.cap + 1
        self.hashes = Items(num_hashes, Key, list)
        self._hashed: Term = num_hashes * self.hash_block_size
        self.horizon = horizon(LookaheadHorizon.CAPPED if alone else policy, num_tokens)
        self.sizes: dict[str, Term] = {"num_tokens": num_tokens}
        if not inside:
            self.sizes["alignment"] = self.alignment
        self.sizes["hash_block_size"] = self.hash_block_size
        rest = num_tokens - self._hashed
        self.premises: list[Formula] = [rest >= 0, rest < self.hash_block_size]
        _check_hashes_are_enough()
        self._other = here.atom("other_hit", 1)
        here.holds_at(CACHED, here.position)  # what is told of each block is told of this one
        self.groups = tuple(self._group(number, *each) for number, each in enumerate(kinds))
        self.other = self.alignments(self._other)
        other_is_valid: Formula = True
        for hit in self.groups:
            other_is_valid = other_is_valid & hit.valid(hit.other, self.cap, self.horizon)
            other_is_valid = other_is_valid & hit.spared
            if hit.group.eagle:
                self.premises.append(self._is_valid_without(hit))
        self.other_is_valid = other_is_valid

    def _group(self, number: int, kind: GroupKind, eagle: bool) -> GroupHit:
        here = self.here
        # A coordinator of one group, and the lookup of chunks, assert that the sizes are equal.
        only = self.hash_block_size is self.alignment or kind is GroupKind.CHUNKED_LOCAL
        size: Term = self.alignment if only else here.atom(f"block_size_{number}", 1)
        if number in self._of_hashes:
            size = self.hash_block_size
        is_alignment = only or bool(self._of_hashes and number not in self._of_hashes)
        aligned: Term = size if is_alignment else here.atom(f"segments_{number}", 1) * size
        hashes = 1 if size is self.hash_block_size else here.atom(f"hashes_in_block_{number}", 1)
        last = self.cap + 1
        self.premises += [
            self._is_alignment(aligned),
            size == hashes * self.hash_block_size,
            last // size == self._hashed // size,  # see _check_hashes_are_enough
        ]
        sizes = {"block_size": size}
        if kind is GroupKind.SLIDING_WINDOW:
            sizes["window"] = here.atom(f"window_{number}", 2)
        if kind is GroupKind.CHUNKED_LOCAL:
            sizes["chunk"] = here.atom(f"chunk_blocks_{number}", 1) * size
        of_symbols: Any = dict(sizes)
        group = Group(kind, eagle=eagle, **of_symbols)
        hit = GroupHit(here, group, aligned, self._other * aligned, number)
        if self._inside and kind in FINE_KINDS:
            units = here.atom(f"units_{number}", 2 if kind is GroupKind.MAMBA else 1)
            hit = InsideHit(here, group, aligned, hit.other, number, units=units)
            sizes["block_size"] = units * size
        self.sizes |= {f"{name}_{number}": each for name, each in sizes.items()}
        return replace(hit, spared=self._spared(hit))

    def _is_alignment(self, aligned: Term) -> Formula:
        """Whether a number is the alignment, which is known from now on."""
        for each in self._aligned:
            self.here.equal_products(aligned, each)
        self._aligned.append(aligned)
        return self.alignment == aligned

    def _is_valid_without(self, hit: GroupHit) -> Formula:
        """What is valid is so without a lookahead block, too: a lemma, proved here."""
        here, boundary = self.here, hit.other // hit.group.block_size
        plain = _plain(hit)
        with_it = has_required_run(hit.shape, boundary, hit.cached)
        known = Knowledge(here)
        known.add(with_it)
        if known.fails(lambda: has_required_run(plain.shape, boundary, hit.cached)) is not None:
            raise AssertionError("a lookahead block is needed to be valid without one")
        return here.implies(with_it, has_required_run(plain.shape, boundary, hit.cached))

    def alignments(self, number: Term) -> Term:
        """``number`` alignments, in tokens."""
        length = number * self.alignment
        if repr(number) not in self._told:
            self._told.add(repr(number))
            names = [name for monomial in terms_of(number) for name in monomial]
            for hit in self.groups:
                self.here.fact(length == number * hit.alignment, names)
        return length

    def lookup(self, number: int, read: Callable[..., Asked]) -> Contract:
        """A group's lookup, by what is proved of it; ``read`` tells what it is called with."""

        def find(machine: Machine, *arguments: Any, **named: Any) -> Any:
            asked = read(machine, number, *arguments, **named)
            if not is_same(asked.alignment, self.alignment):
                raise Unsupported("a lookup of hits that end elsewhere than on alignments")
            hit = self.groups[number]
            if asked.drops is not hit.group.eagle:
                hit = replace(hit, group=replace(hit.group, eagle=asked.drops), spared=True)
                hit = replace(hit, spared=self._spared(hit))
            most, size = asked.most, hit.group.block_size
            machine.path.require(
                "each group's lookup has hashes of what it may serve",
                (most >= 0) & (most // size <= self._hashed // size),
            )
            if self._inside and hit.group.kind is GroupKind.FULL_ATTENTION:
                reach = self.horizon if hit.group.eagle else self.cap
                machine.path.require(
                    "full attention is asked for entries as far as there may be some",
                    most // size == reach // size,
                )
            of_call = machine.tick()
            count = self.here.atom(f"hit_{number}@{of_call}", 0)
            place = self.here.atom(f"block_{number}@{of_call}", -1)
            length: Term = count * hit.alignment
            table = Listing(None, hit.blocks(length), Block(place, number), born=of_call)
            for _, conclusion in hit.conclusions(table, length, most):
                machine.path.suppose(conclusion())
            tables, in_tokens = (table,), self.alignments(count)
            return (tables, in_tokens) if asked.gives_length else tables

        return Contract(find)

    @property
    def shapes(self) -> Shapes:
        """What invariants of its loops speak of: hits so far, and what is known of them."""
        of_blocks = [hit.alignment // hit.group.block_size for hit in self.groups]
        units = [((each,), each.__mul__) for each in of_blocks if isinstance(each, Number)]
        aligned = self.alignment, *(hit.alignment for hit in self.groups)
        return Shapes(units=((aligned, self.alignments), *units), own=self._candidates)

    def _candidates(self, values: Values) -> Iterator[Family]:
        """A number is a hit of some group, or of all so far, and a table is its own."""
        numbers = [
            place
            for place, value in values.items()
            if is_number(value) and place[-1] != "length" and not self._is_given(value)
        ]
        for place in numbers:
            for holds in self._of_hits():
                yield [partial(_told, (place,), holds)]
            for other in numbers:
                if other != place:
                    yield [partial(_told, (place, other), operator.le)]
            for flag in (p for p, v in values.items() if is_truth(v)):
                for hit in self.groups:
                    if hit.group.eagle:
                        yield [partial(_told, (flag, place), partial(self._is_dropped, hit))]
        for cell, block in values.items():
            length = (*cell[:-1], "length")
            if isinstance(block, Block) and length in values:
                hit = self.groups[block.group]
                if not self._inside:
                    yield [partial(_told, (length, cell), partial(self._is_right, hit))]
                for place in numbers:
                    sizes = (self._is_long, self._is_long_enough)
                    yield [partial(_told, (length, place), partial(each, hit)) for each in sizes]
                    if self._inside:
                        right = partial(self._is_right_for, hit)
                        yield [partial(_told, (length, cell, place), right)]

    def _is_given(self, number: Term) -> bool:
        """Whether a number is one that the lookup is called with."""
        return any(is_same(number, each) for each in (self.cap, *self.sizes.values()))

    def _of_hits(self) -> Iterator[Callable[[Term], Formula]]:
        """What a number of tokens may be."""
        yield lambda tokens: tokens >= 0
        yield lambda tokens: tokens <= self.cap
        yield lambda tokens: self.here.implies(self.other_is_valid, self.other <= tokens)
        for hit in self.groups:
            yield partial(self._holds_here, hit)
            if hit.group.eagle:
                yield partial(self._is_in_reach, hit)
                yield partial(self._holds_here, _plain(hit))

    def _holds_here(self, hit: GroupHit, tokens: Term) -> Formula:
        """Whether the block at the position is cached, if the hit requires it."""
        at, boundary = self.here.position, self._told_in(hit, tokens) // hit.group.block_size
        required = in_required_run(hit.shape, at, boundary)
        return (tokens == 0) | self.here.implies(required, hit.cached(at))

    def _is_in_reach(self, hit: GroupHit, tokens: Term) -> Formula:
        size = hit.group.block_size
        boundary = self._told_in(hit, tokens) // size
        within = within_reach(hit.shape, boundary, self.cap // size, self.horizon // size)
        return (tokens == 0) | within

    def _is_dropped(self, hit: GroupHit, flag: Formula, tokens: Term) -> Formula:
        """Whether a hit has its lookahead block, if that was looked up."""
        holds = self._holds_here(hit, tokens) & self._is_in_reach(hit, tokens)
        return self.here.implies(flag, holds)

    def _is_right(self, hit: GroupHit, length: Term, cell: Any) -> Formula:
        table = Listing(None, length, cell)
        return hit.has_blocks(table, length * hit.group.block_size)

    def _is_right_for(self, hit: GroupHit, length: Term, cell: Any, tokens: Term) -> Formula:
        return hit.has_blocks(Listing(None, length, cell), self._told_in(hit, tokens))

    def _is_long(self, hit: GroupHit, length: Term, tokens: Term) -> Formula:
        return hit.is_long(length, self._told_in(hit, tokens) if self._inside else tokens)

    def _is_long_enough(self, hit: GroupHit, length: Term, tokens: Term) -> Formula:
        return hit.is_long_enough(length, self._told_in(hit, tokens) if self._inside else tokens)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """The hit is valid for each group, none is longer, and the tables have its blocks."""
        match result:
            case (tuple() as tables, length, *_) if is_number(length):
                pass
            case _:
                raise Unsupported(f"a lookup that returns {result!r:.60}")
        if len(tables) != len(self.groups):
            raise Unsupported(f"{len(tables)} block tables")
        for hit, table in zip(self.groups, tables, strict=True):
            of_group, own = f" for group {hit.number}", self._told_in(hit, length)

            def is_valid(hit: GroupHit = hit, own: Term = own) -> Formula:
                return hit.valid(own, self.cap, self.horizon)

            yield f"the hit is valid{of_group}", is_valid
            if not isinstance(table, Listing):
                raise Unsupported(f"a block table that is {table!r:.60}")
            for sentence, conclusion in hit.tables(table, own):
                yield f"{sentence}{of_group}", conclusion
        yield (
            "no longer hit is valid",
            lambda: self.here.implies(self.other_is_valid, self.other <= length),
        )

    def _told_in(self, hit: GroupHit, length: Term) -> Term:
        """A number of alignments by the group's sizes; any other length as it is."""
        for unit in (self.alignment, *(each.alignment for each in self.groups)):
            count = length // unit
            if is_same(count * unit, length):
                return count * hit.alignment
        return length


def _told(places: tuple[Place, ...], holds: Callable[..., Formula], values: Values) -> Formula:
    """What holds of these values, if all of them are known."""
    told = [values.get(place) for place in places]
    if any(each is None or isinstance(each, Unknown) for each in told):
        return False
    return holds(*told)


def _plain(hit: GroupHit) -> GroupHit:
    """The same without a lookahead block."""
    return replace(hit, group=replace(hit.group, eagle=False))


def _check_hashes_are_enough() -> None:
    """All whole blocks of a request are hashed: a lemma, proved here."""
    here = Arithmetic()
    size, num_hashes = here.atom("hash_block_size", 1), here.atom("num_hashes", 0)
    block_size = size * here.atom("times", 1)
    tokens, known = here.atom("tokens", 0), Knowledge(here)
    known.add(num_hashes * size <= tokens)
    known.add(tokens < num_hashes * size + size)
    if known.fails(lambda: tokens // block_size == num_hashes * size // block_size) is not None:
        raise AssertionError("a whole block without a hash")

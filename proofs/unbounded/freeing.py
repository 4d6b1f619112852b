"""Which blocks of a running request a manager frees, whatever was freed before."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from hitproof.proofs.unbounded.loops import Family, Place, Shapes, Values
from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Contract,
    Entries,
    Filled,
    Items,
    Listing,
    Record,
    is_number,
)
from hitproof.spec.terms import Formula, Term, min

REQUEST = "request"
_TABLE, _FREED = "req_to_blocks", "freed"


class AnyFreeing:
    """A request of any blocks of any size, the first of which were freed before.

    Attributes:
        computed: the tokens that are computed.
        skipped: the first tokens, which are no longer read (`proofs.unbounded.skipping`).
        sizes: the unknowns, by name.
    """

    def __init__(self, here: Arithmetic) -> None:
        self.here = here
        self.computed: Term = here.atom("computed", 0)
        self.skipped: Term = here.atom("skipped", 0)
        self._block_size: Term = here.atom("block_size", 1)
        self._num_blocks: Term = here.atom("num_blocks", 0)
        self._before: Term = here.atom("freed_before", 0)
        self._end: Term = min(self.skipped // self._block_size, self._num_blocks)
        self.sizes: dict[str, Term] = {
            "block_size": self._block_size,
            "num_blocks": self._num_blocks,
            "skipped": self.skipped,
            "freed_before": self._before,
        }

    @property
    def shapes(self) -> Shapes:
        """What invariants speak of: blocks are freed from the last one on."""
        return Shapes(own=self._candidates)

    def _candidates(self, values: Values) -> Iterator[Family]:
        """Where the next block is, how many were freed, and which of them is at the position."""
        numbers = [place for place, value in values.items() if is_number(value)]
        for low in (place for place in numbers if place[-1] == "low"):
            yield [partial(_is_after, low, min(self._before, self._end))]
            for other, (number, times) in product(numbers, ((0, 1), (1, 1), (self._end, -1))):
                yield [partial(_is_apart, low, other, number, times)]
        for cell in (place for place, value in values.items() if isinstance(value, Block)):
            yield [partial(self._is_in_order, cell)]

    def _is_in_order(self, cell: Place, values: Values) -> Formula:
        block, length, at = values[cell], values[(*cell[:-1], "length")], self.here.position
        is_own = isinstance(block, Block) and (block.place == self._end - 1 - at)
        return self.here.implies((0 <= at) & (at < length), is_own)

    def free(
        self, function: Any, arguments: Mapping[str, Any], manager: type, pool: type, spec: Record
    ) -> Contract:
        """A call of a manager's function, for which the manager is made anew; it is returned."""

        def call(machine: Machine) -> Record:
            def at(place: Term) -> Block:
                return NULL if machine.decide(place < self._before) else Block(place)

            def take(_machine: Machine, blocks: Any, **_order: Any) -> None:
                freed.append(blocks)

            freed: list[Any] = []
            # No place is filled yet, wherever that begins.
            table = Filled(
                Items(self._num_blocks, at, list), NULL, self._end, self._end, machine.tick()
            )
            own = {
                "block_size": self._block_size,
                "kv_cache_spec": spec,
                "block_pool": Record(pool, {"free_blocks": Contract(take), "null_block": NULL}),
                "_null_block": NULL,
                _TABLE: Entries({REQUEST: table}),
                _FREED: freed,
            }
            made = Record(manager, own)
            machine.call(function, [made], arguments)
            return made

        return Contract(call)

    def get_num_skipped_tokens(self) -> Contract:
        """How many tokens are skipped; which these are is proved apart."""

        def get(_machine: Machine, _manager: Any, num_computed_tokens: Any) -> Term:
            if num_computed_tokens is not self.computed:
                raise Unsupported("tokens skipped by another request")
            return self.skipped

        return Contract(get)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """Exactly the blocks are freed of which every token is skipped, each of them once."""
        here, at = self.here, self.here.position
        table, freed = result.attributes[_TABLE].entries[REQUEST], result.attributes[_FREED]
        is_freed = (table.low <= at) & (at < table.high)
        skipped = (self._before <= at) & ((at + 1) * self._block_size <= self.skipped)
        inside = (0 <= at) & (at < self._num_blocks)

        def only(premise: Formula, conclusion: Formula) -> Formula:
            return here.implies(inside & premise, conclusion)

        yield "only skipped blocks are freed", partial(only, is_freed, skipped)
        yield "every skipped block is freed", partial(only, skipped, is_freed)
        number = table.high - table.low
        if len(freed) > 1 or not all(isinstance(each, Listing) for each in freed):
            raise Unsupported("blocks that are freed in several calls")
        if not freed or freed[0].items is not None:
            count = len(freed[0].items) if freed else 0
            yield "blocks are handed back", lambda: (number == 0) & (count == 0)
            return
        (listing,) = freed
        cell = listing.cell
        is_own = isinstance(cell, Block) and (cell.place == table.high - 1 - at)
        yield "each block is handed back once", lambda: listing.length == number
        yield (
            "the blocks are handed back from the last one on",
            lambda: here.implies((0 <= at) & (at < listing.length), is_own),
        )


def _is_after(low: Place, first: Term, values: Values) -> Formula:
    holds: Formula = values[low] >= first
    return holds


def _is_apart(low: Place, other: Place, number: Term, times: int, values: Values) -> Formula:
    holds: Formula = values[low] == number + times * values[other]
    return holds

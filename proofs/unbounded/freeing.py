"""Which blocks of a running request a manager frees, whatever was freed before."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from hitproof.proofs.unbounded.loops import AT, Family, Place, Shapes, Values
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
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import Formula, Term, choose, min

REQUEST = "request"
_TABLE, _FREED, _RETIRED = "req_to_blocks", "freed", "_num_retired_blocks"


class AnyFreeing:
    """A request of any blocks of any size, the first of which were freed before.

    Attributes:
        frees_all: whether every skipped block is freed, also where blocks between are missing.
        computed: the tokens that are computed.
        skipped: the first tokens, which are no longer read (`proofs.unbounded.skipping`).
        sizes: the unknowns, by name.
    """

    def __init__(self, here: Arithmetic, kind: GroupKind, frees_all: bool) -> None:
        self.here, self.frees_all = here, frees_all
        self._gaps = kind is GroupKind.MAMBA
        self._drafts: Term = here.atom("drafts", 0) if self._gaps else 0
        self.computed: Term = here.atom("computed", 0)
        if self._gaps:  # some releases take no draft to be accepted, and count without them
            self.computed = here.atom("computed without drafts") + self._drafts
        self.skipped: Term = here.atom("skipped", -1 if self._gaps else 0)
        self._block_size: Term = here.atom("block_size", 1)
        self._num_blocks: Term = here.atom("num_blocks", 0)
        self._before: Term = here.atom("freed_before", 0)
        self._end: Term = min(self.skipped // self._block_size, self._num_blocks)
        self._last_state: Term = here.atom("last_state", 0)
        self.sizes: dict[str, Term] = {
            "block_size": self._block_size,
            "num_blocks": self._num_blocks,
            "skipped": self.skipped,
            "freed_before": self._before,
        }

    @property
    def premises(self) -> tuple[Formula, ...]:
        """The block of the last state is one of the request's."""
        if not self._gaps:
            return ()
        return self.computed >= 0, self._last_state < self._num_blocks

    @property
    def shapes(self) -> Shapes:
        """What invariants speak of: blocks are freed from the last one on."""
        return Shapes(own=self._candidates)

    def _candidates(self, values: Values) -> Iterator[Family]:
        """Where the next block is, and of the one at the position, where it is by now."""
        numbers = [place for place, value in values.items() if is_number(value)]
        for low in (place for place in numbers if place[-1] == "low"):
            yield [partial(_is_after, low, min(self._before, self._end))]
            yield [partial(_is_beyond, low)]
            for other, (number, times) in product(numbers, ((0, 1), (1, 1), (self._end, -1))):
                yield [partial(_is_apart, low, other, number, times)]
        for place in (each for each, value in values.items() if isinstance(value, Block)):
            if (*place[:-1], "length") in values:
                yield [partial(self._is_in_order, place)]
            for premise, block in product(self._passed(), (NULL, self._own)):
                yield [partial(self._is_block, premise, place, block)]
        hashed = self.here.holds_at("hashed@0/0", self.here.position)
        known = True, hashed, self.here.not_(hashed)
        for count in (place for place in numbers if place[-1] == "count"):
            yield [partial(_is_no_more, count)]
            for premise, given, number in product(self._passed(), known, (0, 1)):
                yield [partial(self._is_counted, premise, given, count, number)]

    def _passed(self) -> tuple[Callable[[Term], Formula], ...]:
        """Whether the loop has come past the position, if it is at a place."""
        at = self.here.position
        is_before = (lambda now: at <= now), (lambda _now: at >= self._end)
        return *is_before, (lambda now: (now < at) & (at < self._end)), (lambda _now: True)

    def _is_in_order(self, cell: Place, values: Values) -> Formula:
        block, length, at = values[cell], values[(*cell[:-1], "length")], self.here.position
        is_own = isinstance(block, Block) and (block.place == self._end - 1 - at)
        return self.here.implies((0 <= at) & (at < length), is_own)

    def _is_block(
        self, premise: Callable[[Term], Formula], cell: Place, block: Block, values: Values
    ) -> Formula:
        found = values[cell]
        holds = isinstance(found, Block) and found.place == block.place
        return self.here.implies(premise(values[AT]), holds)

    def _is_counted(
        self,
        premise: Callable[[Term], Formula],
        given: Formula,
        count: Place,
        number: int,
        values: Values,
    ) -> Formula:
        return self.here.implies(premise(values[AT]) & given, values[count] == number)

    def free(
        self, function: Any, arguments: Mapping[str, Any], manager: type, pool: type, spec: Record
    ) -> Contract:
        """A call of a manager's function, for which the manager is made anew; it is returned."""

        def call(machine: Machine) -> Record:
            def at(place: Term) -> Block:
                if machine.decide(place < self._before):
                    return NULL
                is_gap = self._gaps and machine.decide(self.here.holds_at("missing", place))
                return NULL if is_gap else Block(place)

            def take(_machine: Machine, blocks: Any, **_order: Any) -> None:
                freed.append(blocks)

            freed: list[Any] = []
            self._own = at(self.here.position)
            # No place is filled yet, wherever that begins.
            table = Filled(
                Items(self._num_blocks, at, list),
                NULL,
                self._end,
                self._end,
                self._own,
                machine.tick(),
            )
            last = self._gaps and machine.decide(self.here.flag("has_last_state"))
            own = {
                "block_size": self._block_size,
                "kv_cache_spec": spec,
                "block_pool": Record(pool, {"free_blocks": Contract(take), "null_block": NULL}),
                "_null_block": NULL,
                "mamba_cache_mode": "align",
                "num_speculative_blocks": self._drafts,
                "last_state_block_idx": Entries({REQUEST: self._last_state} if last else {}),
                _RETIRED: Entries({REQUEST: self._before}, machine.tick()),
                _TABLE: Entries({REQUEST: table}),
                _FREED: freed,
            }
            made = Record(manager, own)
            machine.call(function, [made], arguments)
            return made

        return Contract(call)

    def get_num_skipped_tokens(self) -> Contract:
        """How many tokens are skipped; which these are is proved apart."""

        def get(machine: Machine, _manager: Any, num_computed_tokens: Any) -> Term:
            if self._gaps:  # drafts, which may be rejected, may be left out
                machine.path.require(
                    "only computed tokens count", num_computed_tokens <= self.computed
                )
                machine.path.suppose(self.skipped == num_computed_tokens - 1)
            elif num_computed_tokens is not self.computed:
                raise Unsupported("tokens skipped by another request")
            return self.skipped

        return Contract(get)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """Exactly the blocks are freed of which every token is skipped, each of them once."""
        here, at = self.here, self.here.position
        table, freed = result.attributes[_TABLE].entries[REQUEST], result.attributes[_FREED]
        if not isinstance(table.cell, Block):
            raise Unsupported(f"{table.cell!r:.60} in a block table")
        inside = (0 <= at) & (at < self._num_blocks)
        held = inside & (self._own.place != NULL.place)
        is_freed = held & (table.cell.place == NULL.place)
        skipped = (at + 1) * self._block_size <= self.skipped
        yield "only skipped blocks are freed", lambda: here.implies(is_freed, skipped)
        if self.frees_all:
            yield "every skipped block is freed", lambda: here.implies(held & skipped, is_freed)
        total: Term = 0
        for each in freed:
            if not isinstance(each, Listing) or not all(
                isinstance(item, Block) for item in each.items or ()
            ):
                raise Unsupported(f"{each!r:.60} that is freed")
            if each.items is None and not is_number(each.count):
                raise Unsupported("blocks that are freed are not counted")
            total = total + (each.count if each.items is None else 0)
            for item in each.items or ():
                total = total + choose(item.place == at, lambda: 1, lambda: 0)
        yield (
            "each block is handed back once, if it is freed",
            lambda: (is_freed & (total == 1)) | (here.not_(is_freed) & (total == 0)),
        )
        retired = result.attributes[_RETIRED].entries[REQUEST]
        if self._gaps and self.frees_all:
            yield (
                "what counts as freed is",
                lambda: here.implies(inside & (at < retired), table.cell.place == NULL.place),
            )
        if len(freed) == 1 and freed[0].items is None and not self._gaps:
            (listing,) = freed
            cell = listing.cell
            is_own = isinstance(cell, Block) and (cell.place == table.high - 1 - at)
            yield (
                "the blocks are handed back from the last one on",
                lambda: here.implies((0 <= at) & (at < listing.length), is_own),
            )


def _is_after(low: Place, first: Term, values: Values) -> Formula:
    holds: Formula = values[low] >= first
    return holds


def _is_no_more(count: Place, values: Values) -> Formula:
    holds: Formula = values[count] <= values[(*count[:-1], "length")]
    return holds


def _is_beyond(low: Place, values: Values) -> Formula:
    holds: Formula = values[low] >= values[AT] + 1
    return holds


def _is_apart(low: Place, other: Place, number: Term, times: int, values: Values) -> Formula:
    holds: Formula = values[low] == number + times * values[other]
    return holds

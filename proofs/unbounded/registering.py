"""Which blocks of a request a manager registers, whatever was registered before.

What the mask of these blocks says is proved apart (`proofs.unbounded.masks`); here it is only asked
for, of the right blocks and with what belongs to the group.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Contract,
    Entries,
    Items,
    Key,
    Listing,
    Record,
    is_number,
    is_same,
)
from hitproof.spec.terms import Formula, Term

REQUEST = "request"
_COUNTED, _HANDED, _MISSING = "num_cached_block", "handed over", "missing"


class AnyRegistration:
    """Blocks of a request that a manager of any sizes registers, of any number of tokens.

    Attributes:
        block_size, alignment, hash_block_size: sizes in tokens.
        num_tokens: the tokens of the request that are computed.
        before: how many of its blocks were registered, or left out, before.
        hashes: the hashes of the request.
        eagle: whether the group drops a block.
        replay, junction: boundaries that are promised, in tokens; the second is 0 for none. Unless
            it is told, the first is that of the prompt without its last token.
        interval: the retention interval; nothing is known of it.
        sizes: the unknowns, by name.
    """

    def __init__(self, here: Arithmetic, told_replay: bool = True) -> None:
        self.here = here
        self.hash_block_size: Term = here.atom("hash_block_size", 1)
        self.block_size: Term = here.atom("hashes_in_block", 1) * self.hash_block_size
        self.alignment: Term = here.atom("segment", 1) * self.block_size
        self.num_tokens: Term = here.atom("num_tokens", 0)
        self.before: Term = here.atom("before", 0)
        num_hashes = here.atom("num_hashes", 0)
        self.hashes = Items(num_hashes, Key, list)
        self._hashed: Term = num_hashes * self.hash_block_size
        self.eagle: Formula = here.flag("eagle")
        self.num_prompt_tokens: Term = here.atom("num_prompt_tokens", 1)
        self.replay: Term = here.atom("replay", 0) if told_replay else self.num_prompt_tokens - 1
        self.junction: Term = here.atom("junction", 0)
        self.interval = Record(object)
        self._num_blocks: Term = here.atom("num_blocks", 0)
        self._masks: list[tuple[Listing | None, Term, Term]] = []
        self.sizes: dict[str, Term] = {
            "block_size": self.block_size,
            "alignment": self.alignment,
            "hash_block_size": self.hash_block_size,
            "num_tokens": self.num_tokens,
            "num_hashes": num_hashes,
            "before": self.before,
        }

    @property
    def has_blocks(self) -> Formula:
        """The request has the blocks of its computed tokens."""
        return self.num_tokens <= self._num_blocks * self.block_size

    @property
    def all_hashed(self) -> Formula:
        """Every whole block of hashes that is computed has its hash."""
        return self.num_tokens < self._hashed + self.hash_block_size

    def request(self, of: type) -> Record:
        """The request."""
        told = {
            "request_id": REQUEST,
            "block_hashes": self.hashes,
            "shared_prefix_boundary": self.junction,
            "num_prompt_tokens": self.num_prompt_tokens,
        }
        return Record(of, told)

    def register(
        self, function: Any, arguments: Mapping[str, Any], manager: type, pool: type, spec: Record
    ) -> Contract:
        """A call of a manager's function, for which the manager is made anew; it is returned."""

        def call(machine: Machine) -> Record:
            self._masks.clear()
            before = {REQUEST: self.before} if machine.decide(self.before >= 1) else {}
            counted = Entries(before, born=machine.tick())
            handed: list[Term] = []
            of_pool = {
                "hash_block_size": self.hash_block_size,
                "cache_full_blocks": self._take(handed),
                # Blocks that are not full are registered beside these.
                "cache_partial_block": Contract(lambda _machine, **_block: None),
            }

            def block(place: Term) -> Block:
                missing = machine.decide(self.here.holds_at(_MISSING, place))
                return NULL if missing else Block(place)

            ignored = Contract(lambda _machine, *_item: None)
            self._blocks = Items(self._num_blocks, block, list)
            own = {
                "block_size": self.block_size,
                "kv_cache_spec": spec,
                "block_pool": Record(pool, of_pool),
                "mamba_cache_mode": "align",
                # Which of its states a step must not read is not followed here.
                "cached_blocks_this_step": Record(object, {"add": ignored}),
                "_pending_boundary_state_offloads": Record(object, {"append": ignored}),
                _COUNTED: counted,
                "req_to_blocks": Entries({REQUEST: self._blocks}),
                "use_eagle": self.eagle,
                "kv_cache_group_id": 0,
                "dcp_world_size": 1,
                "pcp_world_size": 1,
                "scheduler_block_size": self.alignment,
                "cache_hit_alignment_tokens": self.alignment,
                _HANDED: handed,
            }
            made = Record(manager, own)
            machine.call(function, [made], arguments)
            return made

        return Contract(call)

    def mask(
        self, spec: Record, read: Callable[..., Mapping[str, Any]], plain: Any = None
    ) -> Contract:
        """The mask of some blocks; ``read`` gives what it is called with, by one name each.

        A ``plain`` one, which may give None for all blocks, is executed.
        """
        own = {
            "alignment": self.alignment,
            "spec": spec,
            "eagle": self.eagle,
            "interval": self.interval,
            "num_prompt_tokens": self.num_prompt_tokens,
            "ranks": 1,
        }

        def mask(machine: Machine, *given: Any, **named: Any) -> Listing | None:
            told = dict(read(*given, **named))
            start, end = told.pop("start"), told.pop("end")
            promised = told.pop("boundaries", None)
            for name, value in told.items():
                machine.path.require(f"the mask has its own {name}", is_same(value, own[name]))
            if promised is not None:
                self._check_promised(machine, promised)
            if plain is not None and machine.execute(plain, given, named) is None:
                self._masks.append((None, start, end))
                return None
            made = machine.new_list([])
            made.items, made.length = None, end - start
            made.cell = self.here.flag(f"mask@{made.born}")
            self._masks.append((made, start, end))
            return made

        return Contract(mask)

    def _check_promised(self, machine: Machine, promised: Any) -> None:
        if not isinstance(promised, Listing) or promised.items is None:
            raise Unsupported(f"boundaries that are {promised!r:.60}")
        has = [any(is_same(each, of) for each in promised.items) for of in self._promised]
        none = self.junction == 0
        machine.path.require("the mask has each promised boundary", has[0] & (none | has[1]))

    @property
    def _promised(self) -> tuple[Term, Term]:
        return self.replay, self.junction

    def _take(self, handed: list[Term]) -> Contract:
        """The pool registers full blocks, those that the mask has."""

        def take(
            machine: Machine,
            request: Any,
            blocks: Any,
            num_cached_blocks: Any,
            num_full_blocks: Any,
            block_size: Any,
            kv_cache_group_id: Any,
            block_mask: Any = None,
        ) -> None:
            require, size = machine.path.require, self.block_size
            own = request.python_type is not object and blocks is self._blocks
            require("the blocks are the request's", own and kv_cache_group_id == 0)
            require("the blocks have the group's size", is_same(block_size, size))
            require("no block is registered twice", num_cached_blocks == self.before)
            tokens = num_full_blocks * size
            full = (tokens <= self.num_tokens) & (tokens <= self._hashed)
            require("no block is registered before it is full and hashed", full)
            for mask, start, end in self._masks:
                if mask is block_mask:
                    own_ones = (start == num_cached_blocks) & (end == num_full_blocks)
                    require("the mask is that of these blocks", own_ones)
                    break
            else:  # without one all are registered, as hits need where they end on any block
                require("there is a mask", block_mask is None and self.alignment == size)

            def is_registered(place: Term) -> Formula:
                inside = (num_cached_blocks <= place) & (place < num_full_blocks)
                return inside & self.here.not_(self.here.holds_at(_MISSING, place))

            machine.change_hashes(is_registered if block_mask is None else None)
            handed.append(num_full_blocks)

        return Contract(take)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """Every full block is registered or left out, once, and counted."""
        if not isinstance(result, Record):
            raise Unsupported(f"a manager that is {result!r:.60}")
        handed = result.attributes[_HANDED]
        counted = result.attributes[_COUNTED].entries.get(REQUEST, 0)
        if len(handed) > 1 or not is_number(counted):
            raise Unsupported("blocks that are handed over in several calls")
        last = handed[0] if handed else self.before
        next_end = (last + 1) * self.block_size
        is_next = (next_end <= self.num_tokens) & (next_end <= self._hashed)
        yield "every full block is handed over", lambda: self.here.not_(is_next)
        yield "blocks that are handed over are counted", lambda: counted == last

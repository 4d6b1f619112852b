"""How many blocks a request asks for, and where a replay of it resumes, whatever its lengths."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, TypeAlias

from hitproof.proofs.unbounded.machine import Machine
from hitproof.proofs.unbounded.proving import Conclusion
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Block, Contract, Entries, Items, Record, is_number
from hitproof.spec.admission import blocks_between
from hitproof.spec.retention import replay_boundary
from hitproof.spec.terms import Blocks, Formula, Term, Tokens, choose, max, min

REQUEST = "request"
CAPS = "max_admission_blocks_per_request", "_max_admission_blocks_per_request"

Reading: TypeAlias = Callable[[Items, bool], Mapping[str, Any]]


def blocks_missing(
    end: Tokens, skipped: Tokens, held: Blocks, block_size: Tokens, cap: Blocks | None
) -> Blocks:
    """How many blocks a request lacks whose first ``held`` ones are there.

    It needs those of the tokens up to ``end``, at most ``cap`` blocks, but none before ``skipped``.
    """
    ends = (end,) if cap is None else (end, cap * block_size)
    wanted = product((skipped, held * block_size), ends)
    return max(reduce(min, (blocks_between(*each, block_size) for each in wanted)), 0)


class AnyAdmission:
    """A request of any length, of which some blocks are held, and some were found by a lookup.

    Attributes:
        computed, end: tokens that are computed before the step, and those that need a slot after.
        local: those of the first that were found in the cache.
        sizes: the unknowns, by name.
    """

    def __init__(self, here: Arithmetic, in_blocks: bool) -> None:
        self.here, self._in_blocks = here, in_blocks
        self.block_size: Term = here.atom("block_size", 1)
        self.computed: Term = here.atom("computed", 0)
        self.local: Term = here.atom("local", 0)
        self.end: Term = here.atom("end", 0)
        self._skipped: Term = here.atom("skipped", 0)
        self._held: Term = here.atom("held", 0)
        self._found: Term = here.atom("found", 0)
        self._evictable: Term = here.atom("evictable", 0)
        self.sizes: dict[str, Term] = {
            "block_size": self.block_size,
            "end": self.end,
            "skipped": self._skipped,
            "held": self._held,
            "found": self._found,
        }

    def ask(self, function: Any, manager: type, spec: Record, read: Reading) -> Contract:
        """A call of a manager's function, for a request that runs or is new, up to a cap or not.

        ``read`` gives the arguments of a call: the blocks that were found, and whether the cap
        applies. What is returned is the number, and what these are.
        """

        def call(machine: Machine) -> tuple[Any, bool, Term | None]:
            runs = machine.decide(self.here.flag("runs"))
            has_cap = machine.decide(self.here.flag("has_cap"))
            applies = not has_cap or machine.decide(self.here.flag("cap_applies"))
            cap = self.here.atom("cap", 0) if has_cap else None
            own = {
                "block_size": self.block_size,
                "kv_cache_spec": spec,
                "req_to_blocks": Entries({REQUEST: Items(self._held, Block, list)}),
                "num_cached_block": Entries({REQUEST: self._held} if runs else {}),
                **dict.fromkeys(CAPS, cap),
            }
            found = Items(0 if runs else self._found, Block, list)
            asked = machine.call(function, [Record(manager, own)], read(found, applies))
            return asked, runs, cap if applies else None

        return Contract(call)

    def get_num_skipped_tokens(self) -> Contract:
        """How many tokens are skipped; which these are is proved apart."""

        def get(_machine: Machine, _manager: Any, num_computed_tokens: Any) -> Term:
            if num_computed_tokens is not self.computed:
                raise Unsupported("tokens skipped by another request")
            return self._skipped

        return Contract(get)

    def get_num_evictable_blocks(self) -> Contract:
        """How many of the found ones that are not skipped are free."""

        def get(machine: Machine, _manager: Any, blocks: Any) -> Term:
            if not isinstance(blocks, Items):
                raise Unsupported(f"evictable blocks of {blocks!r:.60}")
            kept = max(self._found - max(self._skipped // self.block_size - self._held, 0), 0)
            machine.path.require(
                "all found blocks count that are not skipped", blocks.length == kept
            )
            return self._evictable

        return Contract(get)

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """A request asks for the blocks that it lacks, found ones that are free, and a copy."""
        asked, runs, cap = result
        if not is_number(asked):
            raise Unsupported(f"a number of blocks that is {asked!r:.60}")
        found = 0 if runs else self._found
        skipped, free = (0, 0) if runs else (self._skipped, self._evictable)
        due = free + blocks_missing(self.end, skipped, self._held + found, self.block_size, cap)
        whole: Formula = True
        if not self._in_blocks:  # the last block that was found is shared, and to be copied
            whole = (found == 0) | (self.local % self.block_size == 0)
        yield (
            "it asks for the blocks that it lacks",
            lambda: choose(whole, lambda: asked == due, lambda: asked == due + 1),
        )


def resumes_at(num_prompt_tokens: Tokens, alignment: Tokens, eagle: bool) -> tuple[Tokens, ...]:
    """Where a repeat of a prompt resumes and, with EAGLE, where a longer one does.

    A draft layer needs a block past a hit, for which a whole alignment is left.
    """
    ends = (num_prompt_tokens - 1, num_prompt_tokens) if eagle else (num_prompt_tokens - 1,)
    return tuple(replay_boundary(end, end, alignment if eagle else 0, alignment) for end in ends)


class AnyReplay:
    """A prompt of any length, of which a later request is a repeat or begins with it.

    Attributes:
        num_prompt_tokens, alignment: sizes in tokens.
        sizes: the same, by name.
    """

    def __init__(self, here: Arithmetic, eagle: bool) -> None:
        self.here, self._eagle = here, eagle
        self.num_prompt_tokens: Term = here.atom("num_prompt_tokens", 1)
        self.alignment: Term = here.atom("alignment", 1)
        self.sizes = {"num_prompt_tokens": self.num_prompt_tokens, "alignment": self.alignment}

    def conclusions(self, result: Any) -> Iterator[Conclusion]:
        """Rounded down, they are the boundaries at which a replay resumes."""
        if not isinstance(result, tuple) or not all(map(is_number, result)):
            raise Unsupported(f"boundaries that are {result!r:.60}")
        due = resumes_at(self.num_prompt_tokens, self.alignment, self._eagle)
        found = [each // self.alignment * self.alignment for each in result]
        yield "a replay resumes at each boundary", lambda: _are_among(found, due)
        yield "each at which one resumes is a boundary", lambda: _are_among(due, found)


def _are_among(numbers: Sequence[Term], others: Sequence[Term]) -> Formula:
    holds: Formula = True
    for each in numbers:
        is_one: Formula = False
        for other in others:
            is_one = is_one | (each == other)
        holds = holds & is_one
    return holds

"""What a simulation asks of a manager: the calls of vLLM's scheduler, and nothing that judges them.

Requests have their hashes from a file, and the right number of tokens, all alike: without events
no manager reads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from hitproof.spec.releases.horizons import LookaheadHorizon


class Lookup(NamedTuple):
    """A manager's answer: the length of the hit in tokens, and its blocks, as the manager's own."""

    length: int
    blocks: Any


@dataclass
class HandedOut:
    """Blocks that a pool handed out: how many, and how many keys lookups lost by that."""

    taken: int = 0
    evictions: int = 0

    @classmethod
    def by(cls, pool: Any, num_keys: Callable[[], int]) -> "HandedOut":
        """Count from now on what a pool hands out by ``get_new_blocks``."""
        counts, take = cls(), pool.get_new_blocks

        def counted(*arguments: Any, **keywords: Any) -> Any:
            before = num_keys()
            taken = take(*arguments, **keywords)
            counts.taken += len(taken)
            counts.evictions += before - num_keys()
            return taken

        pool.get_new_blocks = counted
        return counts


class SimulatedManager(Protocol):
    """A running manager. Requests are its own objects.

    Attributes:
        horizon: how far past the cap its lookups may peek.
        junctions: whether sparse retention keeps a prefix that two requests share.
        handed_out: what its pool handed out so far.
    """

    horizon: LookaheadHorizon
    junctions: bool
    handed_out: HandedOut

    def arrive(self, name: str, num_prompt_tokens: int, hashes: Sequence[bytes]) -> Any:
        """A request; ``hashes`` are those of its prompt and of its output to come."""

    def append(self, request: Any, count: int) -> None:
        """The model sampled ``count`` tokens."""

    def lookup(self, request: Any) -> Lookup:
        """vLLM: ``get_computed_blocks``."""

    def allocate(self, request: Any, num_new_tokens: int, hit: Lookup | None) -> bool:
        """Whether ``allocate_slots`` gave slots; ``hit`` where the request is admitted with it."""

    def computed(self, request: Any, num_tokens: int) -> None:
        """Set the number of its computed tokens; 0 where it was preempted."""

    def free(self, request: Any) -> None:
        """vLLM: ``free``."""

    def new_step_starts(self) -> None:
        """The engine's next step starts."""

    def num_free(self) -> int:
        """How many blocks are free."""

    def cached(self) -> list[int]:
        """Keys that lookups find, of each group. It may take long."""

    def held(self, request: Any) -> list[int]:
        """Blocks that a request holds in each group."""

    def has_block(self, request: Any, group: int, block: int) -> bool:
        """Whether a lookup of the request would find its block in a group."""

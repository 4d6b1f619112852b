"""Which full blocks the producer registers, under dense and sparse retention."""

from collections.abc import Callable, Sequence
from functools import partial

from hitproof.spec.groups import BlockGeometry, Group, geometry
from hitproof.spec.mask import in_mask
from hitproof.spec.retention import (
    SPARSE_KINDS,
    check_interval,
    in_retained_mask,
    junction_boundary,
    replay_boundary,
    resend_cap,
)
from hitproof.spec.sharing import final_tokens

Mask = Callable[[int, int], list[bool]]
"""``mask(first, end)``: whether the producer registers each of a request's blocks from ``first``
up to ``end``."""


class Registration:
    """What one model's producer registers. vLLM: ``reachable_block_mask``.

    ``interval`` is the retention interval in tokens: None is dense, 0 the latest boundaries only.
    ``peeks`` is whether lookups find a lookahead block that ends with the request.
    Raises `ConfigurationError` when it does not fall on boundaries.
    """

    def __init__(
        self, groups: Sequence[Group], alignment: int, interval: int | None, peeks: bool = True
    ) -> None:
        check_interval(interval, alignment)
        self._alignment, self._interval, self._peeks = alignment, interval, peeks
        self._geometries = {group: geometry(group, alignment) for group in groups}
        self._reachable: dict[Group, list[bool]] = {group: [] for group in groups}
        self._lookahead_tokens = max(
            (group.block_size * self._geometries[group].lookahead for group in groups), default=0
        )

    def num_tokens(self, group: Group, num_computed_tokens: int) -> int:
        """How far blocks are registered now: up to the last boundary and its lookahead block.

        Later blocks wait until their boundary is computed, and so known to be reachable; with
        several MTP modules, until what these keep in them is final.
        """
        num_computed_tokens = self.num_final_tokens(group, num_computed_tokens)
        aligned: int = num_computed_tokens // self._alignment * self._alignment
        if group.eagle and aligned:
            ahead = max(int(self._geometries[group].lookahead), 1) * group.block_size
            return min(num_computed_tokens, aligned + ahead)
        return aligned

    def num_final_tokens(self, group: Group, num_computed_tokens: int) -> int:
        """The computed tokens whose entries no later step writes again."""
        if not group.eagle:
            return num_computed_tokens
        return int(final_tokens(num_computed_tokens, group.prefill_lookahead))

    def mask(self, group: Group, prompt: int, shared: int, hash_lookahead: int) -> Mask:
        """Which of a request's blocks to register, by range; all in tokens.

        Of one with a ``prompt``, which was seen to be ``shared`` up to there, if it was.
        """
        if self._interval is not None and group.kind in SPARSE_KINDS:
            return self.retained(group, prompt, shared, hash_lookahead)
        return self.reachable(group)

    def reachable(self, group: Group) -> Mask:
        """The dense mask."""
        return partial(_reachable, self._geometries[group], self._reachable[group])

    def retained(self, group: Group, prompt: int, shared: int, hash_lookahead: int) -> Mask:
        """The mask of sparse retention."""
        boundaries = [*self.replays(prompt, hash_lookahead), *self.junctions(shared)]
        replays = [boundary // group.block_size for boundary in boundaries]
        every = (self._interval or 0) // group.block_size or None
        shape = self._geometries[group]
        return lambda first, end: [
            bool(in_retained_mask(shape, block, replays, every)) for block in range(first, end)
        ]

    def replays(self, num_tokens: int, num_hash_lookahead_tokens: int) -> Sequence[int]:
        """The boundaries that are kept for a resend and an extension of a prompt."""
        cap = resend_cap(num_tokens, num_hash_lookahead_tokens)
        peek, lookahead = num_tokens - (not self._peeks), self._lookahead_tokens
        return (
            replay_boundary(cap, peek, lookahead, self._alignment),
            replay_boundary(num_tokens, num_tokens, lookahead, self._alignment),
        )

    def junctions(self, shared: int) -> Sequence[int]:
        """The boundaries kept for siblings, which may share more than lookup has seen, or not."""
        return (
            shared // self._alignment * self._alignment,
            junction_boundary(shared, self._lookahead_tokens, self._alignment),
        )


def _reachable(shape: BlockGeometry, known: list[bool], first: int, end: int) -> list[bool]:
    """The dense mask, which all requests share; ``known`` holds what is computed of it."""
    known.extend(bool(in_mask(shape, block)) for block in range(len(known), end))
    return known[first:end]

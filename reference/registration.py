"""Which full blocks the producer registers, under dense and sparse retention."""

from collections.abc import Callable, Sequence
from functools import partial

from hitproof.reference.releases import Policies, ReplayPolicy
from hitproof.reference.request import Registered
from hitproof.spec.groups import BlockGeometry, Group, geometry
from hitproof.spec.hits import required_run, run_end
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.horizons import horizon
from hitproof.spec.retention import (
    check_interval,
    junction_boundary,
    replay_boundary,
    resend_cap,
    sibling_boundary,
)
from hitproof.spec.sharing import final_tokens

Mask = Callable[[int, int], list[bool]]
"""``mask(first, end)``: whether the producer registers each of a request's blocks from ``first``
up to ``end``."""


class Registration:
    """What one model's producer registers. vLLM: ``reachable_block_mask``.

    ``interval`` is the retention interval in tokens: None is dense, 0 the latest boundaries only.
    Raises `ConfigurationError` when it does not fall on boundaries.
    """

    def __init__(
        self, groups: Sequence[Group], alignment: int, interval: int | None, policies: Policies
    ) -> None:
        check_interval(interval, alignment)
        self._alignment, self._interval, self._policies = alignment, interval, policies
        self._geometries = {group: geometry(group, alignment) for group in groups}
        self._reachable: dict[Group, list[bool]] = {group: [] for group in groups}
        self._use_eagle = any(group.eagle for group in groups)
        self._lookahead_tokens = max(
            (group.block_size * self._geometries[group].lookahead for group in groups), default=0
        )

    def num_tokens(self, group: Group, num_computed_tokens: int) -> int:
        """How far blocks are registered now: up to the last boundary and its lookahead block.

        All that is computed without ``waits_for_boundaries``.

        Later blocks wait until their boundary is computed, and so known to be reachable; with
        several MTP modules, until what these keep in them is final.
        """
        if group.eagle:
            num_computed_tokens = int(final_tokens(num_computed_tokens, group.prefill_lookahead))
        if not self._policies.waits_for_boundaries:
            return num_computed_tokens
        aligned: int = num_computed_tokens // self._alignment * self._alignment
        if group.eagle and aligned:
            ahead = max(int(self._geometries[group].lookahead), 1) * group.block_size
            return min(num_computed_tokens, aligned + ahead)
        return aligned

    def mask(self, group: Group, prompt: Registered) -> Mask:
        """Which of a request's blocks to register, by range."""
        shape = self._geometries[group]
        if self._interval is not None and group.kind in self._policies.sparse_kinds:
            return partial(
                _retained,
                shape,
                [boundary // group.block_size for boundary in self._replays(prompt)],
                self._interval // group.block_size or None,
            )
        if group.kind in self._policies.thinned_kinds:
            return partial(_reachable, shape, self._reachable[group])
        return _every

    def _replays(self, prompt: Registered) -> list[int]:
        num_tokens, alignment = prompt.num_prompt_tokens, self._alignment
        if self._policies.replays is ReplayPolicy.PROMISED:
            peek, lookahead = horizon(self._policies.horizon, num_tokens), self._lookahead_tokens
            replays = [
                replay_boundary(
                    resend_cap(num_tokens, prompt.num_hash_lookahead_tokens),
                    peek,
                    lookahead,
                    alignment,
                ),
                replay_boundary(num_tokens, num_tokens, lookahead, alignment),
            ]
        elif self._policies.replays is ReplayPolicy.ALIGNMENT_DROPPED and self._use_eagle:
            replays = [
                replay_boundary(tokens, tokens, alignment, alignment)
                for tokens in (num_tokens - 1, num_tokens)
            ]
        else:
            replays = [(num_tokens - 1) // alignment * alignment]
        if self._policies.junctions:
            # What is shared may go on past what lookup has seen, or end there.
            shared = prompt.shared_prefix_boundary
            replays.append(shared // alignment * alignment)
            if self._policies.replays is ReplayPolicy.PROMISED:
                lookahead = self._lookahead_tokens
                replays.append(junction_boundary(shared, lookahead, alignment))
        return replays


def _retained(
    shape: BlockGeometry, replays: Sequence[int], interval: int | None, first: int, end: int
) -> list[bool]:
    """`spec.retention.in_retained_mask` of each block, one required run after the other."""
    kept = [False] * (end - first)

    def keep(boundary: int) -> None:
        run = required_run(shape, boundary)
        start, stop = max(run.start, first), min(run.stop, end)
        if boundary >= 1 and start < stop:
            kept[start - first : stop - first] = [True] * (stop - start)

    for boundary in replays:
        keep(boundary)
    block = first
    while interval is not None and block < end:
        sibling = int(sibling_boundary(shape, block, interval))
        keep(sibling)
        block = int(run_end(shape, sibling))
    return kept


def _reachable(shape: BlockGeometry, known: list[bool], first: int, end: int) -> list[bool]:
    """The dense mask, which all requests share; ``known`` holds what is computed of it."""
    known.extend(bool(in_mask(shape, block)) for block in range(len(known), end))
    return known[first:end]


def _every(first: int, end: int) -> list[bool]:
    return [True] * (end - first)
